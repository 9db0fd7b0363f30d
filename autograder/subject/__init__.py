"""What runs on the student's side: a zygote, a keeper per run, and the host of the student's code.

    examiner ──spawns──> zygote ──forks──> keeper ──forks──> subject (host + student's module)

The *zygote* has imported the adapter once, so a run starts in milliseconds. The *keeper* stays
outside the isolation, forwards signals, and does not leave before every descendant of the subject
is gone. The *subject* isolates itself, imports the student's module and calls it.
"""

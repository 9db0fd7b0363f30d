"""A `Grade`, told: on the terminal, as a page, as JSON. Reports decide nothing.

Everything here is a function of the grade. Texts that come from students are shown and never
obeyed (see `plain`), and no report needs a network, a broker or a script to be read.
"""

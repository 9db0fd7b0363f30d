"""What authors need: proof that the tests of an exercise are right, and that they stay right."""

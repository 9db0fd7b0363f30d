"""Figures worth quoting, each a script that prints a ratio within one run. Nothing here is asserted."""

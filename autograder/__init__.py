"""Ackademy's autograder: runs a student's module against real brokers and judges what happened."""

__version__ = "0.1.0"

"""One submission to a `Grade`: every scenario, every seed, the worst verdict per guarantee."""

from __future__ import annotations

from autograder.grading.grade import grade

__all__ = ["grade"]

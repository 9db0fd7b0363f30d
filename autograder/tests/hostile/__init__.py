"""Submissions that are wrong in every way but the subject of the lesson, and what becomes of them."""

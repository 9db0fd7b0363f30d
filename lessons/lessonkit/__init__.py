"""What a lesson imports: run a pool against a real broker, and show what it did.

Nothing here teaches. A lesson's own cells hold everything a reader is to learn; this package
keeps publishing, recording and drawing out of their sight. It may import `autograder`; nothing
imports it but lessons and the site's executed pages.
"""

from __future__ import annotations

from lessonkit.crash import crash
from lessonkit.database import Database, PoolTimeout
from lessonkit.deploy import deploy
from lessonkit.ledger import Ledger, open_ledger
from lessonkit.observation import Observation
from lessonkit.observing import observe
from lessonkit.orders import Order
from lessonkit.payments import Books, open_leases, open_payments, take_payments
from lessonkit.pictures import facts, plot, timeline
from lessonkit.queues import open_queue
from lessonkit.reports import graded
from lessonkit.rollout_picture import show_rollout
from lessonkit.shift_picture import show_shift
from lessonkit.unheard import unheard

__all__ = [
    "Books",
    "Database",
    "Ledger",
    "Observation",
    "Order",
    "PoolTimeout",
    "crash",
    "deploy",
    "facts",
    "graded",
    "observe",
    "open_leases",
    "open_ledger",
    "open_payments",
    "open_queue",
    "plot",
    "show_rollout",
    "show_shift",
    "take_payments",
    "timeline",
    "unheard",
]

"""Edges of the lease's contract that no broker shows, for reference and variants: a Valkey that goes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograder.messaging import Permanent, Transient
from autograder.storage import StoreGone
from autograder.tests.exercises.bench import loaded

FOLDER = Path(__file__).parents[3] / "solutions/04_reliability/01_idempotent_handler"
PROGRAMS = [FOLDER / "idempotent_handler.py", *sorted(FOLDER.glob("variants/*.py"))]

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the student edition has no solutions")


class Keys:
    """A lease of one key; some commands go through, and their answers are lost."""

    def __init__(self, *, gone: str = "") -> None:
        self.gone = gone
        self.value = None

    def _answer(self, command, answer):
        if command == self.gone:
            self.gone = ""
            raise StoreGone
        return answer

    async def get(self, key):
        return self._answer("get", self.value)

    async def set_if_absent(self, key, value, *, ttl_s):
        absent = self.value is None
        if absent:
            self.value = value
        return self._answer("take", absent)

    async def delete_if_equals(self, key, value):
        equal = self.value == value
        if equal:
            self.value = None
        return self._answer("release", equal)

    async def expire_if_equals(self, key, value, *, ttl_s):
        return self._answer("renew", self.value == value)


class Charge:
    id, key, body, headers, attempt = "m1", "", b"{}", {}, 1

    def __init__(self) -> None:
        self.answers = []

    async def ack(self):
        self.answers.append("ack")

    async def nack(self, *, requeue, delay_s=0.0):
        self.answers.append("requeue" if requeue else "give up")


class Bank:
    def __init__(self, error=None) -> None:
        self.error, self.asked = error, 0

    async def __call__(self, message):
        self.asked += 1
        if self.error is not None:
            raise self.error


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.stem)
def charge(request, monkeypatch):
    module = loaded(request.param, monkeypatch)

    async def one(message, bank, keys):
        if hasattr(module, "Charger"):
            await module.Charger(bank, keys, 60.0).settle(message)
        else:
            await module.charge_card(message, bank, keys, ttl_s=60.0)
        assert len(message.answers) == 1
        return message.answers[0]

    return one


@pytest.mark.parametrize(
    ("error", "answer"),
    [(None, "ack"), (Permanent("no"), "give up"), (Transient("later"), "requeue"), (ValueError(), "requeue")],
)  # fmt: skip
async def test_whatever_becomes_of_the_work_the_lease_is_free(charge, error, answer):
    keys = Keys()
    assert await charge(Charge(), Bank(error), keys) == answer
    assert keys.value is None


async def test_a_take_of_which_nobody_hears_is_none(charge):
    bank, keys = Bank(), Keys(gone="take")
    assert await charge(Charge(), bank, keys) == "requeue"
    assert bank.asked == 0


async def test_a_release_of_which_nobody_hears_changes_nothing_about_the_charge(charge):
    bank, keys = Bank(), Keys(gone="release")
    assert await charge(Charge(), bank, keys) == "ack"
    assert bank.asked == 1

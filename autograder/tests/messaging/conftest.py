"""Failures inside the contract are explained as those inside a test module are."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "autograder.tests.messaging.contract",
    "autograder.tests.messaging.letters_contract",
    "autograder.tests.messaging.stage",
)

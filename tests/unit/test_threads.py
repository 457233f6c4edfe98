"""Errands: calls that can be interrupted."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from duly.control import TimeLimitExceeded
from duly.runtime import threads as threads_module
from duly.runtime.shelter import Swallowed
from duly.runtime.threads import Errand
from duly.store.interruptions import put_off, raise_what_was_put_off

INTERRUPTED_THEN_TRACED = """
import sys
from duly.runtime.threads import Errand

def deliver(value, failure):
    print(type(failure).__name__)

errand = Errand(lambda: errand.interrupt(), deliver)
errand.perform()
sys.settrace(lambda frame, event, argument: None)
(lambda: print("traced"))()
"""


def test_what_was_interrupted_leaves_nothing_behind_in_the_interpreter() -> None:
    """Python 3.11 would stand still at the first function that a debugger or coverage traces."""
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_THEN_TRACED],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert process.stdout.split() == ["TimeLimitExceeded", "traced"]


def test_what_is_interrupted_before_it_has_a_thread_does_not_start() -> None:
    started: list[bool] = []
    outcomes: list[tuple[object, BaseException | None]] = []
    errand = Errand(lambda: started.append(True), lambda *outcome: outcomes.append(outcome))
    errand.interrupt()
    errand.perform()
    ((value, failure),) = outcomes
    assert value is None
    assert isinstance(failure, TimeLimitExceeded)
    assert not started
    assert not put_off


def test_an_interruption_that_is_swallowed_at_the_very_end_does_not_reach_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Swallowing(dict[int, Errand]):
        """What Python does when the interruption arrives in a finaliser, just here."""

        def pop(self, *arguments: Any) -> Any:
            threads_module._swallowed._again()
            return super().pop(*arguments)

    monkeypatch.setattr(threads_module, "_interrupted", Swallowing())
    outcomes: list[BaseException | None] = []
    errand = Errand(lambda: errand.interrupt(), lambda _, failure: outcomes.append(failure))
    errand.perform()
    Errand(raise_what_was_put_off, lambda _, failure: outcomes.append(failure)).perform()
    assert [type(failure) for failure in outcomes] == [TimeLimitExceeded, type(None)]
    assert not put_off


def test_ignored_exceptions_are_told_to_whoever_listens_after_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda _: told.append("first"))
    swallowed = Swallowed(lambda: told.append("again"))
    swallowed.listen()
    ours = sys.unraisablehook

    def passes_on(unraisable: Any) -> None:
        told.append("later")
        ours(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", passes_on)
    swallowed.listen()
    for error in (ValueError, TimeLimitExceeded):
        sys.unraisablehook(SimpleNamespace(exc_type=error))
    assert told == ["later", "first", "again"]

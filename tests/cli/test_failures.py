"""Errors: one clear message, an exit code, no traceback unless it is asked for."""

from __future__ import annotations

from uuid import uuid4

import pytest

from duly import errors
from duly.cli.failures import exit_code_of
from duly.service.jobs import Jobs
from tests.cli.driving import Place, run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidOption("x", "y"), 2),
        (errors.InvalidArguments("t", "y"), 2),
        (errors.ConfigurationError("x"), 2),
        (errors.UnknownTask("t", "x"), 2),
        (errors.UnknownJob(uuid4()), 2),
        (errors.KeyConflict("t", "k", uuid4()), 1),
        (errors.StoreUnavailable("x"), 1),
        (errors.SchemaBehind("x"), 1),
        (errors.StoreFull("x"), 1),
        (errors.ResultTimeout(uuid4(), 1.0, "ready"), 124),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def _failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Jobs, "page", fail)


def test_one_message(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, errors.StoreUnavailable("gone \x1b[31m postgresql://a:secret@h/d"))
    answer = place.duly("job", "list")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err == "Error: gone \\x1b[31m postgresql://a:***@h/d\n"


def test_debug_shows_where(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, errors.StoreUnavailable("gone"))
    answer = place.duly("job", "list", "--debug")
    assert answer.code == 1
    assert answer.err.startswith("Traceback (most recent call last):")
    assert answer.err.endswith("\nError: gone\n")


def test_an_unexpected_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, ZeroDivisionError("division by zero"))
    answer = place.duly("job", "list")
    assert answer.code == 1
    assert answer.err.startswith("Error: unexpected ZeroDivisionError: division by zero;")
    assert "--debug" in answer.err


def test_an_interrupt(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, KeyboardInterrupt())
    answer = place.duly("job", "list")
    assert (answer.code, answer.err) == (130, "Error: interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["job", "nope"],
        ["job", "show"],
        ["job", "show", "--nope"],
        ["job", "list", "extra\x1b[31m"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "Error: " in answer.err
    assert "Traceback" not in answer.err
    assert "\x1b" not in answer.err

"""Options of tasks that make no sense are refused where the task is declared."""

from __future__ import annotations

from typing import Any

import pytest

from duly import App, InvalidOption


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory_limit": "300MB", "isolate": True}, ["memory_limit", "1_000_000_000", "'300MB'"]),
        ({"memory_limit": 512, "cpu": True}, ["memory_limit", "bytes", "512"]),
        ({"memory_limit": True, "cpu": True}, ["memory_limit", "bytes"]),
        ({"memory_limit": 1_000_000_000}, ["memory_limit", "isolate=True"]),
        ({"on_dead": "call me"}, ["on_dead", "function", "'call me'"]),
    ],
)
def test_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidOption) as caught:
        App("sqlite://").task(name="hungry", **options)(lambda: None)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("how", ["isolate", "cpu"])
def test_a_memory_limit_for_a_process_of_its_own(how: str) -> None:
    options: dict[str, Any] = {how: True, "memory_limit": 100_000_000}

    @App("sqlite://").task(**options)
    def hungry() -> None: ...

    assert hungry.definition.execution.memory_limit == 100_000_000

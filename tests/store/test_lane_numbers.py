"""Lanes that have one number in the index of pending jobs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.postgres import claiming, lanes
from duly.store.postgres.choosing import Expected
from tests.support.stores import Scene, opened


@pytest.fixture
def scene(shared_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A store in which all lanes have the same."""
    monkeypatch.setattr(lanes, "_number_of", lambda row: "0")
    _forget_statements()
    with opened("postgres", tmp_path, lambda: shared_database) as store:
        yield Scene(store)
    _forget_statements()


def _forget_statements() -> None:
    claiming._claim_text.cache_clear()
    claiming._next_due_text.cache_clear()


@pytest.mark.parametrize("expected", list(Expected))
@pytest.mark.parametrize("other", [{"queue": "other"}, {"task": "other"}])
def test_a_claim_takes_nothing_from_other_lanes(
    scene: Scene, other: dict[str, str], expected: Expected
) -> None:
    scene.submit(**other)
    mine = scene.submit()
    scene.store.expected = expected  # type: ignore[attr-defined]
    assert [job.id for job in scene.claim(scene.hire(), 10)] == [mine.id]


@pytest.mark.parametrize("expected", list(Expected))
def test_a_claim_tells_priorities_apart(scene: Scene, expected: Expected) -> None:
    scene.submit()
    urgent = scene.submit(priority=20)
    scene.store.expected = expected  # type: ignore[attr-defined]
    assert [job.id for job in scene.claim(scene.hire(), 1)] == [urgent.id]

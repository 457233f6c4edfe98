"""However the due jobs lie in lanes, a claim takes those that come first, and no others."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from duly.model.job import Draft
from tests.support.stores import Scene, draft

QUEUES = ("one", "two", "three")
Shape = Callable[[random.Random, Scene], list[Draft]]
TASKS = tuple(f"task {number}" for number in range(12))


def even(chance: random.Random, scene: Scene) -> list[Draft]:
    """Every lane has some, of one priority."""
    return [_draft(chance, scene, task, 5) for _ in range(20) for task in TASKS]


def one_is_ahead(chance: random.Random, scene: Scene) -> list[Draft]:
    """All of one lane come before all others."""
    first = [_draft(chance, scene, TASKS[3], 5, hours=20) for _ in range(150)]
    return first + [_draft(chance, scene, task, 5, hours=1) for _ in range(10) for task in TASKS]


def few_are_full(chance: random.Random, scene: Scene) -> list[Draft]:
    """Most lanes have a job or two, and those of one task have many that come first."""
    full = [_draft(chance, scene, TASKS[0], 5) for _ in range(450)]
    return full + [_draft(chance, scene, task, 5, hours=1) for _ in range(3) for task in TASKS]


def few_are_full_and_some_below(chance: random.Random, scene: Scene) -> list[Draft]:
    """The same, and there are others of a lower priority."""
    below = [_draft(chance, scene, task, 1) for _ in range(20) for task in TASKS]
    return few_are_full(chance, scene) + below


def levels(chance: random.Random, scene: Scene) -> list[Draft]:
    """Few that are urgent, more below, and the oldest right below the second."""
    return [
        _draft(chance, scene, chance.choice(TASKS), priority, hours)
        for priority, number, hours in ((20, 5, 1), (10, 90, 3), (9, 70, 20), (5, 90, 2), (1, 9, 9))
        for _ in range(number)
    ]


def mixed(chance: random.Random, scene: Scene) -> list[Draft]:
    """No order at all."""
    return [
        _draft(chance, scene, chance.choice(TASKS), chance.choice((1, 5, 5, 10, 20)))
        for _ in range(300)
    ]


SHAPES = [even, one_is_ahead, few_are_full, few_are_full_and_some_below, levels, mixed]


def _draft(chance: random.Random, scene: Scene, task: str, priority: int, hours: int = 10) -> Draft:
    # Many have one and the same time, as jobs that were submitted together.
    run_at = scene.now - timedelta(hours=hours, minutes=chance.choice((0, 0, 0, 1, 2, 30)))
    return draft(task=task, priority=priority, queue=chance.choice(QUEUES), run_at=run_at)


def _chosen(due: list[Draft], limit: int, longest_waiting: int) -> list[Draft]:
    """What comes first by sorting everything."""
    chosen = due[: limit - longest_waiting]
    if longest_waiting:
        rest = sorted(due[len(chosen) :], key=lambda each: (each.run_at, each.id))
        chosen = chosen + rest[: limit - len(chosen)]
    return sorted(chosen, key=_place)


def _place(each: Draft) -> tuple[object, ...]:
    return (-each.priority, each.run_at, each.id)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limits", [(1, 30), (20, 40), (150, 150)], ids=["few", "some", "many"])
def test_what_comes_first(scene: Scene, shape: Shape, limits: tuple[int, int]) -> None:
    chance = random.Random(str(limits))
    drafts = shape(chance, scene)
    chance.shuffle(drafts)
    scene.enqueue(*drafts)
    holder = scene.hire()
    due = sorted(drafts, key=_place)
    while due:
        limit = chance.randint(*limits)
        waiting = chance.choice((0, 1, limit // 4, limit))
        claimed = scene.claim(holder, limit, (), TASKS, longest_waiting=waiting)
        expected = _chosen(due, limit, waiting)
        assert [job.id for job in claimed] == [each.id for each in expected]
        gone = {job.id for job in claimed}
        due = [each for each in due if each.id not in gone]

"""Which jobs start together when one of them is under suspicion."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.runtime.executor import Executor
from duly.runtime.slots import Slots
from duly.runtime.suspicion import Suspicion
from duly.store.protocol import Store


def suspicion(running: list[str]) -> Suspicion:
    return Suspicion(
        cast(Store, None),
        cast(Any, SimpleNamespace(require=lambda task: task)),
        cast(Executor, SimpleNamespace(needs_solitude=lambda job, task: True)),
        cast(Slots, running),
    )


PLAIN: Any = SimpleNamespace(alone=False, task="plain")
SUSPECT: Any = SimpleNamespace(alone=True, task="suspect")
OTHER_SUSPECT: Any = SimpleNamespace(alone=True, task="other")


@pytest.mark.parametrize(
    ("running", "jobs", "ahead", "expected"),
    [
        ([], [PLAIN], False, [PLAIN]),
        ([], [PLAIN, SUSPECT, OTHER_SUSPECT], False, [SUSPECT]),
        (["one"], [PLAIN, SUSPECT], False, [PLAIN]),
        ([], [SUSPECT, PLAIN], True, [PLAIN]),
        ([], [SUSPECT, OTHER_SUSPECT], True, [SUSPECT]),
    ],
    ids=["none", "due now", "beside others", "ahead, with others", "ahead, alone"],
)
def test_who_starts(running: list[str], jobs: list[Any], ahead: bool, expected: list[Any]) -> None:
    kept = suspicion(running)
    assert kept.startable(jobs, ahead) == expected
    running.append("what starts")
    assert kept.bars is (SUSPECT in jobs)

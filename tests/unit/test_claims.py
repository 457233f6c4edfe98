"""What a worker gives back after a claim that it was not told of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

from duly.model.settlement import Settlement, release, succeed
from duly.runtime.claims import Claims


class Holding:
    """A store that says what the worker holds."""

    def __init__(self, *held: tuple[UUID, int]) -> None:
        self._held = list(held)

    def held(self, worker: UUID) -> list[tuple[UUID, int]]:
        return self._held

    async def arun(self, answer: list[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
        return answer


def test_neither_what_runs_nor_what_has_ended_is_given_back() -> None:
    runs, runs_again, ended, unheard = uuid4(), uuid4(), uuid4(), uuid4()
    written: list[Settlement] = []
    claims = Claims(
        uuid4(),
        cast(Any, Holding((runs, 1), (runs_again, 2), (ended, 1), (unheard, 3))),
        cast(Any, SimpleNamespace(names=())),
        cast(Any, None),
        cast(Any, None),
        cast(Any, SimpleNamespace(waiting=[succeed(ended, 1, None)], put=written.append)),
        cast(Any, SimpleNamespace(attempts={(runs, 1), (runs_again, 1)})),
    )
    claims.unknown = True
    asyncio.run(claims.give_back_unknown())
    assert written == [release(runs_again, 2), release(unheard, 3)]
    assert not claims.unknown

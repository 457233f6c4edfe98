"""Protections taken out, one at a time: a simulator that does not notice proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import pytest

from duly.model.settlement import Settlement
from duly.runtime.claims import Claims
from duly.store.operation import Operation, Statement, Steps
from duly.store.sqlite import claiming, schedules, settling
from duly.store.sqlite.succeeding import plain_successes


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """Outcomes are taken from whoever reports them, under whatever token."""
    settle = settling.settle

    def unfenced(settlements: Sequence[Settlement], now: datetime | None) -> Steps[list[bool]]:
        taken = []
        for each in settlements:
            rows = yield Statement("SELECT token FROM jobs WHERE id = ?", (each.job_id.bytes,))
            taken.append(msgspec.structs.replace(each, token=rows[0][0]) if rows else each)
        return (yield from settle(taken, plain_successes(taken), now))

    def verb(
        self: object, settlements: Sequence[Settlement], now: datetime | None = None
    ) -> Operation[Any]:
        return Operation(lambda: unfenced(settlements, now))

    patch.setattr(settling.Settling, "settle", verb)


def no_unique_tick(patch: pytest.MonkeyPatch) -> None:
    """A schedule may move on twice from one place, and a tick may be written twice."""
    patch.setattr(schedules, "ADVANCE", _without(schedules.ADVANCE, "AND revision = ?"))
    conflict = "ON CONFLICT (schedule_id, nominal, kind) DO NOTHING"
    replacing = "ON CONFLICT (schedule_id, nominal, kind) DO UPDATE SET job_id = excluded.job_id"
    assert conflict in schedules.ADD_TICK
    patch.setattr(schedules, "ADD_TICK", schedules.ADD_TICK.replace(conflict, replacing))


def no_lease_check(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks gets jobs, also a worker that was given up for dead."""
    patch.setattr(claiming, "LEASE", "SELECT 1 WHERE ? IS NOT NULL AND ? IS NOT NULL")


def no_second_look_at_claims(patch: pytest.MonkeyPatch) -> None:
    """A worker whose claim was not answered does not look for what it may have been given."""

    async def forget(self: Claims) -> None:
        self.unknown = False

    patch.setattr(Claims, "give_back_unknown", forget)


def _without(text: str, condition: str) -> str:
    assert condition in text
    return text.replace(condition, "AND ? IS NOT NULL")

"""Which due jobs come first, when they lie in many lanes: little more is read than is chosen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain, groupby

from duly.model.query import Demand
from duly.store.operation import Row, Statement, Steps
from duly.store.sqlite.reading import LANES
from duly.store.sqlite.rows import array

_DUE = (
    "SELECT run_at, id, rowid FROM jobs WHERE state IN ('pending', 'waiting')"
    " AND queue = ? AND task = ? AND priority = ? AND run_at <= ?"
)
_IN_ORDER = " ORDER BY run_at, id LIMIT ?"
FIRST_DUE = _DUE + _IN_ORDER
NEXT_DUE = _DUE + " AND (run_at, id) > (?, ?)" + _IN_ORDER
Candidate = tuple[int, bytes, int]
"""When it is due, its id, and its row: the one that is told by the index that finds it."""


def choose(demand: Demand, instant: int) -> Steps[list[Candidate]]:
    """What to take: by priority, and the share of those that have waited for longest."""
    rows = yield Statement(LANES, (array(demand.queues), array(demand.tasks)))
    lanes = [_Lane(row) for row in rows]
    levels = [list(level) for _, level in groupby(lanes, key=lambda lane: lane.priority)]
    # Where all have one priority, those that come next have waited for longest.
    waiting = demand.longest_waiting if len(levels) > 1 else 0
    chosen: list[Candidate] = []
    for level in levels:
        if len(chosen) >= demand.limit - waiting:
            break
        chosen += yield from _first(level, instant, demand.limit - waiting - len(chosen))
    if waiting:
        chosen += yield from _first(lanes, instant, demand.limit - len(chosen))
    return chosen


class _Lane:
    """The due jobs of a lane, in order, as far as they have been read and not been taken."""

    def __init__(self, names: Row) -> None:
        self._names = names
        self.priority = names[2]
        self.read: list[Candidate] = []
        self.last: Candidate | None = None
        self.has_more = True

    def read_on(self, instant: int, number: int) -> Steps[None]:
        if self.last is None:
            found = yield Statement(FIRST_DUE, (*self._names, instant, number))
        else:
            found = yield Statement(NEXT_DUE, (*self._names, instant, *self.last[:2], number))
        self.has_more = len(found) == number
        if found:
            self.read += found
            self.last = found[-1]

    def may_precede(self, bound: Candidate | None) -> bool:
        """Whether there may be one before the bound that has not been read."""
        return self.has_more and (bound is None or self.last is None or self.last < bound)

    def take(self, bound: Candidate | None) -> None:
        """Leave those behind the bound."""
        del self.read[: len(self.read) if bound is None else bisect_right(self.read, bound)]


def _first(lanes: Sequence[_Lane], instant: int, number: int) -> Steps[list[Candidate]]:
    """Take the earliest of all lanes. Each is read for twice its share, and only those in which
    there may be more of the earliest are read on."""
    short = [lane for lane in lanes if lane.has_more and not lane.read]
    while True:
        for lane in short:
            yield from lane.read_on(instant, min(number, 2 * number // len(short) + 1))
        first = sorted(chain.from_iterable(lane.read for lane in lanes))[:number]
        bound = first[-1] if len(first) == number else None
        short = [lane for lane in lanes if lane.may_precede(bound)]
        if not short:
            break
    for lane in lanes:
        lane.take(bound)
    return first

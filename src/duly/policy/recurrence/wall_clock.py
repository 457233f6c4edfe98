"""Wall-clock times in a zone as instants: what becomes of times that are skipped or repeated.

A rule such as "02:30 every day" names nominal times: naive, as the clock on the wall shows them.
The zone turns each of them into one instant, except at a transition:

- in a gap no instant shows it. Policy `next`: the first instant after the gap stands for all
  nominal times inside it (and for the time that the clock shows then, if that is nominal too: one
  instant is one fire). Policy `skip`: nothing fires.
- in an overlap two instants show it. Policies `first`, `second`, `both`.

Why this is right: let f(n) be the instant of a nominal time n, under `first` or under `second`. f
never falls as n grows, so "the least fire after an instant" is f of the least nominal time that
has not fired by that instant, and that time can be told from the clock on the wall and the
transition at hand (`_first_pending`). `both` is the union of the two. All that follows rests on
this, and nothing walks second by second.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, Protocol, get_args
from zoneinfo import ZoneInfo

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence.instants import DAY, SECOND, seconds_between, whole_second
from duly.policy.recurrence.zones import (
    offset_at,
    offsets_of,
    transition_around,
    transitions_between,
)

Gap = Literal["skip", "next"]
Fold = Literal["first", "second", "both"]
Pass = Literal["first", "second"]


class NominalTimes(Protocol):
    """A set of naive wall-clock times on whole seconds, in the years the engine serves."""

    def at_or_after(self, wall: datetime) -> datetime | None:
        """The least member that is not before `wall`, or None."""

    def at_or_before(self, wall: datetime) -> datetime | None:
        """The greatest member that is not after `wall`, or None."""

    def count(self, start: datetime, end: datetime) -> int:
        """How many members have start <= member < end (none when end is not after start)."""

    def mask(self, start: datetime, end: datetime) -> int:
        """Those members as bits: bit s stands for start + s seconds. At most a few days."""


class WallClock(msgspec.Struct, frozen=True):
    """The instants of nominal times in a zone, under a policy for gaps and one for overlaps."""

    nominal: NominalTimes
    zone: ZoneInfo
    gap: Gap
    fold: Fold

    def next_after(self, instant: datetime) -> datetime | None:
        """The least fire strictly after the instant, or None when there is none any more.

        One search for a nominal time and a handful of offset lookups; more only at a transition.
        With `gap="skip"` each gap that holds the next nominal time costs one more round, so the
        number of rounds is bounded by the zone's transitions up to the last year served.
        """
        local = whole_second(instant).astimezone(self.zone)
        if self.fold != "both":
            return self._next_of_pass(local, self.fold)
        earliest = self._next_of_pass(local, "first")
        if self._is_repeated(local):
            # Only here can a second pass come before what the first pass has next.
            second = self._next_of_pass(local, "second")
            if earliest is None or (second is not None and second < earliest):
                return second
        return earliest

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The greatest fire at or before the instant, or None. Bounded as `next_after` is."""
        local = whole_second(instant).astimezone(self.zone)
        if self.fold != "both":
            return self._last_of_pass(local, self.fold)
        latest = self._last_of_pass(local, "second")
        if self._is_repeated(local):
            # Only here can a first pass come after what the second pass had last.
            first = self._last_of_pass(local, "first")
            if latest is None or (first is not None and first > latest):
                return first
        return latest

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many fires have after < fire <= until.

        Counts nominal times (the cost of `NominalTimes.count`) and corrects that at each
        transition in between.
        """
        after, until = whole_second(after), whole_second(until)
        if after >= until:
            return 0
        counted: Pass = "second" if self.fold == "second" else "first"
        total = self.nominal.count(
            self._first_pending(after.astimezone(self.zone), counted),
            self._first_pending(until.astimezone(self.zone), counted),
        )
        for transition in transitions_between(self.zone, after - DAY, until):
            if transition.is_gap:
                if transition.at > after:
                    total -= self._lost_in_gap(transition.wall_before, transition.wall_after)
            elif self.fold == "both":
                # Second passes lie at `at` and later: they may reach into the range from before.
                total += self.nominal.count(
                    max(transition.wall_after, _wall(after, transition.after) + SECOND),
                    min(transition.wall_before, _wall(until, transition.after) + SECOND),
                )
        return total

    def mask_of_day(self, day: datetime) -> int:
        """The fires of the UTC day that starts at `day`, as bits: bit s is s seconds after it."""
        end = day + DAY
        transitions = transitions_between(self.zone, day - DAY, end + DAY)
        cuts = [day, *(cut.at for cut in transitions if day < cut.at < end), end]
        members = 0
        for start, stop in pairwise(cuts):
            offset = offset_at(self.zone, start)
            wall_start, wall_stop = _wall(start, offset), _wall(stop, offset)
            for transition in transitions:
                if transition.is_gap:
                    continue
                if self.fold == "first" and transition.at <= start:
                    wall_start = max(wall_start, transition.wall_before)
                if self.fold == "second" and transition.at >= stop:
                    wall_stop = min(wall_stop, transition.wall_after)
            if wall_start < wall_stop:
                position = seconds_between(_wall(day, offset), wall_start)
                members |= self.nominal.mask(wall_start, wall_stop) << position
        if self.gap == "next":
            gaps = [found for found in transitions if found.is_gap and day <= found.at < end]
            for gap in gaps:
                if self.nominal.count(gap.wall_before, gap.wall_after):
                    members |= 1 << seconds_between(day, gap.at)
        return members

    def _next_of_pass(self, local: datetime, fold: Pass) -> datetime | None:
        pending = self._first_pending(local, fold)
        while (nominal := self.nominal.at_or_after(pending)) is not None:
            before, after = offsets_of(self.zone, nominal)
            if before >= after:
                return _instant(nominal, before if fold == "first" else after)
            transition = transition_around(self.zone, nominal)
            assert transition is not None, "the offsets differ, so there is a transition"
            if self.gap == "next":
                return transition.at
            pending = transition.wall_after
        return None

    def _last_of_pass(self, local: datetime, fold: Pass) -> datetime | None:
        pending = self._first_pending(local, fold)
        while (nominal := self.nominal.at_or_before(pending - SECOND)) is not None:
            before, after = offsets_of(self.zone, nominal)
            if before >= after:
                return _instant(nominal, before if fold == "first" else after)
            transition = transition_around(self.zone, nominal)
            assert transition is not None, "the offsets differ, so there is a transition"
            if self.gap == "next":
                return transition.at
            pending = transition.wall_before
        return None

    def _first_pending(self, local: datetime, fold: Pass) -> datetime:
        """The least wall-clock time whose instant, in this pass, lies after the given one.

        `local` is that instant in this zone; its `fold` tells the second pass.
        """
        wall = local.replace(tzinfo=None, fold=0)
        if fold == "first" and local.fold:
            transition = transition_around(self.zone, wall)
            assert transition is not None, "fold is set in overlaps only"
            return transition.wall_before
        if fold == "second" and not local.fold and self._is_repeated(local):
            transition = transition_around(self.zone, wall)
            assert transition is not None, "the time is repeated"
            return transition.wall_after
        return wall + SECOND

    def _is_repeated(self, local: datetime) -> bool:
        before, after = offsets_of(self.zone, local.replace(fold=0))
        return before > after

    def _lost_in_gap(self, start: datetime, end: datetime) -> int:
        """By how many the nominal times of a gap, and the one at its end, outnumber the fires."""
        inside = self.nominal.count(start, end)
        if not inside or self.gap == "skip":
            return inside
        end_is_nominal = self.nominal.count(end, end + SECOND)
        return inside - 1 + end_is_nominal


def check_policies(gap: str | None, fold: str | None) -> None:
    """Refuse a gap or overlap policy that does not exist; None leaves the default in force."""
    if gap is not None and gap not in get_args(Gap):
        raise InvalidSchedule(f"gap {gap!r}: choose 'next' or 'skip'")
    if fold is not None and fold not in get_args(Fold):
        raise InvalidSchedule(f"fold {fold!r}: choose 'first', 'second' or 'both'")


def _instant(wall: datetime, offset: timedelta) -> datetime:
    return wall.replace(tzinfo=UTC) - offset


def _wall(instant: datetime, offset: timedelta) -> datetime:
    return instant.replace(tzinfo=None) + offset

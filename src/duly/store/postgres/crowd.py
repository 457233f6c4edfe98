"""Whether so many are at work at a time that claims should leave alone what others have touched."""

from __future__ import annotations

import time

import msgspec

MANY = 8
"""How many transactions that write make a crowd."""
AT_FIRST, LASTING = 2.0, 5.0
"""For how many seconds a crowd is expected, after a rest and when one was seen."""
PATIENCE, TURN = 2.5, 0.25
"""How many seconds a transaction may stay open before claims take everything, and for how many they
do. What was only touched is left alone for twice the first at most."""
LONGEST = 30.0
"""For how many seconds nothing at all is taken for certain to have been claimed."""


class View(msgspec.Struct, frozen=True, gc=False):
    """What a claim saw of the transactions that write: how many ran, the oldest of these, and the
    first that had not begun. If none ran, these two are the same."""

    running: int
    oldest: int
    next: int

    @property
    def is_crowd(self) -> bool:
        """Whether they were many."""
        return self.running >= MANY


class Crowd:
    """Expects one whenever there was nothing to do, for all are woken at once, and while there is
    one.

    A job that was locked and let go, or whose change was undone, is left alone until whatever
    ran at that time has ended, which is moments. It is not if it is the only one left, nor for
    long where a transaction stays open, nor for LONGEST whatever the server says of it.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        """Until when one is expected; if that is None, from the next claim on."""
        self._seen_until = 0.0
        self._complete = 0.0
        """When a claim last took everything."""
        self._since = 0.0
        self._next = 0
        """Whatever was touched before `_since` is taken once all before `_next` have ended."""

    def is_expected(self) -> bool:
        """Whether a claim is to leave alone what others have touched."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + AT_FIRST
            self._since = self._complete = now
        patient = now < self._since + PATIENCE and now < self._complete + LONGEST
        return patient and now < self._until

    def was_seen(self) -> bool:
        """Whether there was one a moment ago."""
        return time.monotonic() < self._seen_until

    def claimed(self, jobs: int, everything: bool, view: View) -> None:
        """A claim brought so many jobs, of everything or only of what was untouched."""
        now = time.monotonic()
        if not jobs:
            self._until = None if everything else 0.0
        elif view.is_crowd:
            self._until = self._seen_until = now + LASTING
        in_turn = 0 <= now - self._since - PATIENCE < TURN
        if view.oldest >= self._next or (everything and not in_turn):
            self._since, self._next = now, view.next
        if everything:
            self._complete = now

    def nothing_is_due(self) -> None:
        """Somebody has looked: whatever comes next wakes everybody."""
        self._until = None

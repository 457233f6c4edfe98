"""Jobs that are claimed and wait for a slot: they start in turn, or are given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.runtime.pace import Pace
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots

LOOK = 0.1
LONGER = 4
"""How many times as long the rest may take as has passed, before it is given back."""


class Holding:
    """Starts what is held as slots become free, and gives it back when that takes too long.

    `enter` is called with what can start, `give_back` with what is left for others to run.
    """

    def __init__(
        self,
        slots: Slots,
        pace: Pace,
        enter: Callable[[Slot], None],
        give_back: Callable[[Slot], None],
    ) -> None:
        self._slots = slots
        self._pace = pace
        self._enter = enter
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._entering = False
        self._look: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Something is held from now on."""
        if self._look is None:
            self._look_later()

    @property
    def looks(self) -> bool:
        """Whether it is going to look how long what is held takes."""
        return self._look is not None

    def proceed(self) -> None:
        """Start as many as there is room for."""
        if self._entering:
            return
        self._entering = True
        try:
            while (slot := self._slots.next()) is not None:
                self._enter(slot)
        finally:
            self._entering = False
        if self._look is not None and not self._slots.holds_any:
            self._look.cancel()
            self._look = None

    def _look_later(self) -> None:
        self._look = self._loop.call_later(LOOK, self._judge, self._slots.ended)

    def _judge(self, ended: int) -> None:
        self._look = None
        held = self._slots.held
        if not held:
            return
        if len(held) <= LONGER * (self._slots.ended - ended):
            self._look_later()
            return
        self._pace.mistaken()
        for slot in held:
            if self._slots.withdraw(slot):
                self._give_back(slot)

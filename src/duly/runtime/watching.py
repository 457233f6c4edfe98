"""Passing the store's signal that something changed to an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from duly.store.operation import Wake
from duly.store.protocol import Store

NAP = 1.0
EASED = 0.25
"""How long a watch that is eased does not look, in seconds."""

logger = logging.getLogger("duly.worker")


class Watching:
    """A thread that waits for the store's signal. It is only a hint: without it, loops poll."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[], None],
        wake: Wake = Wake.WORKERS,
        rest: float = 0.0,
    ) -> None:
        """`wake` says whose signal it is; after each one the thread rests."""
        self._store = store
        self._loop = loop
        self._changed = changed
        self._wake = wake
        self._rest = rest
        self._closing = threading.Event()
        self._attentive = threading.Event()
        self._attentive.set()
        self.hears = True
        """Whether the signal works here."""
        threading.Thread(target=self._work, name="duly-watch", daemon=True).start()

    def ease(self) -> None:
        """See Watch.ease."""
        self._attentive.clear()

    def attend(self) -> None:
        """See Watch.attend."""
        self._attentive.set()

    def close(self) -> None:
        """End soon; nobody waits for the thread."""
        self._closing.set()
        self._attentive.set()

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                self._watch()
            except Exception as error:
                self.hears = False
                logger.warning("cannot watch for changes: %s; trying again", error)
                self._closing.wait(NAP)

    def _watch(self) -> None:
        change = self._store.watch(self._wake)
        try:
            while not self._closing.is_set():
                self._attentive.wait(EASED)
                changed = change.wait(NAP)
                self.hears = change.hears
                if changed and not self._closing.is_set():
                    try:
                        self._loop.call_soon_threadsafe(self._changed)
                        self._closing.wait(self._rest)
                    except RuntimeError:
                        # The loop is closed: there is nobody left to tell.
                        self._closing.set()
        finally:
            change.close()

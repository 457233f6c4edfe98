"""Passing the store's signal that something changed to an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from duly.store.operation import Wake
from duly.store.protocol import Change, Store

NAP = 1.0
EASED = 0.25
"""How long a watch that is eased does not look, in seconds."""

logger = logging.getLogger("duly.worker")


class Watching:
    """Waits for the store's signal. It is only a hint: without it, loops poll.

    A thread does what blocks: it begins to watch, and begins anew when that has failed. While there
    is a descriptor that tells of signals, the event loop waits for that itself: to be woken by a
    thread would take longer than all else that is done before a claim is sent.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[], None],
        wake: Wake = Wake.WORKERS,
        rest: float = 0.0,
    ) -> None:
        """`wake` says whose signal it is; after each one the watch rests."""
        self._store = store
        self._loop = loop
        self._changed = changed
        self._wake = wake
        self._rest = rest
        self._closing = threading.Event()
        self._attentive = threading.Event()
        self._attentive.set()
        self._on_loop: _OnLoop | None = None
        self.hears = True
        """Whether the signal works here."""
        threading.Thread(target=self._work, name="duly-watch", daemon=True).start()

    def ease(self) -> None:
        """See Watch.ease."""
        self._attentive.clear()
        if self._on_loop is not None:
            self._on_loop.look_within(EASED)

    def attend(self) -> None:
        """See Watch.attend."""
        self._attentive.set()
        if self._on_loop is not None:
            self._on_loop.listen()

    def close(self) -> None:
        """End soon; nobody waits for the thread."""
        self._closing.set()
        self._attentive.set()
        if self._on_loop is not None:
            self._on_loop.end()

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
                if change.descriptor is not None:
                    self._watch_on_loop(change)
                    continue
                self._attentive.wait(EASED)
                changed = change.wait(NAP)
                self.hears = change.hears
                if changed and not self._closing.is_set():
                    self._tell_loop(self._changed)
                    self._closing.wait(self._rest)
        finally:
            change.close()

    def _watch_on_loop(self, change: Change) -> None:
        """Until the event loop cannot any more."""
        on_loop = _OnLoop(self._loop, change, self._attentive, self._changed, self._rest)

        def begin() -> None:
            self._on_loop = on_loop
            if self._closing.is_set():
                on_loop.end()
            else:
                on_loop.begin()

        self.hears = change.hears
        if self._tell_loop(begin):
            error = on_loop.ended()
            self._tell_loop(self._changed)
            if error is not None:
                raise error

    def _tell_loop(self, what: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            # The loop is closed: there is nobody left to tell.
            self._closing.set()
            return False
        return True


class _OnLoop:
    """A change that an event loop watches by its descriptor, and looks at once in a while."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        change: Change,
        attentive: threading.Event,
        changed: Callable[[], None],
        rest: float,
    ) -> None:
        self._loop = loop
        self._change = change
        self._attentive = attentive
        self._changed = changed
        self._rest = rest
        self._listening: int | None = None
        self._look: asyncio.TimerHandle | None = None
        self._rests_until = 0.0
        self._ended = threading.Event()
        self._error: Exception | None = None

    def begin(self) -> None:
        """Something may have happened before anybody listened."""
        self._notice()

    def ended(self) -> Exception | None:
        """Block until the event loop watches no more; answers why, if that is an error."""
        while not self._ended.wait(NAP) and not self._loop.is_closed():
            pass
        return self._error

    def listen(self) -> None:
        """Hear of a signal at once, unless this rests."""
        if self._ended.is_set() or self._listening is not None:
            return
        if self._loop.time() < self._rests_until:
            self.look_within(self._rests_until - self._loop.time())
            return
        self._listening = self._change.descriptor
        if self._listening is None:
            self.end()
        else:
            self._loop.add_reader(self._listening, self._notice)

    def look_within(self, seconds: float) -> None:
        """Do not listen, but look after so many seconds at the latest."""
        self._do_not_listen()
        if self._ended.is_set():
            return
        at = self._loop.time() + seconds
        if self._look is None or self._look.when() > at:
            if self._look is not None:
                self._look.cancel()
            self._look = self._loop.call_at(at, self._look_now)

    def end(self) -> None:
        """Watch no more."""
        self._do_not_listen()
        if self._look is not None:
            self._look.cancel()
        self._ended.set()

    def _do_not_listen(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening = None

    def _look_now(self) -> None:
        self._look = None
        self._notice()

    def _notice(self) -> None:
        # The change may close its descriptor and open another.
        self._do_not_listen()
        try:
            changed = self._change.wait(0.0)
        except Exception as error:
            self._error = error
            self.end()
            return
        if self._change.descriptor is None:
            self.end()
            return
        if changed:
            self._rests_until = self._loop.time() + self._rest
            self._changed()
        if self._attentive.is_set():
            self.listen()
            if self._look is None:
                self._look = self._loop.call_later(NAP, self._look_now)
        else:
            self.look_within(EASED)

"""A store on a clock of the caller's own, for tests and simulation."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duly.clock import Clock
    from duly.store.protocol import Store


class ClockedStore:
    """The store, but every verb that takes `now` gets it from the clock unless it is given."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        place = None if name.startswith("_") else _place_of_now(type(self._store), name)
        if place is None:
            return found

        def on_the_clock(*args: Any, **kwargs: Any) -> Any:
            if len(args) > place:
                if args[place] is None:
                    args = (*args[:place], self._clock.now(), *args[place + 1 :])
            elif kwargs.get("now") is None:
                kwargs["now"] = self._clock.now()
            return found(*args, **kwargs)

        return on_the_clock


@lru_cache(maxsize=256)
def _place_of_now(kind: type, name: str) -> int | None:
    """Which of a verb's arguments, after self, is `now`; None when it takes none."""
    verb = getattr(kind, name, None)
    if not inspect.isfunction(verb):
        return None
    names = list(inspect.signature(verb).parameters)
    return names.index("now") - 1 if "now" in names else None

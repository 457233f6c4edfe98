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
        if name.startswith("_") or not callable(found) or not _takes_now(type(self._store), name):
            return found

        def on_the_clock(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(found).bind(*args, **kwargs)
            if bound.arguments.get("now") is None:
                bound.arguments["now"] = self._clock.now()
            return found(*bound.args, **bound.kwargs)

        return on_the_clock


@lru_cache(maxsize=256)
def _takes_now(kind: type, name: str) -> bool:
    return "now" in inspect.signature(getattr(kind, name)).parameters

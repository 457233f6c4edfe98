"""How often an operation is tried, and how it is started then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from psycopg.errors import UniqueViolation

from duly.errors import StoreError, StoreUnavailable
from duly.store.operation import Operation, Steps
from duly.store.postgres.connection import TRANSIENT

T = TypeVar("T")

MOST = 5
PAUSES = (0.05, 0.2, 0.5, 1.0)


class Tries(Generic[T]):
    """Those of one operation. What the server rolled back is tried again; what broke off with its
    commit unknown is tried again only by an operation that can tell."""

    def __init__(self, operation: Operation[T]) -> None:
        self._operation = operation
        self._failed = 0
        self.start: Callable[[], Steps[T]] = operation.hopefully or operation.start

    def pause_after(self, error: StoreError) -> float:
        """How many seconds to wait before it is started again; if it is not to be, raises the
        error."""
        self._failed += 1
        if isinstance(error, StoreUnavailable):
            self._start_after_loss(error)
            return PAUSES[min(self._failed, len(PAUSES)) - 1]
        operation = self._operation
        if self._failed < MOST:
            if isinstance(error.__cause__, UniqueViolation) and self.start is operation.hopefully:
                self.start = operation.start
                return 0.0
            if isinstance(error.__cause__, TRANSIENT):
                return 0.0
        raise error

    def _start_after_loss(self, error: StoreUnavailable) -> None:
        again = self._operation.again
        # An earlier try may have landed, also where this one did not get as far.
        error.unknown = error.unknown or self.start is again
        if self._failed == MOST or (error.unknown and again is None):
            raise error
        if error.unknown and again is not None:
            self.start = again

"""The verbs about the journal; part of the contract in `protocol`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from duly.model.journal import JournalEntry
from duly.store.operation import Operation


class JournalVerbs(Protocol):
    """What can be asked of the journal, and how it is forgotten.

    Whether there is one is a property of the database, set by `migrate` (on SQLite whenever it is
    opened) of a store that is configured so. Nobody can change a job past it.
    """

    def journal(
        self, limit: int, after: int = 0, job_ids: Sequence[UUID] | None = None
    ) -> Operation[list[JournalEntry]]:
        """Up to `limit` entries in the order of their numbers, above `after` (the cursor); of all
        jobs, or of these. While others write, a lower number may appear after a higher one of
        another job."""
        ...

    def purge_journal(self, before: datetime, limit: int) -> Operation[int]:
        """Forget up to `limit` entries written before that, of jobs that are forgotten; answers
        how many."""
        ...

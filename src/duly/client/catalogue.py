"""The catalogue as those see it who submit by name: read now and then, not for every job."""

from __future__ import annotations

import time
from collections.abc import Sequence

from duly.model.catalogue import CatalogueEntry

FRESH = 1.0


class CachedCatalogue:
    """Entries of the catalogue, trusted for FRESH seconds after they were read."""

    def __init__(self) -> None:
        self._entries: dict[str, CatalogueEntry] = {}
        self._read_at = float("-inf")

    def get(self, name: str) -> CatalogueEntry | None:
        """The entry of this name, if it was read a moment ago."""
        return self._entries.get(name) if self.is_fresh() else None

    def is_fresh(self) -> bool:
        """Whether it was read a moment ago, so that a name it lacks is not published."""
        return time.monotonic() - self._read_at <= FRESH

    def keep(self, entries: Sequence[CatalogueEntry]) -> dict[str, CatalogueEntry]:
        """Remember what was read just now; answers the entries by name."""
        by_name = {entry.name: entry for entry in entries}
        self._entries, self._read_at = by_name, time.monotonic()
        return by_name

    def forget(self) -> None:
        """Read it again next time."""
        self._read_at = float("-inf")

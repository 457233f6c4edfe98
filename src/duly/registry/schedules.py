"""Schedules that an app's code declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duly.errors import ConfigurationError

if TYPE_CHECKING:
    from duly.model.schedule import Definition


class DeclaredSchedules:
    """The schedules that the code of one application declares, by name."""

    def __init__(self, application: str) -> None:
        self.application = application
        self._definitions: dict[str, Definition] = {}

    def add(self, name: str, definition: Definition) -> None:
        """Declare a schedule; a name stands for one definition only."""
        earlier = self._definitions.setdefault(name, definition)
        if earlier != definition:
            raise ConfigurationError(
                f"two schedules are declared as {name!r}, for the tasks {earlier.task!r} and "
                f"{definition.task!r}: give one of them another name, such as "
                f'name="{name}:nightly"'
            )

    def definitions(self) -> dict[str, Definition]:
        """All of them, by name."""
        return dict(self._definitions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

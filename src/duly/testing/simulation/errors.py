"""What can go wrong with a simulation itself."""

from __future__ import annotations

from duly.errors import DulyError


class SimulationError(DulyError):
    """The simulation cannot go on, or was asked for something it cannot do."""

"""Fixtures of Duly for pytest, which loads this by itself where both are installed.

A package of its own: every run of pytest imports it, and nothing of Duly before a test asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from duly.testing import Simulation


@pytest.fixture
def duly_app() -> Any:
    """The app that `sim` simulates. Override it to return yours, or call `sim.use(app)`."""
    return None


@pytest.fixture
def sim(duly_app: Any) -> Iterator[Simulation]:
    """A simulation of the app: its own tasks, in memory and in virtual time."""
    from duly.testing import Simulation

    with Simulation(duly_app) as simulation:
        yield simulation

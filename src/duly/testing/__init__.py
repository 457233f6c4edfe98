"""Tools for proofs and tests. Nothing that runs in production imports them."""

from __future__ import annotations

from duly.testing.checker import Violation, check_history
from duly.testing.history import Effect, Emission, History, Loss, Submission, Told, read_history
from duly.testing.simulation.crashes import CrashReport, CrashRun
from duly.testing.simulation.crashing import SimulatedCrash
from duly.testing.simulation.errors import SimulationError
from duly.testing.simulation.runs import Ran, Run
from duly.testing.simulation.simulation import Simulation

__all__ = [
    "CrashReport",
    "CrashRun",
    "Effect",
    "Emission",
    "History",
    "Loss",
    "Ran",
    "Run",
    "SimulatedCrash",
    "Simulation",
    "SimulationError",
    "Submission",
    "Told",
    "Violation",
    "check_history",
    "read_history",
]

"""Tools for proofs and tests. Nothing that runs in production imports them."""

from __future__ import annotations

from duly.testing.checker import Violation, check_history
from duly.testing.history import Effect, Emission, History, Loss, Submission, Told, read_history

__all__ = [
    "Effect",
    "Emission",
    "History",
    "Loss",
    "Submission",
    "Told",
    "Violation",
    "check_history",
    "read_history",
]

"""What is measured: a figure of Duly beside the same figure of the bare engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """In which direction a figure improves."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should come to: the ratio to the limit, or without one the figure itself."""

    bound: float
    of_ratio: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """Where a figure lies in a plot."""

    plot: str
    across: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement on one engine. `limit` is None where the engine alone has no such thing."""

    scenario: str
    name: str
    engine: str
    unit: str
    better: Better
    duly: float
    limit: float | None = None
    target: Target | None = None
    point: Point | None = None

    @property
    def ratio(self) -> float | None:
        """Duly's figure by the limit's."""
        return self.duly / self.limit if self.limit else None

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without one, or without the ratio it is about."""
        if self.target is None:
            return None
        value = self.ratio if self.target.of_ratio else self.duly
        if value is None:
            return None
        if self.better is Better.HIGHER:
            return value >= self.target.bound
        return value <= self.target.bound


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]

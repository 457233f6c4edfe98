"""What a job may cost: figures that were measured once, with a margin."""

from __future__ import annotations

from collections.abc import Mapping

Cost = Mapping[str, float]
"""Per job, by unit: statements, pages, ..."""

MARGIN = 1.1
"""One tenth more than was measured: below what one more index, or one more statement, costs."""


def exceeded(measured: Cost, bound: Cost, margin: float = MARGIN) -> dict[str, str]:
    """The units in which a job costs more than it may, each with how much."""
    return {
        unit: f"{value:.4g} a job, at most {bound[unit]:.4g} x {margin:g}"
        for unit, value in measured.items()
        if value > bound[unit] * margin
    }

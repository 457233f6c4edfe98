"""Line plots as SVG: a few series over the same places, written without a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bench.figures import Figure

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 190, 52, 56
COLOURS = {"sqlite": "#0f766e", "postgresql": "#1d4ed8"}
TITLES = {
    "batch": ("Throughput against batch", "jobs a worker process runs at a time"),
    "backlog": ("Throughput against backlog", "other jobs pending"),
}
TICKS = 5
LABEL_HEIGHT = 15
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2937}"
    ".title{font-size:17px;font-weight:600}.quiet{fill:#6b7280}"
    ".grid{stroke:#e5e7eb}.line{fill:none;stroke-width:2.25}"
)


@dataclass(frozen=True, slots=True)
class Series:
    """A line: one value for each place, None where nothing was measured."""

    name: str
    colour: str
    dashed: bool
    values: Sequence[float | None]


def write_plots(figures: Sequence[Figure], beside: Path) -> list[Path]:
    """Write a plot for each kind of point among the figures; answers the files."""
    written = []
    for plot in TITLES:
        chosen = [each for each in figures if each.point is not None and each.point.plot == plot]
        if chosen:
            path = beside.with_name(f"{beside.stem}-{plot}.svg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(draw(plot, chosen), encoding="utf-8")
            written.append(path)
    return written


def draw(plot: str, figures: Sequence[Figure]) -> str:
    """The plot of these figures, Duly's lines drawn through and the limits' dashed."""
    places = sorted({figure.point.across for figure in figures if figure.point is not None})
    series = _series(figures, places)
    top = _round_up(max(value for each in series for value in each.values if value is not None))
    title, axis = TITLES[plot]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>',
        f'<text class="quiet" x="{WIDTH - RIGHT}" y="28" text-anchor="end">jobs a second</text>',
        *_axes(places, axis, top),
    ]
    for each in series:
        parts.append(_line(each, len(places), top))
    parts += _labels(series, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _series(figures: Sequence[Figure], places: list[float]) -> list[Series]:
    series = []
    for engine in dict.fromkeys(figure.engine for figure in figures):
        at = {
            figure.point.across: figure
            for figure in figures
            if figure.engine == engine and figure.point is not None
        }
        found = [at.get(place) for place in places]
        colour = COLOURS.get(engine, "#6b7280")
        limits = [figure.limit if figure else None for figure in found]
        series += [
            Series(
                f"Duly, {engine}", colour, False, [each.duly if each else None for each in found]
            ),
            Series(f"limit, {engine}", colour, True, limits),
        ]
    return series


def _axes(places: list[float], axis: str, top: float) -> list[str]:
    parts = []
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _y(value, top)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text class="quiet" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">'
            f"{value:,.0f}</text>"
        )
    for number, place in enumerate(places):
        parts.append(
            f'<text x="{_x(number, len(places)):.1f}" y="{HEIGHT - BOTTOM + 22}"'
            f' text-anchor="middle">{place:,.0f}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="quiet" x="{middle:.1f}" y="{HEIGHT - 12}" text-anchor="middle">'
        f"{escape(axis)}</text>"
    )
    return parts


def _line(series: Series, places: int, top: float) -> str:
    points = [
        (_x(number, places), _y(value, top))
        for number, value in enumerate(series.values)
        if value is not None
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if series.dashed else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points)
    return (
        f'<polyline class="line" stroke="{series.colour}"{dashes} points="{path}"/>'
        f'<g fill="{series.colour}">{dots}</g>'
    )


def _labels(series: list[Series], top: float) -> list[str]:
    """The name of each line at its end, moved apart where two would overlap."""
    ends = []
    for each in series:
        measured = [value for value in each.values if value is not None]
        if measured:
            ends.append((_y(measured[-1], top), each))
    ends.sort(key=lambda end: end[0])
    parts = []
    lowest = -math.inf
    for y, each in ends:
        lowest = max(y, lowest + LABEL_HEIGHT)
        parts.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{lowest + 4:.1f}" style="fill:{each.colour}">'
            f"{escape(each.name)}</text>"
        )
    return parts


def _x(number: int, places: int) -> float:
    inset = 24
    width = WIDTH - LEFT - RIGHT - 2 * inset
    return LEFT + inset + (width * number / (places - 1) if places > 1 else width / 2)


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _round_up(value: float) -> float:
    """The next value above that divides into ticks well."""
    unit = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return float(next(step * unit for step in (1, 2, 2.5, 5, 10) if step * unit >= value))

"""Figures as a table for people, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.figures import Better, Figure
from bench.peers import table as peer_table
from bench.peers.measuring import PeerResult

WIDTH = 160
SIGNS = {Better.HIGHER: "≥", Better.LOWER: "≤"}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run was, and what came of it."""

    size: str
    begun: datetime
    seconds: float
    machine: Mapping[str, str]
    engines: Mapping[str, Mapping[str, str]]
    figures: Sequence[Figure]
    failures: Sequence[str]
    peers: Sequence[PeerResult] = ()


def show(run: Run) -> None:
    """Print the table: a row a figure, the engines side by side."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    table = Table(title=f"Duly beside the bare engine, size {run.size}", title_justify="left")
    for heading in ("scenario", "figure", "unit", "target"):
        table.add_column(heading, no_wrap=True)
    for engine in run.engines:
        for heading in (f"{engine}\nDuly", "\nlimit", "\nratio"):
            table.add_column(heading, justify="right", no_wrap=True)
    rows: dict[tuple[str, str, str], dict[str, Figure]] = {}
    for figure in run.figures:
        rows.setdefault((figure.scenario, figure.name, figure.unit), {})[figure.engine] = figure
    last = ""
    for (scenario, name, unit), by_engine in rows.items():
        if last and scenario != last:
            table.add_section()
        cells = [cell for engine in run.engines for cell in _cells(by_engine.get(engine))]
        target = _target(next(iter(by_engine.values())))
        table.add_row("" if scenario == last else scenario, name, unit, target, *cells)
        last = scenario
    console.print(table)
    console.print(_footer(run), style="dim")
    if run.peers:
        peer_table.show(run.figures, run.peers, console)
    for failure in run.failures:
        console.print(Text(f"failed: {failure}", style="red"))


def write(run: Run, path: Path) -> None:
    """Write the run as JSON."""
    content = asdict(run) | {
        "begun": run.begun.astimezone(UTC).isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 1),
        "figures": [
            asdict(figure) | {"ratio": figure.ratio, "reached": figure.reached}
            for figure in run.figures
        ],
        "peers": peer_table.values(run.figures, run.peers),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _cells(figure: Figure | None) -> list[Text]:
    if figure is None:
        return [Text("")] * 3
    duly = Text(_number(figure.duly))
    ratio = Text("" if figure.ratio is None else f"{figure.ratio:.2f}")
    limit = Text("" if figure.limit is None else _number(figure.limit))
    if figure.target is not None and figure.reached is not None:
        judged = ratio if figure.target.of_ratio else duly
        judged.append(" ✓" if figure.reached else " ✗")
        judged.stylize("green" if figure.reached else "red")
    return [duly, limit, ratio]


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    what = "ratio " if figure.target.of_ratio else ""
    return f"{what}{SIGNS[figure.better]} {figure.target.bound:g}"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _footer(run: Run) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    engines = "\n".join(
        f"{name}: " + ", ".join(f"{key} {value}" for key, value in described.items())
        for name, described in run.engines.items()
    )
    return (
        f"{machine}\n{engines}\nIn {run.seconds:.0f} s. The ratio is Duly by the limit: for jobs a "
        "second more is better, for everything else less. ✓ and ✗ judge against the target."
    )

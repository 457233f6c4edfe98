"""Duly beside its peers, as a table for people and as values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.draining import CORES
from bench.figures import Figure
from bench.peers.catalogue import Service
from bench.peers.measuring import PeerResult


@dataclass(frozen=True, slots=True)
class Column:
    """A figure that Duly and its peers have in common."""

    heading: str
    of_peer: str
    scenario: str
    name: str
    more_is_better: bool


COLUMNS = (
    Column("drain\njobs/s", "drain", "drain", f"async tasks, {CORES} processes", True),
    Column("bulk\njobs/s", "bulk", "bulk", "enqueue_many", True),
    Column("latency p50\nms", "latency_p50", "latency", "submit to start, idle, p50", False),
    Column("latency p99\nms", "latency_p99", "latency", "submit to start, idle, p99", False),
)


def show(figures: Sequence[Figure], peers: Sequence[PeerResult], console: Console) -> None:
    """Print a row for each system. Beside a peer's figure: how many times better Duly's is, on
    SQLite for a peer on SQLite, else on PostgreSQL."""
    table = Table(title="Duly beside its peers, in the same run", title_justify="left")
    for heading in ("system", "jobs are in"):
        table.add_column(heading, no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.heading, justify="right", no_wrap=True)
        table.add_column("Duly is\ntimes better", justify="right", no_wrap=True)
    for engine in dict.fromkeys(figure.engine for figure in figures):
        cells = [
            cell for column in COLUMNS for cell in (_number(_duly(figures, engine, column)), "")
        ]
        table.add_row(Text("Duly", style="bold"), engine, *cells)
    for peer in peers:
        if peer.left_out is None:
            table.add_row(peer.name, peer.service, *_cells(figures, peer))
    console.print(table)
    for peer in peers:
        text = peer.settings if peer.left_out is None else f"left out: {peer.left_out}"
        console.print(Text(f"{peer.name} ({', '.join(peer.requirements)}): {text}", style="dim"))


def values(figures: Sequence[Figure], peers: Sequence[PeerResult]) -> list[Mapping[str, Any]]:
    """The peers' results with how many times better Duly's are."""
    return [
        asdict(peer)
        | {"duly_times_better": {c.of_peer: _times_better(figures, peer, c) for c in COLUMNS}}
        for peer in peers
    ]


def _cells(figures: Sequence[Figure], peer: PeerResult) -> list[str]:
    cells = []
    for column in COLUMNS:
        better = _times_better(figures, peer, column)
        cells += [
            _number(getattr(peer, column.of_peer)),
            "" if better is None else f"{better:.2f}",
        ]
    return cells


def _times_better(figures: Sequence[Figure], peer: PeerResult, column: Column) -> float | None:
    engine = "sqlite" if peer.service == Service.SQLITE else "postgresql"
    theirs = getattr(peer, column.of_peer)
    # What was measured in turns with this peer, where it was.
    duly = getattr(peer, f"duly_{column.of_peer}", None) or _duly(figures, engine, column)
    if not duly or not theirs:
        return None
    return float(duly / theirs if column.more_is_better else theirs / duly)


def _duly(figures: Sequence[Figure], engine: str, column: Column) -> float | None:
    for figure in figures:
        if (figure.scenario, figure.engine) == (column.scenario, engine) and figure.name.startswith(
            column.name
        ):
            return figure.duly
    return None


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

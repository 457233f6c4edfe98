"""`python -m bench.summary FILE`: what a run came to, as Markdown to quote: every figure that has a
target, and the peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SIGNS = {"higher": "≥", "lower": "≤"}
PEER_FIGURES = {
    "drain": "drain",
    "bulk": "bulk submission",
    "latency_p50": "latency p50",
    "latency_p99": "latency p99",
}


def summary(run: Mapping[str, Any]) -> str:
    """The lines of two tables, the second only where peers were measured."""
    machine = ", ".join(str(value) for value in run["machine"].values())
    lines = [f"Measured on {machine}; size {run['size']}, begun {run['begun']}.", ""]
    lines += _targets(run)
    measured = [peer for peer in run.get("peers", ()) if peer["left_out"] is None]
    if measured:
        lines += ["", *_peers(measured)]
    return "\n".join(lines) + "\n"


def _targets(run: Mapping[str, Any]) -> Iterator[str]:
    engines = list(run["engines"])
    yield f"| figure | target | {' | '.join(engines)} |"
    yield "| --- | --- |" + " --- |" * len(engines)
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for figure in run["figures"]:
        if figure["target"] is None or figure["reached"] is None:
            continue
        of_ratio = figure["target"]["of_ratio"]
        what = "ratio " if of_ratio else ""
        target = f"{what}{SIGNS[figure['better']]} {figure['target']['bound']:g}"
        key = (figure["scenario"], figure["name"], target)
        value = figure["ratio"] if of_ratio else figure["duly"]
        unit = "" if of_ratio or figure["unit"] == "times" else f" {figure['unit']}"
        mark = "✓" if figure["reached"] else "✗"
        rows.setdefault(key, {})[figure["engine"]] = f"{value:.3g}{unit} {mark}"
    for (scenario, name, target), cells in rows.items():
        values = " | ".join(cells.get(engine, "") for engine in engines)
        yield f"| {scenario}: {name} | {target} | {values} |"


def _peers(peers: list[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| Duly is times better than | {' | '.join(PEER_FIGURES.values())} |"
    yield "| --- |" + " --- |" * len(PEER_FIGURES)
    for peer in peers:
        better = peer["duly_times_better"]
        cells = ("" if better[name] is None else _times(better[name]) for name in PEER_FIGURES)
        yield f"| {peer['name']} ({peer['service']}) | {' | '.join(cells)} |"


def _times(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


if __name__ == "__main__":
    print(summary(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")

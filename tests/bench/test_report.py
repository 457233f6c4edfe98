"""Figures, their ratios and targets, and what is made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.figures import Better, Figure, Point, Target, percentile
from bench.peers.measuring import PeerResult
from bench.plot import write_plots
from bench.report import Run, show, write
from bench.summary import summary

ROOT = Path(__file__).parents[2]


def rate(duly: float, limit: float | None = 1000.0, **more: object) -> Figure:
    return Figure("drain", "jobs", "sqlite", "jobs/s", Better.HIGHER, duly, limit, **more)  # type: ignore[arg-type]


def run_of(*figures: Figure) -> Run:
    return Run(
        size="tiny",
        begun=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=1.0,
        machine={"cores": "2"},
        engines={"sqlite": {"version": "3"}, "postgresql": {"version": "15"}},
        figures=figures,
        failures=["drain on postgresql: no"],
    )


def test_the_ratio_is_by_the_limit() -> None:
    assert rate(500).ratio == 0.5
    assert rate(500, None).ratio is None


@pytest.mark.parametrize(
    ("figure", "reached"),
    [
        (rate(500), None),
        (rate(500, target=Target(0.5)), True),
        (rate(499, target=Target(0.5)), False),
        (rate(499, None, target=Target(0.5)), None),
        (Figure("a", "b", "c", "ms", Better.LOWER, 3.0, 1.0, Target(3.0)), True),
        (Figure("a", "b", "c", "ms", Better.LOWER, 3.1, 1.0, Target(3.0)), False),
        (Figure("a", "b", "c", "MB", Better.LOWER, 70.0, 1.0, Target(70, of_ratio=False)), True),
    ],
)
def test_targets(figure: Figure, reached: bool | None) -> None:
    assert figure.reached is reached


def test_percentiles_are_measured_values() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99)) == (50.0, 99.0)
    assert percentile([7.0], 99) == 7.0


def test_the_table_names_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    show(run_of(rate(400, target=Target(0.5))))
    printed = capsys.readouterr().out
    assert "drain" in printed
    assert "0.40 ✗" in printed
    assert "failed: drain on postgresql: no" in printed


def test_the_file_holds_every_figure_with_its_ratio(tmp_path: Path) -> None:
    write(run_of(rate(400)), tmp_path / "results" / "a.json")
    content = json.loads((tmp_path / "results" / "a.json").read_text())
    (figure,) = content["figures"]
    assert (figure["duly"], figure["limit"], figure["ratio"]) == (400, 1000, 0.4)
    assert content["begun"] == "2026-01-01T00:00:00+00:00"


def test_plots_are_drawings_with_a_line_for_each_series(tmp_path: Path) -> None:
    figures = [rate(100.0 * batch, point=Point("batch", batch)) for batch in (1, 10, 200)]
    (path,) = write_plots(figures, tmp_path / "a.json")
    assert path.name == "a-batch.svg"
    drawing = ElementTree.parse(path).getroot()
    lines = drawing.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len((line.get("points") or "").split()) for line in lines] == [3, 3]


def test_an_unknown_scenario_is_refused_with_those_there_are() -> None:
    answer = CliRunner().invoke(main, ["--only", "drian"])
    assert answer.exit_code == 2
    assert "no scenario 'drian'; there are submit, bulk, drain" in answer.output


def test_the_summary_quotes_what_has_a_target_and_the_peers(tmp_path: Path) -> None:
    peer = PeerResult("Fast", "sqlite", "as it comes", ("fast==1",), bulk=10.0)
    run = replace(run_of(rate(400, target=Target(0.5)), rate(7)), peers=[peer])
    write(run, tmp_path / "a.json")
    quoted = summary(json.loads((tmp_path / "a.json").read_text()))
    assert "| drain: jobs | ratio ≥ 0.5 | 0.4 ✗ |  |" in quoted
    assert quoted.count("drain: jobs") == 1
    assert "| Fast (sqlite) |  |  |  |  |" in quoted


def test_the_docs_quote_the_reference_run() -> None:
    run = json.loads((ROOT / "bench/results/reference.json").read_text(encoding="utf-8"))
    docs = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    rows = [line for line in summary(run).splitlines() if line.startswith("|")]
    assert len(rows) > 30
    assert [row for row in rows if row not in docs] == []

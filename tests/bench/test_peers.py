"""What surrounds the measurement of peers. The peers themselves need packages from the network."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from bench.figures import Better, Figure
from bench.peers import environments, table
from bench.peers.catalogue import CORES, PEERS
from bench.peers.measuring import PROGRAMS, WARMING, PeerResult, _of_turns

FIGURES = [
    Figure("drain", f"async tasks, {CORES} processes", engine, "jobs/s", Better.HIGHER, rate)
    for engine, rate in (("sqlite", 3000.0), ("postgresql", 8000.0))
] + [
    Figure("latency", "submit to start, idle, p50", "postgresql", "ms", Better.LOWER, 2.0),
]
FAST = PeerResult("Fast", "postgresql", "as it comes", ("fast==1",), drain=4000.0, latency_p50=3.0)
SMALL = PeerResult("Small", "sqlite", "as it comes", ("small==1",), drain=1000.0)
ABSENT = PeerResult("Absent", "redis", "", ("absent==1",), left_out="there is no redis-server")


def test_every_peer_has_a_program_and_pinned_versions() -> None:
    for peer in PEERS:
        assert (PROGRAMS / f"{peer.program}.py").is_file()
        assert all("==" in requirement for requirement in peer.requirements)
        assert peer.workers()


def test_duly_is_compared_on_the_engine_that_the_peer_has() -> None:
    fast, small, absent = table.values(FIGURES, [FAST, SMALL, ABSENT])
    assert fast["duly_times_better"]["drain"] == 2.0
    assert fast["duly_times_better"]["latency_p50"] == 1.5
    assert small["duly_times_better"]["drain"] == 3.0
    assert set(absent["duly_times_better"].values()) == {None}


def test_what_was_measured_in_turns_with_a_peer_is_compared_with_it() -> None:
    beside = replace(FAST, duly_latency_p50=1.0)
    (fast,) = table.values(FIGURES, [beside])
    assert fast["duly_times_better"]["latency_p50"] == 3.0


def test_the_first_jobs_of_each_turn_do_not_count() -> None:
    stamps = [(place * 10, place * 10 + 1000 * place) for place in range(2 * (WARMING + 2))]
    assert _of_turns(stamps, WARMING + 2) == [
        WARMING,
        WARMING + 1,
        2 * WARMING + 2,
        2 * WARMING + 3,
    ]


def test_a_peer_that_is_left_out_is_named_with_the_reason() -> None:
    output = StringIO()
    table.show(FIGURES, [FAST, ABSENT], Console(file=output, width=200))
    assert "Fast" in output.getvalue()
    assert "Absent (absent==1): left out: there is no redis-server" in output.getvalue()


def test_an_environment_that_cannot_be_made_says_why() -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no such package')"]
    with pytest.raises(environments.Unavailable, match="cannot be made: no such package"):
        environments._run(failing)

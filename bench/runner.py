"""Running scenarios on engines, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import machine
from bench.engines.postgres import SETTINGS, PostgresEngine
from bench.engines.protocol import Engine
from bench.engines.sqlite import SqliteEngine
from bench.figures import Figure
from bench.peers.catalogue import PEERS, Service
from bench.peers.measuring import PeerResult
from bench.peers.measuring import measure as measure_peer
from bench.report import Run
from bench.scenarios import SCENARIOS
from bench.sizes import Size
from tests.support.postgres import own_server

ENGINES = ("sqlite", "postgresql")


@contextmanager
def _folder(place: Path) -> Iterator[Path]:
    with TemporaryDirectory(prefix="duly-bench-", dir=place) as name:
        yield Path(name)


@contextmanager
def engines(names: Sequence[str], place: Path) -> Iterator[list[Engine]]:
    """The engines of these names, with a server of our own; all files are removed afterwards."""
    with ExitStack() as stack:
        directory = stack.enter_context(_folder(place))
        made: list[Engine] = []
        if "sqlite" in names:
            made.append(SqliteEngine(directory))
        if "postgresql" in names:
            server = stack.enter_context(own_server(SETTINGS, place))
            made.append(PostgresEngine(server.url, directory))
        yield made


def run(
    scenarios: Sequence[str],
    names: Sequence[str],
    size: Size,
    place: Path,
    tell: Callable[[str], None],
    with_peers: bool = False,
) -> Run:
    """Measure everything. What fails is noted, and the rest goes on."""
    begun, started = datetime.now(UTC), time.monotonic()
    figures: list[Figure] = []
    failures: list[str] = []
    with engines(names, place) as made:
        described = {engine.name: engine.description() for engine in made}
        for scenario in scenarios:
            for engine in made:
                tell(f"{time.monotonic() - started:5.0f} s  {scenario} on {engine.name}")
                try:
                    figures += SCENARIOS[scenario](engine, size)
                except Exception as problem:
                    # Told at the end: the minutes that the others took are not lost for it.
                    kind = type(problem).__name__
                    failures.append(f"{scenario} on {engine.name}: {kind}: {problem}")
    peers: list[PeerResult] = []
    if with_peers:
        with own_server(SETTINGS, place) as server, _folder(place) as directory:
            sqlite, postgres = SqliteEngine(directory), PostgresEngine(server.url, directory)
            for peer in PEERS:
                tell(f"{time.monotonic() - started:5.0f} s  {peer.name}")
                beside = sqlite if peer.service is Service.SQLITE else postgres
                peers.append(measure_peer(peer, size, directory, server.url, beside))
    return Run(
        size=size.name,
        begun=begun,
        seconds=time.monotonic() - started,
        machine=machine.describe(place),
        engines=described,
        figures=figures,
        failures=failures,
        peers=peers,
    )

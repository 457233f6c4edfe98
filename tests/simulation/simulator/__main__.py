"""Many seeds at once: `make simulate SEEDS=0-9999`, or SEEDS=17 for one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.simulator.world import Outcome, run_all

NEWS_EVERY = 30.0
PORTION = 25


def seeds_of(text: str) -> range:
    """Those from first to last for "2000-2999", else the one."""
    first, dash, last = text.partition("-")
    try:
        seeds = range(int(first), int(last if dash else first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise SystemExit(f"SEEDS={text}: expected one seed such as 17, or a range such as 0-9999")
    return seeds


def outcomes(seeds: range) -> Iterator[Outcome]:
    """The outcomes in any order, from as many processes as there are processors."""
    portions = [seeds[start : start + PORTION] for start in range(0, len(seeds), PORTION)]
    if len(portions) == 1:
        yield from run_all(seeds)
        return
    processes = min(os.cpu_count() or 1, len(portions))
    spawn, deaf = multiprocessing.get_context("spawn"), (signal.SIGINT, signal.SIG_IGN)
    with spawn.Pool(processes, signal.signal, deaf, maxtasksperchild=40) as pool:
        for portion in pool.imap_unordered(run_all, portions):
            yield from portion


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


class Tally:
    """What the runs came to so far."""

    def __init__(self, seeds: range) -> None:
        self._seeds = seeds
        self._done = 0
        self._jobs: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._started = self._told = time.monotonic()
        self.red: list[int] = []

    def add(self, outcome: Outcome) -> None:
        """Count a run, and tell of it if it failed; now and then of all."""
        self._done += 1
        self._jobs += outcome.jobs
        self._faults += outcome.faults
        if outcome.violations:
            self.red.append(outcome.seed)
            print(f"seed {outcome.seed}, digest {outcome.digest}:", *outcome.violations, sep="\n  ")
            print(f"again: make simulate SEEDS={outcome.seed}", flush=True)
        if time.monotonic() - self._told > NEWS_EVERY:
            self._told = time.monotonic()
            print(f"{self._pace()}, {len(self.red)} red", flush=True)

    def tell(self) -> None:
        """Everything, at the end."""
        print(self._pace())
        print(f"{self._jobs.total()} jobs: {_listed(self._jobs)}")
        print(f"{self._faults.total()} faults: {_listed(self._faults)}")
        print(f"red seeds: {sorted(self.red) or 'none'}")

    def _pace(self) -> str:
        seconds = time.monotonic() - self._started
        done = f"{self._done} of {len(self._seeds)} runs in {seconds:.0f} s"
        return f"{done}, {self._done / seconds:.1f} a second"


def main() -> None:
    """Run them, or some until Ctrl-C; exit with 1 if one failed."""
    seeds = seeds_of(sys.argv[1] if len(sys.argv) > 1 else "0-999")
    tally = Tally(seeds)
    try:
        for outcome in outcomes(seeds):
            tally.add(outcome)
    except KeyboardInterrupt:
        print("stopped")
    tally.tell()
    if tally.red:
        print("what is mended is kept: tests/simulation/test_simulator.py, ONCE_RED")
        raise SystemExit(1)


if __name__ == "__main__":
    main()

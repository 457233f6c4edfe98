"""Many seeds at once: `make simulate SEEDS=0-9999`, or SEEDS=17 for one."""

from __future__ import annotations

import multiprocessing
import os
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
        if not dash:
            return range(int(first), int(first) + 1)
        return range(int(first), int(last) + 1)
    except ValueError:
        raise SystemExit(
            f"SEEDS={text}: expected one seed such as 17, or a range such as 0-9999"
        ) from None


def outcomes(seeds: range) -> Iterator[Outcome]:
    """The outcomes in any order, from as many processes as there are processors."""
    portions = [seeds[start : start + PORTION] for start in range(0, len(seeds), PORTION)]
    if len(portions) == 1:
        yield from run_all(seeds)
        return
    processes = min(os.cpu_count() or 1, len(portions))
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=40) as pool:
        for portion in pool.imap_unordered(run_all, portions):
            yield from portion


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def main() -> None:
    """Run them, tell of those that failed, and exit with 1 if there was one."""
    seeds = seeds_of(sys.argv[1] if len(sys.argv) > 1 else "0-999")
    started = told = time.monotonic()
    done = 0
    jobs: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    red: list[int] = []
    for outcome in outcomes(seeds):
        done += 1
        jobs += outcome.jobs
        faults += outcome.faults
        if outcome.violations:
            red.append(outcome.seed)
            print(f"seed {outcome.seed}, digest {outcome.digest}:", *outcome.violations, sep="\n  ")
            print(f"again: make simulate SEEDS={outcome.seed}", flush=True)
        if time.monotonic() - told > NEWS_EVERY:
            told = time.monotonic()
            pace = done / (told - started)
            print(f"{done} of {len(seeds)} runs, {pace:.0f} a second, {len(red)} red", flush=True)
    seconds = time.monotonic() - started
    print(f"{done} runs in {seconds:.0f} s, {done / seconds:.1f} a second")
    print(f"{jobs.total()} jobs: {_listed(jobs)}")
    print(f"{faults.total()} faults: {_listed(faults)}")
    print(f"red seeds: {sorted(red) or 'none'}")
    if red:
        print("what is mended is kept: tests/simulation/test_simulator.py, ONCE_RED")
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Many seeds at once: `make simulate SEEDS=0-9999`, or SEEDS=17 for one."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator

from tests.simulation.simulator.world import Outcome, run

NEWS_EVERY = 30.0


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
    if len(seeds) == 1:
        yield run(seeds[0])
        return
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=500) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=10)


def main() -> None:
    """Run them, tell of those that failed, and exit with 1 if there was one."""
    seeds = seeds_of(sys.argv[1] if len(sys.argv) > 1 else "0-999")
    started = told = time.monotonic()
    jobs = crashes = pauses = done = 0
    red: list[int] = []
    for outcome in outcomes(seeds):
        done += 1
        jobs += outcome.jobs
        crashes += outcome.crashes
        pauses += outcome.pauses
        if outcome.violations:
            red.append(outcome.seed)
            print(f"seed {outcome.seed}, digest {outcome.digest}:", *outcome.violations, sep="\n  ")
        if time.monotonic() - told > NEWS_EVERY:
            told = time.monotonic()
            print(f"{done} of {len(seeds)} runs, {len(red)} red", flush=True)
    seconds = time.monotonic() - started
    print(
        f"{done} runs in {seconds:.0f} s ({done / seconds:.1f} a second): {jobs} jobs, "
        f"{crashes} crashes, {pauses} pauses; red seeds: {sorted(red) or 'none'}"
    )
    if red:
        print(f"again: make simulate SEEDS={min(red)}; to keep: tests/simulation/test_simulator.py")
        raise SystemExit(1)


if __name__ == "__main__":
    main()

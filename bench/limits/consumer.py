"""A bare worker process: `python -m bench.limits.consumer URL BATCH`, until it is terminated."""

from __future__ import annotations

import signal
import sys
import time

from bench.engines.protocol import Bare

POLL = 0.5


def main() -> None:
    """Claim, finish, and wait for a notification when there is nothing to claim.

    Only the engine's own driver is imported, so that the process is as small as it can be.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    url, batch = sys.argv[1], int(sys.argv[2])
    if url.startswith("sqlite:///"):
        from bench.limits.sqlite import BareSqlite

        _work(BareSqlite(url.removeprefix("sqlite:///")), batch)
    else:
        from bench.limits.postgres import BarePostgres

        _work(BarePostgres(url), batch)


def _work(bare: Bare, batch: int) -> None:
    bare.listen()
    print("ready", flush=True)
    while True:
        jobs = bare.claim(batch)
        if jobs:
            bare.finish(jobs, str(time.time_ns() // 1000))
        else:
            bare.wait(POLL)


if __name__ == "__main__":
    main()

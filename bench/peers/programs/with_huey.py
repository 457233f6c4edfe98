"""Huey on SQLite: fsync on, no results, jobs enqueued one after another."""

from __future__ import annotations

from common import URL, action, one_by_one, stamped, started, timed, wait_until_empty
from huey import SqliteHuey

huey = SqliteHuey(filename=URL, fsync=True, results=False)


@huey.task()
def noop() -> None:
    started()


@huey.task()
def stamp(given: int) -> None:
    stamped(given)


def submit(count: int) -> None:
    for _ in range(count):
        noop()


def main() -> None:
    wanted, count = action()
    match wanted:
        case "submit":
            timed(lambda: submit(count))
        case "wait":
            wait_until_empty(huey.pending_count)
        case "latency":
            one_by_one(count, stamp)


if __name__ == "__main__":
    # Tasks are known by their module, which must be the worker's.
    import with_huey

    with_huey.main()

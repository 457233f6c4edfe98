"""Faults that befall a worker from inside: code that goes before the tasks of its processes.

`disk-full` beside the tasks means that no database may grow, for as long as the file is there. The
clocks on the walls of worker processes are five minutes off, each in its own direction, where the
database has a clock of its own.
"""

from __future__ import annotations

from tests.support.fleet import MARK

FULL = "disk-full"

INSIDE = f'''
import apsw

real_time = time.time


class Disk:
    """Says before each transaction how large the database may become."""

    def __init__(self, connection):
        self.connection = connection
        self.is_full = False
        connection.exec_trace = self

    def __call__(self, cursor, text, bindings):
        is_full = (HERE / {FULL!r}).exists()
        if text.startswith("BEGIN") and is_full != self.is_full:
            self.is_full = is_full
            self.connection.exec_trace = None
            # Never less than there are: it cannot grow.
            pages = 1 if is_full else 4294967294
            list(self.connection.execute(f"PRAGMA max_page_count = {{pages}}"))
            self.connection.exec_trace = self
        return True


def shift_clocks():
    seconds = (-300, 300)[os.getpid() % 2]
    nanoseconds = time.time_ns
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: nanoseconds() + seconds * 10**9


if {MARK!r} in os.environ:
    apsw.connection_hooks.append(Disk)
    if not app.config.url.startswith("sqlite"):
        shift_clocks()
'''

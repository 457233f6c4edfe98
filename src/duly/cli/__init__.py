"""The command line: parse, call a service, render. It holds no rules of its own."""

from __future__ import annotations

import sys

from duly.cli.stopping import LONG_RUNNING, leave_at_once_on_sigterm


def main() -> None:
    """Run the command `duly` with this process's arguments, and exit."""
    if sys.argv[1:2] and sys.argv[1] in LONG_RUNNING:
        leave_at_once_on_sigterm()
    # Imported when it is called: whoever imports the package does not pay for its commands.
    from duly.cli.main import root

    root(prog_name="duly")

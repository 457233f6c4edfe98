"""The command line: parse, call a service, render. It holds no rules of its own."""

from __future__ import annotations


def main() -> None:
    """Run the command `duly` with this process's arguments, and exit."""
    # Imported when it is called: whoever imports the package does not pay for its commands.
    from duly.cli.main import root

    root(prog_name="duly")

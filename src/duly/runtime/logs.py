"""Log lines of worker processes, for people and for programs."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


def configure_logs(level: int) -> None:
    """Send log lines to standard error, unless the application has set up its own."""
    logging.basicConfig(level=level, format=FORMAT)

"""What a run was measured on. Nothing in it names the machine or its files."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import psutil

import duly
from duly.store.sqlite.connection import file_system_of


def describe(directory: Path) -> Mapping[str, str]:
    """The machine and the programs; `directory` holds the databases."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "file system": file_system_of(directory) or "unknown",
        "python": platform.python_version(),
        "duly": duly.__version__,
    }


def disturbance() -> str | None:
    """A warning when others use the machine; None when it is quiet."""
    load = os.getloadavg()[0]
    if load < 0.5:
        return None
    return (
        f"The load average is {load:.1f} before anything was measured: others use this machine, "
        "and the figures mean little."
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"

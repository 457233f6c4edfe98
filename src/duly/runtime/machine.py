"""Who this process is, so that another on the same machine can tell whether it still lives."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from uuid import UUID, uuid4

from duly.model.worker import Worker


def machine_identity() -> str:
    """The kernel's boot and the pid namespace: equal only where process ids mean the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"unknown/{uuid4()}"


def process_started(pid: int) -> int:
    """When the process started, in the kernel's ticks since boot; 0 if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name in parentheses may hold anything; the fields after it are counted.
    return int(text.rpartition(")")[2].split()[19])


def resident_bytes(pid: int) -> int:
    """Memory that the process holds; 0 if there is none."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_dead(worker: Worker, machine: str) -> bool:
    """Whether the worker's process is certainly gone: it ran here, and it does not any more."""
    if worker.machine != machine or worker.process_started == 0:
        return False
    started = process_started(worker.pid)
    if started == 0:
        return not _exists(worker.pid)
    return started != worker.process_started or is_defunct(worker.pid)


def is_defunct(pid: int) -> bool:
    """Whether the process is dead and only its parent has not asked for its exit status yet."""
    return _state(pid) in ("Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped, by SIGSTOP or a debugger, and does not go on."""
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str:
    """The kernel's letter for what the process does; empty if it does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    """Whether there is such a process, also one that /proc hides from this user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def describe(
    worker_id: UUID, pid: int, queues: tuple[str, ...], tasks: tuple[str, ...], version: str
) -> Worker:
    """The record of the worker that runs in process `pid` of this machine."""
    return Worker(
        id=worker_id,
        name=f"{socket.gethostname()}:{pid}",
        machine=machine_identity(),
        pid=pid,
        process_started=process_started(pid),
        queues=queues,
        tasks=tasks,
        version=version,
    )


def cause_of_death(returncode: int) -> str:
    """What an exit status tells, in words."""
    if returncode >= 0:
        return f"the process exited with code {returncode}"
    number = -returncode
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = ", likely out of memory" if name == "SIGKILL" else ""
    return f"the process was killed by {name}{hint}"

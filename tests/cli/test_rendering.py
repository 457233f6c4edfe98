"""Tables and progress on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

from duly.cli import rendering
from duly.cli.rendering import Column, progress, write_fields, write_json, write_table

COLUMNS = [Column("ID"), Column("TASK", flexible=True), Column("TRY", right=True)]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A narrow terminal for stdout and stderr, from now on."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm-256color")
    return made


def test_a_row_fits_on_its_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    write_table(
        COLUMNS, [["x" * 15, "a rather long name", "1/4"], ["y", "日本語日本語日本語", "2"]]
    )
    lines = terminal.getvalue().splitlines()
    assert [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines] == [
        "ID               TASK      TRY",
        "xxxxxxxxxxxxxxx  a rathe…  1/4",
        "y                日本語 …    2",
    ]


def test_a_column_that_wraps_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    columns = [Column("ID"), Column("WHY", flexible=True, wraps=True)]
    write_table(columns, [["x" * 10, "a reason that is long"], ["y", "short"]])
    assert [line.rstrip() for line in _plain(terminal).splitlines()[1:]] == [
        "xxxxxxxxxx  a reason that is",
        "            long",
        "y           short",
    ]


def _plain(terminal: Terminal) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


def test_colours_and_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    write_table([Column("STATUS", statuses=True), Column("TASK")], [["dead", "dead"]])
    assert terminal.getvalue().endswith("\x1b[1;31mdead\x1b[0m    dead\n")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.truncate(0)
    write_table([Column("STATUS", statuses=True), Column("TASK")], [["dead", "dead"]])
    assert "31m" not in terminal.getvalue()


def test_markup_in_values_is_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    write_table([Column("TASK")], [["[bold]x[/bold] :smile: [link=x]y"]])
    write_fields([("Task", "[bold]x[/bold]")])
    assert capsys.readouterr().out.splitlines() == [
        "TASK",
        "[bold]x[/bold] :smile: [link=x]y",
        "Task  [bold]x[/bold]",
    ]


def test_long_fields_are_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    write_fields([("Now", "ready for 3 s, but no worker is running"), ("Arguments", ["x" * 40])])
    lines = terminal.getvalue().splitlines()
    assert lines[0].endswith("ready for 3 s, but")
    assert lines[1].endswith(" " * 11 + "\x1b[0mno worker is")
    assert lines[2].endswith("running")
    assert lines[3].endswith("x" * 40)


def test_json_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    write_json({"name": "日本"})
    stream.flush()
    assert stream.buffer.getvalue() == b'{\n  "name": "\\u65e5\\u672c"\n}\n'


def test_progress_as_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress(4000, "Replaying") as done:
        done(200)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(rendering, "PLAIN_PROGRESS_EVERY", 0)
    with progress(4000, "Replaying") as done:
        done(200)
    assert capsys.readouterr().err == "Replaying: 200 of 4,000\n"


def test_progress_as_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    with progress(4, "Replaying") as done:
        done(4)
    assert "Replaying" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()

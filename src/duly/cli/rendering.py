"""How answers look: tables, fields, JSON and progress.

Data goes to stdout, prose and progress to stderr. Rich is imported where something is drawn, so
that commands which draw nothing start quickly.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
import msgspec

from duly.cli.inert import inert, inert_block, inert_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP = 2
NARROWEST = 6
PLAIN_PROGRESS_EVERY = 2.0

STYLES = {
    "scheduled": "cyan",
    "ready": "bold cyan",
    "retrying": "yellow",
    "blocked": "magenta",
    "running": "bold blue",
    "waiting": "magenta",
    "succeeded": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "paused": "yellow",
    "active": "green",
    "ended": "dim",
    "fired": "green",
    "skipped": "yellow",
    "coalesced": "dim",
    "buffered": "magenta",
    "failed": "red",
    "timed_out": "red",
    "crashed": "red",
    "lost": "red",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    A flexible one gives way on a narrow terminal: it is cut, or if it `wraps` goes on below. One
    of statuses is coloured by them.
    """

    title: str
    flexible: bool = False
    wraps: bool = False
    right: bool = False
    statuses: bool = False


def write_json(value: Any) -> None:
    """Print a value as JSON on stdout. Structs, datetimes and UUIDs are allowed."""
    plain = msgspec.to_builtins(value, str_keys=True)
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    text = json.dumps(plain, indent=2, ensure_ascii=not unicode)
    click.echo(inert_json(text))


def write_line(text: str) -> None:
    """Print one line of data on stdout, inert."""
    click.echo(inert(text))


def tell(text: str) -> None:
    """Say something to the person on stderr, inert."""
    click.echo(inert_block(text), err=True)


def write_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their titles on stdout; nothing at all when there are none.

    On a terminal flexible columns are made narrower so that a row fits; elsewhere a row is a line,
    and nothing is cut.
    """
    from rich.cells import cell_len
    from rich.text import Text

    if not rows:
        return
    screen = _console()
    cells = [[inert(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(column.title), *(cell_len(row[place]) for row in cells))
        for place, column in enumerate(columns)
    ]
    if screen.is_terminal:
        widths = _fitted(columns, widths, screen.width)
    titles = [Text(column.title, style="bold") for column in columns]
    screen.print(_laid_out(titles, columns, widths), soft_wrap=True)
    for row in cells:
        line = [
            Text(cell, style=STYLES.get(cell, "") if column.statuses else "")
            for cell, column in zip(row, columns, strict=True)
        ]
        for part in _wrapped(line, columns, widths, screen):
            screen.print(_laid_out(part, columns, widths), soft_wrap=True)


def write_fields(pairs: Sequence[tuple[str, str | Sequence[str]]]) -> None:
    """Print names and values below each other on stdout; a value is one line or several.

    On a terminal a single line is wrapped between words, and the field Status is coloured.
    """
    from rich.text import Text

    screen = _console()
    indent = max(len(name) for name, _ in pairs) + GAP
    for name, value in pairs:
        lines = [inert(line) for line in ([value] if isinstance(value, str) else value)]
        if isinstance(value, str) and screen.is_terminal:
            lines = wrap(lines[0], max(screen.width - indent, indent), break_long_words=False)
        for number, line in enumerate(lines or [""]):
            label = name if number == 0 else ""
            shown = Text().append(label.ljust(indent), style="bold")
            shown.append(line, style=STYLES.get(line, "") if name == "Status" else "")
            screen.print(shown, soft_wrap=True)


def write_heading(text: str) -> None:
    """Print a heading on stdout, an empty line before it."""
    from rich.text import Text

    _console().print(Text(f"\n{inert(text)}", style="bold"), soft_wrap=True)


def write_block(text: str, indent: int = 2) -> None:
    """Print a text of several lines, indented, on stdout."""
    for line in inert_block(text).rstrip("\n").split("\n"):
        click.echo(f"{' ' * indent}{line}".rstrip())


@contextmanager
def progress(total: int, doing: str) -> Iterator[Callable[[int], None]]:
    """A way to tell how many of `total` are done: a bar on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        with Progress(
            TextColumn(doing), BarColumn(), MofNCompleteColumn(), console=_console(stderr=True)
        ) as bar:
            task = bar.add_task(doing, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    last = time.monotonic()

    def tell_now_and_then(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_PROGRESS_EVERY:
            last = time.monotonic()
            tell(f"{doing}: {done:,} of {total:,}")

    yield tell_now_and_then


@contextmanager
def patience(text: str) -> Iterator[None]:
    """A sign of life on a terminal while something is waited for; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    with _console(stderr=True).status(inert(text)):
        yield


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def _fitted(columns: Sequence[Column], widths: Sequence[int], available: int) -> list[int]:
    """The widths, those of flexible columns made smaller until all fit, the widest first."""
    fitted = list(widths)
    flexible = [place for place, column in enumerate(columns) if column.flexible]
    while sum(fitted) + GAP * (len(fitted) - 1) > available:
        widest = max(flexible, key=lambda place: fitted[place], default=None)
        if widest is None or fitted[widest] <= NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def _wrapped(
    line: Sequence[Text], columns: Sequence[Column], widths: Sequence[int], screen: Console
) -> Iterator[list[Text]]:
    """The lines of a row: one, unless a column wraps."""
    from rich.text import Text

    cells = [
        list(cell.wrap(screen, width)) if column.wraps and cell.cell_len > width else [cell]
        for cell, column, width in zip(line, columns, widths, strict=True)
    ]
    for place in range(max(map(len, cells))):
        yield [parts[place] if place < len(parts) else Text() for parts in cells]


def _laid_out(line: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    from rich.text import Text

    whole = Text()
    for place, (cell, column) in enumerate(zip(line, columns, strict=True)):
        cell.truncate(widths[place], overflow="ellipsis")
        missing = " " * (widths[place] - cell.cell_len)
        if column.right:
            whole.append(missing)
        whole.append_text(cell)
        if place < len(columns) - 1:
            whole.append(("" if column.right else missing) + " " * GAP)
    whole.rstrip()
    return whole

"""The code in the documents is run, so that it says nothing that is not so.

The Python blocks of one document are one program: they run in order, in one namespace, in an
empty directory. An HTML comment right before a block says otherwise:

    <!-- postgres -->                    its DULY_URL leads to a fresh, migrated PostgreSQL database
    <!-- file: tasks.py -->              the block is that file, and is not run here
    <!-- not run: the reason -->         the block is not run
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from duly import App

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "reliability.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
MARKS = re.compile(r"postgres|file: [\w/]+\.py|not run: .{10,}")


@dataclass(frozen=True)
class Block:
    """One fenced block of Python, and the line of its page that it begins on."""

    line: int
    mark: str
    code: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(text[: match.start("code")].count("\n") + 1, match["mark"] or "", match["code"])
        for match in BLOCK.finditer(text)
    ]


def program(page: Path, found: list[Block], with_postgres: bool) -> str:
    """The blocks as one program, each line where it is in the page, so that errors point there."""
    lines: list[str] = []
    for block in found:
        runs = block.mark == "postgres" if with_postgres else not block.mark
        if runs:
            lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"


def run(page: Path, directory: Path, url: str, with_postgres: bool) -> None:
    found = blocks(page)
    for block in found:
        if block.mark.startswith("file: "):
            (directory / block.mark.removeprefix("file: ")).write_text(block.code)
    code = program(page, found, with_postgres)
    (directory / "page.py").write_text(code, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if "DULY" not in name}
    finished = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=directory,
        env=environment | {"DULY_URL": url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, f"{page.name}\n{finished.stdout}\n{finished.stderr}"


def identify(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_examples_run_on_sqlite(page: Path, tmp_path: Path) -> None:
    assert blocks(page), f"{page.name} has no example"
    run(page, tmp_path, "sqlite:///example.db", with_postgres=False)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.mark == "postgres" for block in blocks(page))],
    ids=identify,
)
def test_examples_run_on_postgresql(page: Path, tmp_path: Path, postgres_url: str) -> None:
    app = App(postgres_url)
    app.migrate()
    app.close()
    run(page, tmp_path, postgres_url, with_postgres=True)


def test_the_etl_flow_runs() -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "etl_flow.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
    assert "2026-11-15: no turnover" in finished.stdout
    assert "2026-11-15: 64.00 EUR after running convert 3, load again" in finished.stdout


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_marks_are_known_and_blocks_are_closed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("```") % 2 == 0
    assert len(blocks(page)) == text.count("```python\n")
    for block in blocks(page):
        assert not block.mark or MARKS.fullmatch(block.mark), f"line {block.line}: {block.mark}"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    is_there: Callable[[str], bool] = lambda target: (page.parent / target).exists()  # noqa: E731
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert is_there(target), f"{identify(page)}: {target} does not exist"

"""What `import duly` takes along. The time it takes is measured by `make bench ONLY=start`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import duly

LEFT_OUT = (
    *("apsw", "asyncio", "click", "concurrent.futures", "ctypes", "difflib", "hashlib", "logging"),
    *("psycopg", "random", "rich", "ssl", "tomllib", "zoneinfo"),
    *("duly.client.flow", "duly.policy.recurrence", "duly.runtime.context", "duly.service"),
)
"""What only some programs need, or need later, and what would take longer than all of Duly."""

MODULES = 60
"""At most so many of Duly's own: those that an app with tasks needs to submit a job."""


@pytest.fixture(scope="module")
def imported() -> frozenset[str]:
    """The modules that a new process has after `import duly`."""
    program = "import sys, duly; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return frozenset(ended.stdout.decode().split())


@pytest.mark.parametrize("name", LEFT_OUT)
def test_import_leaves_out(name: str, imported: frozenset[str]) -> None:
    assert "duly.app" in imported
    assert name not in imported


def test_import_takes_few_modules(imported: frozenset[str]) -> None:
    own = {name for name in imported if name.partition(".")[0] == "duly"}
    assert len(own) <= MODULES


def test_what_is_imported_on_first_use_is_what_type_checkers_see() -> None:
    assert duly.__file__ is not None
    tree = ast.parse(Path(duly.__file__).read_text())
    (block,) = (
        each
        for each in tree.body
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.asname or alias.name: f"{each.module}.{alias.name}"
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert seen == duly._ON_FIRST_USE
    assert set(seen) <= set(duly.__all__) <= set(dir(duly))
    for name in duly.__all__:
        assert getattr(duly, name) is not None


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Croon'"):
        duly.Croon  # type: ignore[attr-defined]  # noqa: B018

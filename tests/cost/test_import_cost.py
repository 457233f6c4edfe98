"""What `import duly` takes along. The time it takes is measured by `make bench ONLY=start`."""

from __future__ import annotations

import subprocess
import sys

import pytest

LEFT_OUT = ("asyncio", "ssl", "tomllib", "apsw", "psycopg", "click", "rich")
"""What only some programs need, and what would take longer than all of Duly."""


@pytest.mark.parametrize("name", LEFT_OUT)
def test_import_leaves_out(name: str) -> None:
    program = f"import sys, duly; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""A database with jobs in it, and the commands that are run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from duly.cli.main import root
from duly.model.catalogue import CatalogueEntry
from tests.support.stores import Scene

DULY = (sys.executable, "-m", "duly")
WORK = CatalogueEntry(
    name="work",
    schema={
        "type": "object",
        "properties": {"to": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["to"],
        "additionalProperties": False,
    },
    queue="mail",
    max_attempts=4,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its data."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Its data, line by line."""
        return self.out.splitlines()


def run(*arguments: object, stdin: str | bytes | None = None, **environment: str) -> Answer:
    """Run the command in this process."""
    result = CliRunner().invoke(
        root, [str(each) for each in arguments], input=stdin, env=environment, prog_name="duly"
    )
    return Answer(result.exit_code, result.stdout, result.stderr)


@dataclass(frozen=True, slots=True)
class Place:
    """A database at a URL, and the verbs to fill it."""

    url: str
    scene: Scene

    def duly(self, *arguments: object, stdin: str | bytes | None = None) -> Answer:
        """Run a command on this database."""
        return run(*arguments, stdin=stdin, DULY_URL=self.url)

    def good(self, *arguments: object, stdin: str | bytes | None = None) -> Answer:
        """Run a command that must work."""
        answer = self.duly(*arguments, stdin=stdin)
        assert answer.code == 0, answer.err
        return answer

    def publish(self, entry: CatalogueEntry = WORK) -> None:
        """Put a task into the catalogue."""
        self.scene.store.run(self.scene.store.publish_tasks([entry]))


def environment(**given: str) -> dict[str, str]:
    """The environment of this process, some of it changed."""
    return {**os.environ, **given}


def run_process(
    place: Place, *arguments: object, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*DULY, *(str(each) for each in arguments)],
        env=environment(DULY_URL=place.url),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

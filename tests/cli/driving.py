"""A database with jobs in it, and the commands that are run on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from duly.cli.main import root
from duly.model.catalogue import CatalogueEntry
from tests.support.stores import Scene

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

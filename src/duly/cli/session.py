"""What every command shares: its options, and the app it works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypeVar
from uuid import UUID

import click

from duly.app import App
from duly.cli.failures import debug_option
from duly.cli.loading import load_app
from duly.client.schedules import Schedules
from duly.service.database import Database
from duly.service.dead import DeadJobs
from duly.service.identify import identify
from duly.service.jobs import Jobs
from duly.service.queues import Queues
from duly.store.conversation import Conversation, converse

Function = Callable[..., Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command: the app, and whether the answer is wanted as JSON."""

    app: App
    as_json: bool

    @property
    def jobs(self) -> Jobs:
        """The use cases about jobs."""
        return Jobs(self.app.store)

    @property
    def dead(self) -> DeadJobs:
        """The use cases about dead jobs."""
        return DeadJobs(self.app.store)

    @property
    def queues(self) -> Queues:
        """The use cases about queues."""
        return Queues(self.app.store)

    @property
    def database(self) -> Database:
        """The use cases about the database."""
        return Database(self.app.store)

    @property
    def schedules(self) -> Schedules:
        """The use cases about schedules."""
        return self.app.schedules

    def converse(self, conversation: Conversation[T]) -> T:
        """Hold a conversation with the store."""
        return converse(conversation, self.app.store.run)

    def identify(self, text: str) -> UUID:
        """The job's id, from the id itself or its beginning."""
        return identify(self.app.store, text)


def url_option(function: Function) -> Function:
    """The option --url."""
    return click.option(
        "--url",
        metavar="URL",
        help="Where the jobs are: sqlite:///FILE or postgresql://...; "
        "otherwise DULY_URL, duly.toml, [tool.duly], or sqlite:///duly.db.",
    )(function)


def output_options(function: Function) -> Function:
    """The options --json and --debug."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON with stable keys.")(
        debug_option(function)
    )


def connected(creates: bool = False) -> Callable[[Function], Function]:
    """Give a command the shared options, and a Session as its first argument.

    Unless it `creates`, a database file that does not exist is an error.
    """

    def decorate(function: Function) -> Function:
        @click.option(
            "--app",
            "reference",
            metavar="MODULE:APP",
            help="Take the tasks, and without --url the database, from this app.",
        )
        @url_option
        @output_options
        def command(url: str | None, reference: str | None, as_json: bool, **given: Any) -> Any:
            app = open_app(url, reference)
            click.get_current_context().call_on_close(app.close)
            session = Session(app, as_json)
            if not creates:
                session.database.require()
            return function(session, **given)

        return update_wrapper(command, function)

    return decorate


def open_app(url: str | None, reference: str | None) -> App:
    """The app that the options name; with a URL of its own if one is given."""
    if reference is None:
        return App(url)
    loaded = load_app(reference)
    if url is not None:
        loaded.redirect(url)
    return loaded

"""From errors to one clear message and an exit code."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import click

from duly.cli.inert import inert_block
from duly.errors import (
    ConfigurationError,
    DulyError,
    InvalidInput,
    ResultTimeout,
    UnknownFlow,
    UnknownJob,
    UnknownSchedule,
    UnknownTask,
)
from duly.service.settings import without_password

SUCCESS = 0
FAILURE = 1
WRONG_INPUT = 2
TIMED_OUT = 124
INTERRUPTED = 130

_DEBUG = "duly.cli.debug"
_WRONG = (InvalidInput, ConfigurationError, UnknownFlow, UnknownJob, UnknownSchedule, UnknownTask)


def end_with(exit_code: int) -> NoReturn:
    """End the command here, with nothing more to say."""
    raise click.exceptions.Exit(exit_code)


def exit_code_of(error: BaseException) -> int:
    """The exit code that tells what kind of failure this was."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, ResultTimeout):
        return TIMED_OUT
    return WRONG_INPUT if isinstance(error, _WRONG) else FAILURE


def message_of(error: BaseException) -> str:
    """What went wrong, in words."""
    if isinstance(error, DulyError | OSError):
        text = str(error)
    elif isinstance(error, KeyboardInterrupt):
        text = "interrupted"
    else:
        text = (
            f"unexpected {type(error).__name__}: {error}; this is a fault of Duly or of the "
            "application: --debug shows where it happened"
        )
    return text


def _print(text: str) -> None:
    click.echo(inert_block(without_password(text.rstrip())), err=True)


class GuardedGroup(click.Group):
    """The root of all commands: no error leaves it as a traceback, unless --debug is given."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error is printed on stderr and ends it with its exit code."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            _print(shown.getvalue())
            end_with(error.exit_code)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if ctx.meta.get(_DEBUG, False):
                _print("".join(traceback.format_exception(error)))
            _print(f"Error: {message_of(error)}")
            end_with(exit_code_of(error))


def debug_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option --debug."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_DEBUG] = value or ctx.meta.get(_DEBUG, False)

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=remember,
        help="Show the traceback of an error.",
    )(function)

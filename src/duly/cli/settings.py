"""`duly config`."""

from __future__ import annotations

import json
from typing import Any

import click

from duly import config as configuration
from duly.cli.rendering import Column, write_json, write_table
from duly.cli.session import output_options, url_option
from duly.service.settings import settings


@click.command()
@url_option
@output_options
def config(url: str | None, as_json: bool) -> None:
    """Show each setting and where it came from.

    Flags win over the environment (DULY_*), that over duly.toml, that over [tool.duly] in
    pyproject.toml, that over the defaults. Passwords are not shown.
    """
    found = settings(configuration.load({"url": url}))
    if as_json:
        write_json({each.name: {"value": each.value, "origin": each.origin} for each in found})
        return
    write_table(
        [Column("SETTING"), Column("VALUE", flexible=True), Column("ORIGIN")],
        [[each.name, _shown(each.value), each.origin] for each in found],
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, dict) else str(value)

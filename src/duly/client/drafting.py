"""From a task's defaults, a submission's options and encoded arguments to a draft."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.client.options import Options
from duly.client.prepared import Decode, Prepared
from duly.errors import PayloadTooLarge
from duly.model.catalogue import CatalogueEntry
from duly.model.job import Draft
from duly.registry import schema, strict_json

_NO_ID = UUID(int=0)


def prepared(
    template: Draft, arguments: bytes, payload_limit: int, decode: Decode
) -> Prepared[Any]:
    """A job like the template, with arguments of its own. Nothing is stored yet."""
    if len(arguments) > payload_limit:
        what = f"the arguments of task {template.task!r}"
        raise PayloadTooLarge(what, len(arguments), payload_limit)
    return Prepared(template, arguments.decode(), decode)


def template(entry: CatalogueEntry, options: Options, payload_limit: int) -> Draft:
    """What all jobs of the catalogued task have in common that are submitted with these
    options."""
    if options.metadata is not None:
        strict_json.check_size(options.metadata.encode(), "metadata", payload_limit)
    expires_after = options.expires_after
    if expires_after is None and options.expires_at is None and entry.expires_after is not None:
        expires_after = timedelta(seconds=entry.expires_after)
    return Draft(
        id=_NO_ID,
        task=entry.name,
        arguments="",
        queue=entry.queue if options.queue is None else options.queue,
        priority=entry.priority if options.priority is None else options.priority,
        run_at=options.run_at,
        delay=options.delay,
        key=options.key,
        key_policy=options.key_policy,
        key_window=options.key_window,
        owner=options.owner,
        tenant=options.tenant,
        max_attempts=entry.max_attempts if options.retries is None else options.retries + 1,
        max_crashes=entry.max_crashes,
        delivery=entry.delivery,
        timeout=entry.timeout if options.timeout is None else options.timeout,
        expires_at=options.expires_at,
        expires_after=expires_after,
        tags=entry.tags if options.tags is None else options.tags,
        metadata=options.metadata,
    )


def unknown_task(name: str) -> CatalogueEntry:
    """What is taken for granted about a task that nobody has published: no schema, the usual
    retries."""
    return CatalogueEntry(name=name, schema={}, max_attempts=4)


def encode_by_schema(entry: CatalogueEntry, arguments: Mapping[str, Any]) -> bytes:
    """Arguments by name as JSON bytes that fit the catalogued task's schema, if it has one."""
    encoded = strict_json.encode(dict(arguments))
    if entry.schema:
        schema.validate(msgspec.json.decode(encoded), entry.schema, entry.name)
    return encoded

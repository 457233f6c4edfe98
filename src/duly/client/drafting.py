"""From a task's defaults, a submission's options and encoded arguments to a draft."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from duly.client.options import Options
from duly.errors import PayloadTooLarge
from duly.model.catalogue import CatalogueEntry
from duly.model.identifiers import new_id
from duly.model.job import Draft


def draft(
    entry: CatalogueEntry,
    arguments: bytes,
    options: Options,
    payload_limit: int,
    parent: UUID | None = None,
) -> Draft:
    """A job of the catalogued task. Nothing is stored yet."""
    if len(arguments) > payload_limit:
        raise PayloadTooLarge(
            f"the arguments of task {entry.name!r}", len(arguments), payload_limit
        )
    if options.metadata is not None and len(options.metadata) > payload_limit:
        raise PayloadTooLarge("metadata", len(options.metadata), payload_limit)
    expires_after = options.expires_after
    if expires_after is None and options.expires_at is None and entry.expires_after is not None:
        expires_after = timedelta(seconds=entry.expires_after)
    return Draft(
        id=new_id(),
        task=entry.name,
        arguments=arguments.decode(),
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
        parent_id=parent,
    )

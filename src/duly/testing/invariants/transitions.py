"""What the journal must look like: I3 one completion, I4 fencing, I5 one holder, I9 legal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from duly.model.attempt import Outcome
from duly.model.job import State
from duly.model.journal import JournalEntry
from duly.policy.states import FINAL, is_legal
from duly.testing.evidence import Evidence, Finding

NEW = frozenset({State.PENDING, State.BLOCKED})


def one_completion(evidence: Evidence) -> Iterator[Finding]:
    """I3: at most one final transition in a generation, and a row in one place only."""
    places = Counter(job.id for job in evidence.history.jobs)
    for job_id, count in places.items():
        if count > 1:
            yield Finding("I3", f"is stored {count} times", job_id)
    for job_id, entries in evidence.journal.items():
        ends = Counter(
            entry.generation
            for entry in entries
            if entry.after in FINAL and entry.before is not entry.after
        )
        for generation, count in ends.items():
            if count > 1:
                yield Finding("I3", f"ended {count} times in generation {generation}", job_id)
    for job_id, attempts in evidence.attempts.items():
        wins = Counter(
            attempt.generation for attempt in attempts if attempt.outcome is Outcome.SUCCEEDED
        )
        for generation, count in wins.items():
            if count > 1:
                yield Finding("I3", f"succeeded {count} times in generation {generation}", job_id)


def fencing(evidence: Evidence) -> Iterator[Finding]:
    """I4: a claim raises the token by one, nothing else does; what was accepted had the latest."""
    for job_id, entries in evidence.journal.items():
        for earlier, later in pairwise(entries):
            claimed = later.after is State.RUNNING and earlier.after is not State.RUNNING
            raised = later.token - earlier.token
            if raised != int(claimed) and not (raised == 1 and later.after is State.RUNNING):
                message = f"token {earlier.token} became {later.token} without one claim"
                yield Finding("I4", f"{message}: {earlier.after} -> {later.after}", job_id)
    for job_id, attempts in evidence.attempts.items():
        tokens = Counter(attempt.token for attempt in attempts)
        for token, count in tokens.items():
            if count > 1:
                yield Finding("I4", f"has {count} attempts under token {token}", job_id)
        job = evidence.jobs.get(job_id)
        if job is not None and max(tokens) > job.token:
            yield Finding("I4", f"has an attempt under token {max(tokens)} of the future", job_id)
    yield from _results(evidence)


def _results(evidence: Evidence) -> Iterator[Finding]:
    """The result that is stored is the one of the attempt that held the latest token."""
    for job in evidence.jobs.values():
        if job.state is not State.SUCCEEDED or job.result is None:
            continue
        told = [each for each in evidence.effects.get(job.id, []) if each.result is not None]
        if not told or any(each.token == job.token and each.result == job.result for each in told):
            continue
        for each in told:
            if each.result == job.result:
                message = f"token {each.token} wrote its result, and {job.token} was the latest"
                yield Finding("I4", message, job.id)
                break
        else:
            yield Finding("I4", f"has the result {job.result}, which no run returned", job.id)


def one_holder(evidence: Evidence) -> Iterator[Finding]:
    """I5: nobody claims a job that another holds, and attempts do not overlap."""
    for job_id in evidence.journal:
        for earlier, later in evidence.claims(job_id):
            if earlier.after is State.RUNNING:
                message = f"was claimed by {later.worker} while {earlier.worker} held it"
                yield Finding("I5", message, job_id)
    for job_id, attempts in evidence.attempts.items():
        for first, second in pairwise(attempts):
            if second.started_at < first.ended_at:
                message = f"attempts under tokens {first.token} and {second.token} overlap"
                yield Finding("I5", message, job_id)


def legal(evidence: Evidence) -> Iterator[Finding]:
    """I9: each transition is in the table, and folding the journal gives the current row."""
    for job_id, entries in evidence.journal.items():
        first = entries[0]
        if first.before is None and first.token == 0 and first.after not in NEW:
            yield Finding("I9", f"began as {first.after}", job_id)
        for earlier, later in pairwise(entries):
            yield from _step(earlier, later)
        yield from _fold(evidence, entries[-1])
    if evidence.history.journal:
        for job in evidence.jobs.values():
            if job.id not in evidence.journal:
                yield Finding("I9", "has a row and is not in the journal", job.id)


def _step(earlier: JournalEntry, later: JournalEntry) -> Iterator[Finding]:
    before, after = earlier.after, later.after
    if later.before is not before:
        yield Finding("I9", f"was {before} and is said to have been {later.before}", later.job_id)
    if before is not after and not is_legal(before, after):
        yield Finding("I9", f"went from {before} to {after}", later.job_id)
    if before is after and before in FINAL:
        yield Finding("I9", f"became {after} although it was", later.job_id)
    reopened = before in FINAL and after not in FINAL
    if later.generation != earlier.generation + int(reopened):
        message = f"generation {earlier.generation} became {later.generation}"
        yield Finding("I9", f"{message} from {before} to {after}", later.job_id)


def _fold(evidence: Evidence, last: JournalEntry) -> Iterator[Finding]:
    job = evidence.jobs.get(last.job_id)
    if job is None:
        if last.after not in FINAL:
            yield Finding("I9", f"was {last.after} and has no row any more", last.job_id)
        return
    for name, told in (
        ("state", last.after),
        ("token", last.token),
        ("generation", last.generation),
        ("attempt", last.attempt),
    ):
        stored = getattr(job, name)
        if stored != told:
            message = f"the journal gives {name} {told}, its row has {stored}"
            yield Finding("I9", message, last.job_id)

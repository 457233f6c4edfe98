"""What running jobs say: their progress and their log lines."""

from __future__ import annotations

from datetime import timedelta

from duly.model.identifiers import new_id
from duly.model.job import JobRecord, State
from duly.model.report import LogLine, Progress
from tests.support.stores import Scene


def said(scene: Scene, job: JobRecord, fraction: float, token: int = 1) -> Progress:
    """Progress as the scene's clock has it."""
    return Progress(job.id, token, fraction, f"at {fraction:g}", scene.now)


def logged(scene: Scene, job: JobRecord, message: str) -> LogLine:
    """A log line as the scene's clock has it."""
    return LogLine(job.id, 1, scene.now, "WARNING", "shop", message)


def test_a_silent_job_has_neither(scene: Scene) -> None:
    store, job = scene.store, scene.submit()
    assert store.run(store.progress(job.id)) is None
    assert store.run(store.log_lines(job.id)) == []
    assert store.run(store.progress(new_id())) is None


def test_the_latest_progress_is_kept(scene: Scene) -> None:
    store, job, other = scene.store, scene.submit(), scene.submit()
    store.run(store.report([said(scene, job, 0.2), said(scene, other, 0.5)], []))
    scene.advance(1)
    latest = said(scene, job, 0.1)
    store.run(store.report([latest], []))
    assert store.run(store.progress(job.id)) == latest
    progress = store.run(store.progress(other.id))
    assert progress is not None
    assert progress.fraction == 0.5


def test_of_several_in_one_report_the_last_counts(scene: Scene) -> None:
    store, job = scene.store, scene.submit()
    latest = said(scene, job, 0.4)
    store.run(store.report([said(scene, job, 0.9), latest], []))
    assert store.run(store.progress(job.id)) == latest


def test_an_earlier_claim_does_not_undo_the_word_of_a_later_one(scene: Scene) -> None:
    store, job = scene.store, scene.submit()
    later = said(scene, job, 0.1, token=3)
    store.run(store.report([later], []))
    store.run(store.report([said(scene, job, 0.8, token=2)], []))
    assert store.run(store.progress(job.id)) == later
    store.run(store.report([later, said(scene, job, 0.9, token=1)], []))
    assert store.run(store.progress(job.id)) == later


def test_lines_are_read_in_the_order_they_were_written(scene: Scene) -> None:
    store, job, other = scene.store, scene.submit(), scene.submit()
    lines = [logged(scene, job, f"line {number}\n\x1b[31m'; --") for number in range(3)]
    store.run(store.report([], [lines[0], logged(scene, other, "another's"), lines[1]]))
    store.run(store.report([], lines[2:]))
    assert store.run(store.log_lines(job.id)) == lines


def test_both_go_with_their_job(scene: Scene) -> None:
    store, gone, kept = scene.store, scene.dead(), scene.submit()
    for job in (gone, kept):
        store.run(store.report([said(scene, job, 0.5)], [logged(scene, job, "here")]))
    assert store.run(store.purge(State.DEAD, scene.now + timedelta(days=1), 10)) == 1
    assert store.run(store.progress(gone.id)) is None
    assert store.run(store.log_lines(gone.id)) == []
    assert store.run(store.progress(kept.id)) is not None
    assert len(store.run(store.log_lines(kept.id))) == 1

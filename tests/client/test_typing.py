"""What a type checker says of a user's file: right calls pass, wrong ones are errors in place."""

import re
import subprocess
import sys
from pathlib import Path

USER_FILE = """
from datetime import UTC, datetime, timedelta
from typing import assert_type

import duly
from duly import App, Job, NamedTask, Prepared, Task

app = App("sqlite://")


@app.task
def add(first: int, second: int = 0) -> int:
    return first + second


@app.task(queue="mail", priority=duly.HIGH, retries=5, backoff="10s", timeout=30, tags=["mail"])
async def send(to: str, *, subject: str, at: datetime | None = None) -> str:
    return to + subject


@app.task(name="report.nightly", backoff=duly.exponential(), retry_on=(OSError,))
def report() -> list[float]:
    return []


@app.cron("0 3 * * *")
@app.task(queue="night")
async def nightly() -> int:
    return 1


# Right
task: Task[[int, int], int] = add
assert_type(add(1, 2), int)
assert_type(add.using(delay=5)(1), int)
job = add.enqueue(1, second=2)
assert_type(job, Job[int])
assert_type(job.result(timeout=1), int)
assert_type(report.enqueue().result(), list[float])
sent = send.enqueue("ada", subject="hi")
assert_type(sent, Job[str])
assert_type(sent.result("10s"), str)
assert_type(job.refresh(), Job[int])
prepared = add.job(1)
assert_type(prepared, Prepared[int])
app.enqueue_many([add.job(1), send.job("a", subject="b"), report.using(delay=5).job()])
everything: list[Job[object]] = [job, sent]
add.using(
    delay=timedelta(hours=1),
    priority=duly.URGENT,
    queue="q",
    key="k",
    key_policy="replace",
    key_window="1d",
    retries=3,
    timeout=1.5,
    expires=datetime.now(UTC),
    tags=["a"],
    tenant="t",
    owner="o",
    metadata={"a": 1},
    connection=None,
).enqueue(1)
assert_type(add.using(delay=5).enqueue(1, 2), Job[int])
assert_type(add.using(delay=5).using(priority=3).job(1, 2), Prepared[int])
assert_type(app.named("x"), NamedTask)
assert_type(app.named("x").using(delay=5), NamedTask)
app.list(state="dead", queue="mail", limit=5)


async def use() -> None:
    assert_type(await send("ada", subject="hi"), str)
    assert_type(await nightly(), int)
    assert_type(await add.aenqueue(1), Job[int])
    assert_type(await sent.aresult(), str)
    assert_type(await send.using(run_at=datetime.now(UTC)).aenqueue("a", subject="b"), Job[str])
    await add.aenqueue("1")  # E: arg-type
    await add.using(delay=1).aenqueue(1, 2, 3)  # E: call-arg


# Wrong
add("1")  # E: arg-type
wrong: str = add(1)  # E: assignment
add.enqueue("1")  # E: arg-type
add.enqueue()  # E: call-arg
add.enqueue(1, third=3)  # E: call-arg
add.enqueue(1, second=None)  # E: arg-type
add.enqueue(1, delay=5)  # E: call-arg
add.job(1.5)  # E: arg-type
send.enqueue("ada", "hi")  # E: call-arg
send.enqueue("ada", subject=5)  # E: arg-type
send.using(delay=1).enqueue(subject="x")  # E: call-arg
report.enqueue(1)  # E: call-arg
text: str = add.enqueue(1).result()  # E: assignment
number: int = send.enqueue("a", subject="b").result()  # E: assignment
add.using(dealy=5)  # E: call-arg
add.using(delay=[5])  # E: arg-type
add.using(run_at="tomorrow")  # E: arg-type
add.using(priority="high")  # E: arg-type
app.named("x").using(dealy=5)  # E: call-arg
app.named("x").using(retries="5")  # E: arg-type
app.list(colour="red")  # E: call-arg
app.get(5)  # E: arg-type


@app.task(retires=5)  # E: call-overload untyped-decorator
def misspelt() -> None: ...
"""


def test_a_users_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text(USER_FILE, encoding="utf-8")
    expected = {
        (number, code)
        for number, line in enumerate(USER_FILE.splitlines(), 1)
        for code in line.partition("  # E: ")[2].split()
    }
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    finished = subprocess.run(
        [sys.executable, "-m", "mypy", *options, path.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        (int(match[1]), match[2])
        for match in re.finditer(
            r"^shop\.py:(\d+): error: .* \[([a-z-]+)\]$", finished.stdout, re.MULTILINE
        )
    }
    assert found == expected, finished.stdout + finished.stderr

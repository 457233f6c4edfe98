"""duly db and duly config."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from duly.config import names
from tests.cli.driving import Place, run


def test_status(anyplace: Place) -> None:
    anyplace.scene.submit()
    anyplace.scene.dead(task="other")
    answer = anyplace.good("db", "status", "--json").json
    assert set(answer) == {
        *("url", "engine", "version", "needed", "state", "usable", "advice", "jobs"),
    }
    assert (answer["state"], answer["usable"], answer["advice"]) == ("current", True, None)
    assert answer["version"] == answer["needed"]
    assert (answer["jobs"]["pending"], answer["jobs"]["dead"]) == (1, 1)
    out = anyplace.good("db", "status").out
    assert f"Schema     {answer['version']}, current" in out
    assert "Pending    1" in out


def test_migrate_on_postgresql(postgres_url: str) -> None:
    answer = run("db", "status", "--json", "--url", postgres_url)
    assert answer.code == 1
    assert (answer.json["state"], answer.json["jobs"]) == ("behind", {})
    answer = run("db", "status", "--url", postgres_url)
    assert answer.code == 1
    assert "0, behind: this release has" in answer.out
    assert "duly db migrate" in answer.err
    answer = run("job", "list", "--url", postgres_url)
    assert answer.code == 1
    assert "duly db migrate" in answer.err
    answer = run("db", "migrate", "--url", postgres_url)
    assert answer.code == 0
    assert answer.lines[0].startswith("0001_")
    assert "applied to postgresql://" in answer.err
    answer = run("db", "migrate", "--url", postgres_url, "--json")
    assert answer.json["applied"] == []
    assert run("db", "status", "--url", postgres_url).code == 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO duly.migrations VALUES (9999, '9999_future', 9999)")
    answer = run("db", "status", "--url", postgres_url, "--json")
    assert answer.code == 1
    assert (answer.json["state"], answer.json["version"]) == ("ahead", 9999)
    assert "upgrade duly" in answer.json["advice"]


def test_migrate_on_sqlite(tmp_path: Path) -> None:
    answer = run("db", "migrate")
    assert answer.code == 0
    assert answer.lines[0].startswith("0001_")
    assert (tmp_path / "duly.db").exists()
    assert "is up to date" in run("db", "migrate").err


def test_a_question_makes_no_database(tmp_path: Path) -> None:
    for command in (["db", "status"], ["job", "list"], ["queue", "list"], ["dead", "list"]):
        answer = run(*command)
        assert answer.code == 1
        assert "there is no database at" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_database() -> None:
    url = "postgresql://ada:secret@127.0.0.1:1/shop"
    answer = run("job", "list", "--url", url)
    assert answer.code == 1
    assert "postgresql://ada@127.0.0.1:1/shop cannot be reached" in answer.err
    assert "secret" not in answer.err


def test_config_tells_where_each_value_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duly.toml").write_text('pool_size = 3\nschema = "jobs"\n')
    monkeypatch.setenv("DULY_SCHEMA", "mine")
    url = "postgresql://ada:s3/cr@t@host/shop?sslpassword=other"
    answer = run("config", "--json", "--url", url)
    assert answer.code == 0
    assert set(answer.json) == set(names())
    shown = {name: (each["value"], each["origin"]) for name, each in answer.json.items()}
    assert shown["url"] == ("postgresql://ada:***@host/shop?sslpassword=***", "argument")
    assert shown["schema"] == ("mine", "DULY_SCHEMA")
    assert shown["pool_size"] == (3, "duly.toml")
    assert shown["listen_url"] == (None, "default")
    table = run("config", "--url", url)
    assert table.lines[0].split() == ["SETTING", "VALUE", "ORIGIN"]
    assert "s3/cr" not in table.out


def test_a_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (["config"], ["job", "list"]):
        answer = run(*command, "--url", "mysql://ada:secret@host/x")
        assert answer.code == 2
        assert "must begin with sqlite:// or postgresql://" in answer.err
        assert "secret" not in answer.err
    monkeypatch.setenv("DULY_POOL_SIZE", "many")
    assert "pool_size" in run("config").err

"""Settings: where they come from, which are refused, and that every one is documented."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import duly
from duly import App, ConfigurationError
from duly.config import Config, load, names
from duly.model.journal import Journal

ROOT = Path(__file__).parent.parent
DOCUMENTS = ROOT / "docs"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no settings in the environment."""
    for name in list(os.environ):
        if name.startswith("DULY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Where values come from


def test_without_anything_there_are_the_defaults(directory: Path) -> None:
    config = load()
    assert config == Config()
    assert config.url == "sqlite:///duly.db"
    assert set(config.origins.values()) == {"default"}
    assert list(config.origins) == names()


def test_each_source_wins_over_the_one_below(directory: Path) -> None:
    (directory / "pyproject.toml").write_text(
        '[project]\nname = "shop"\n[tool.duly]\n'
        'url = "sqlite:///1.db"\nschema = "one"\npool_size = 1\nlease = "1s"\ngrace = 1\n'
    )
    (directory / "duly.toml").write_text(
        'url = "sqlite:///2.db"\nschema = "two"\npool_size = 2\nlease = "2s"\n'
    )
    environment = {
        "DULY_URL": "sqlite:///3.db",
        "DULY_SCHEMA": "three",
        "DULY_POOL_SIZE": "3",
        "DULY_GRACE": "",
        "DULY_SOMETHING_ELSE": "x",
    }
    config = load({"url": "sqlite:///4.db", "schema": None}, environment)
    assert (config.url, config.origins["url"]) == ("sqlite:///4.db", "argument")
    assert (config.schema, config.origins["schema"]) == ("three", "DULY_SCHEMA")
    assert (config.pool_size, config.origins["pool_size"]) == (3, "DULY_POOL_SIZE")
    assert (config.lease, config.origins["lease"]) == (2.0, "duly.toml")
    assert (config.grace, config.origins["grace"]) == (1.0, "pyproject.toml")
    assert (config.payload_limit, config.origins["payload_limit"]) == (1024**2, "default")


def test_an_app_reads_them_all(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "duly.toml").write_text('payload_limit = "2MiB"\nschema = "jobs"\n')
    monkeypatch.setenv("DULY_URL", "sqlite:///shop.db")
    app = App(pool_size=3)
    assert app.config.url == "sqlite:///shop.db"
    assert (app.config.payload_limit, app.config.schema) == (2 * 1024**2, "jobs")
    assert app.config.pool_size == 3
    assert app.config.origins["pool_size"] == "argument"
    app.named("work", unchecked=True).enqueue()
    app.close()
    assert (directory / "shop.db").exists()


def test_another_tools_tables_are_left_alone(directory: Path) -> None:
    (directory / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert load().origins["url"] == "default"
    (directory / "pyproject.toml").write_text("tool = 5\n")
    assert load().origins["url"] == "default"


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("payload_limit", "4KiB", 4096),
        ("payload_limit", "4 MiB", 4 * 1024**2),
        ("payload_limit", "2MB", 2 * 10**6),
        ("payload_limit", 100, 100),
        ("pool_size", "25", 25),
        ("lease", "1m30s", 90.0),
        ("lease", "20", 20.0),
        ("lease", 20, 20.0),
        ("grace", 2.5, 2.5),
        ("fair_share", "0", 0.0),
        ("journal", "full", Journal.FULL),
        ("fair_share", 1, 1.0),
        ("keep_dead", "30d", 30 * 86400.0),
        ("keep_events", "90d", 90 * 86400.0),
        ("keep_most_dead", "1000", 1000),
        ("url", "postgres://host/db", "postgres://host/db"),
        ("listen_url", "postgresql://host/db", "postgresql://host/db"),
        ("schema", "jobs_eu", "jobs_eu"),
        (
            "queues",
            {"mail": {"keep_succeeded": "1d"}},
            {"mail": {"keep_succeeded": 86400.0}},
        ),
    ],
)
def test_right_values(directory: Path, name: str, given: Any, value: Any) -> None:
    config = load({name: given})
    assert getattr(config, name) == value
    assert type(getattr(config, name)) is type(value)


# What is refused


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("url", "mysql://host/db", ["sqlite://", "postgresql://", "'mysql://...'"]),
        ("url", "jobs.db", ["sqlite:///duly.db"]),
        ("url", 5, ["must be text"]),
        ("listen_url", "sqlite:///x", ["postgresql://"]),
        ("schema", "Jobs", ["lower-case", "'jobs_eu'"]),
        ("schema", 'x"; DROP SCHEMA public', ["lower-case"]),
        ("schema", "pg_jobs", ["pg_"]),
        ("schema", "", ["lower-case"]),
        ("pool_size", 0, ["1 to 1,000"]),
        ("pool_size", "4MiB", ["whole number"]),
        ("pool_size", 2.5, ["whole number"]),
        ("pool_size", True, ["whole number"]),
        ("pool_size", -1, ["whole number"]),
        ("payload_limit", "much", ["'4MiB'"]),
        ("payload_limit", "4TiB", ["'4MiB'"]),
        ("payload_limit", 0, ["above zero"]),
        ("lease", "soon", ["24h"]),
        ("lease", 0, ["half a second"]),
        ("grace", -1, ["negative"]),
        ("fair_share", 1.5, ["0 to 1"]),
        ("journal", "some", ["'off'", "'full'", "some"]),
        ("fair_share", "half", ["0.05"]),
        ("fair_share", float("nan"), ["0 to 1"]),
        ("keep_most_dead", "1MiB", ["whole number"]),
        ("queues", "mail", ["[queues.mail]"]),
        ("queues", {"mail": {"priority": 5}}, ["keep_succeeded"]),
    ],
)
def test_wrong_values_are_refused_with_a_right_one(
    directory: Path, name: str, value: Any, words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load({name: value})
    assert str(caught.value).startswith("argument: ")
    for word in (name, *words):
        assert word in str(caught.value)


def test_a_password_is_not_shown(directory: Path) -> None:
    for name in ("url", "listen_url"):
        with pytest.raises(ConfigurationError) as caught:
            load({name: "mysql://ada:secret@host/db"})
        assert "secret" not in str(caught.value)


def test_unknown_settings_are_refused(directory: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"argument: unknown setting 'ulr'; .*url, application, schema"
    ):
        load({"ulr": "sqlite://"})
    (directory / "duly.toml").write_text('ulr = "sqlite://"\n')
    with pytest.raises(ConfigurationError, match=r"duly\.toml: unknown setting 'ulr'"):
        load()
    (directory / "duly.toml").unlink()
    (directory / "pyproject.toml").write_text('[tool.duly]\norigins = "x"\n')
    with pytest.raises(ConfigurationError, match=r"pyproject\.toml: unknown setting 'origins'"):
        load()


@pytest.mark.parametrize("text", ["url = sqlite://", "[tool", "\ud800"])
def test_a_file_that_cannot_be_read_is_named(directory: Path, text: str) -> None:
    (directory / "duly.toml").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(ConfigurationError, match=r"^duly\.toml: "):
        load()


def test_a_table_that_is_none_is_refused(directory: Path) -> None:
    (directory / "pyproject.toml").write_text("[tool]\nduly = 5\n")
    with pytest.raises(ConfigurationError, match="must be a table"):
        load()


def test_the_environment_is_checked_like_the_rest(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="environment: setting pool_size"):
        load(environment={"DULY_POOL_SIZE": "many"})


@pytest.mark.parametrize(
    "url", ["sqlite://host/jobs.db", "sqlite:///jobs.db?mode=ro", "sqlite:///jobs.db#x"]
)
def test_an_sqlite_url_of_another_kind_is_refused(directory: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:////absolute\.db"):
        App(url)


def test_sqlite_urls(directory: Path) -> None:
    (directory / "real").mkdir()
    (directory / "link").symlink_to(directory / "real")
    for url, shown in (
        ("sqlite://", "sqlite://"),
        ("sqlite:///:memory:", "sqlite://"),
        ("sqlite:///jobs.db", f"sqlite:///{directory.resolve()}/jobs.db"),
        (f"sqlite:///{directory}/jobs.db", f"sqlite:///{directory.resolve()}/jobs.db"),
        ("sqlite:///my%20jobs.db", f"sqlite:///{directory.resolve()}/my jobs.db"),
        ("sqlite:///link/jobs.db", f"sqlite:///{directory.resolve()}/real/jobs.db"),
    ):
        assert App(url).store.url == shown


def test_a_config_cannot_be_changed(directory: Path) -> None:
    with pytest.raises(AttributeError):
        load().url = "sqlite://"  # type: ignore[misc]


# Everything is documented


def test_every_setting_is_documented() -> None:
    text = (DOCUMENTS / "settings.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### `(\w+)`$", text, re.MULTILINE)
    assert sections == names()
    for field in fields(Config):
        if field.name != "origins":
            assert f"`DULY_{field.name.upper()}`" in text or field.name == "queues"


def test_every_public_name_is_documented() -> None:
    text = (DOCUMENTS / "reference.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(?:duly\.)?(\w+)", text))
    assert set(duly.__all__) - documented == set()
    for name in duly.__all__:
        value = getattr(duly, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
            assert own, f"duly.{name} has no docstring"


@pytest.mark.parametrize("name", ["App", "Job", "Task", "NamedTask"])
def test_every_method_is_documented(name: str) -> None:
    text = (DOCUMENTS / "reference.md").read_text(encoding="utf-8")
    kind = getattr(duly, name)
    for method, value in vars(kind).items():
        if method.startswith("_") or not (callable(value) or isinstance(value, property)):
            continue
        assert value.__doc__, f"{name}.{method} has no docstring"
        assert re.search(rf"\b{method}\b", text), f"{name}.{method} is not in docs/reference.md"

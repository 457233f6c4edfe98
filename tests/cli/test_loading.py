"""MODULE:APP, and what is said when it cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from duly.cli.loading import load_app
from duly.errors import ConfigurationError
from tests.cli.driving import run


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is forgotten after it."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("shop", "shop.tasks", "broken", "nested", "quitting"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def _write(tmp_path: Path, name: str, text: str) -> None:
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)


def test_an_app_in_the_working_directory(tmp_path: Path) -> None:
    _write(
        tmp_path, "shop.py", "import duly\napp = duly.App('sqlite://')\nclass Site:\n  jobs = app"
    )
    assert load_app("shop:app") is load_app("shop:Site.jobs")


def test_an_app_in_a_package(tmp_path: Path) -> None:
    _write(tmp_path, "shop/tasks.py", "import duly\napp = duly.App('sqlite://')")
    assert load_app("shop.tasks:app").store.url == "sqlite://"


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("shop", "'shop' names no app: expected MODULE:NAME, such as shop.tasks:app"),
        (":app", "':app' names no app"),
        ("shop:", "'shop:' names no app"),
        ("shop.py:app", "is a file, not a module: did you mean shop:app?"),
        ("./shop/tasks.py:app", "did you mean shop.tasks:app?"),
        ("nowhere:app", "there is no module 'nowhere': looked in "),
        ("shop.nowhere:app", "there is no module 'shop.nowhere'"),
        ("shop:ap", "there is no 'ap' in module 'shop'; an App is there under 'app'"),
        ("shop:number", "shop:number is a int, not a duly.App; an App is there under 'app'"),
        ("broken:app", "importing 'broken' failed: ModuleNotFoundError: No module named 'absent'"),
        ("nested:app", "importing 'nested' failed: ZeroDivisionError: division by zero ("),
        ("quitting:app", "importing 'quitting' failed: SystemExit: 3"),
        ("wrong:app", "importing 'wrong' failed: SyntaxError: "),
        ("..x:app", "importing '..x' failed"),
    ],
)
def test_what_is_no_app(tmp_path: Path, reference: str, problem: str) -> None:
    _write(tmp_path, "shop.py", "import duly\napp = duly.App('sqlite://')\nnumber = 3")
    _write(tmp_path, "broken.py", "import absent")
    _write(tmp_path, "nested.py", "def f():\n    1 / 0\nf()")
    _write(tmp_path, "quitting.py", "import sys\nsys.exit(3)")
    _write(tmp_path, "wrong.py", "def f(:\n")
    with pytest.raises(ConfigurationError) as caught:
        load_app(reference)
    assert problem in str(caught.value)


def test_a_broken_module_is_named_with_its_line(tmp_path: Path) -> None:
    _write(tmp_path, "nested.py", "def f():\n    1 / 0\nf()")
    answer = run("job", "list", "--app", "nested:app")
    assert answer.code == 2
    assert f"({tmp_path / 'nested.py'}, line 2)" in answer.err
    assert "Traceback" not in answer.err
    assert "Traceback" in run("job", "list", "--app", "nested:app", "--debug").err


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    _write(tmp_path, "wrong.py", "x = 1\ndef f(:\n")
    assert f"({tmp_path / 'wrong.py'}, line 2)" in run("job", "list", "--app", "wrong:app").err

"""What an application is called."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from duly import App, ConfigurationError

MAKES_AN_APP = """
import duly
app = duly.App("sqlite://")
print(app.registry.schedules.application)
"""


class Derived(App):
    """An app with a constructor of its own."""

    def __init__(self) -> None:
        super().__init__("sqlite://")


def test_it_is_called_by_the_package_that_makes_the_app() -> None:
    assert App("sqlite://").registry.schedules.application == "tests"
    assert Derived().registry.schedules.application == "tests"


def test_a_setting_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_APPLICATION", "blog")
    assert App("sqlite://").registry.schedules.application == "blog"
    named = App("sqlite://", application="shop")
    assert named.registry.schedules.application == "shop"
    with pytest.raises(ConfigurationError, match=r"application.*'no name!' is not a name"):
        App("sqlite://", application="no name!")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["shop.py"], "shop"),
        (["-m", "shop"], "shop"),
        (["-c", "import shop"], "shop"),
        (["-m", "store"], "store"),
        (["-m", "store.jobs"], "store"),
        (["my jobs.py"], "my_jobs"),
        (["-c", MAKES_AN_APP], "main"),
    ],
)
def test_a_script_and_its_import_are_one_application(
    tmp_path: Path, arguments: list[str], name: str
) -> None:
    (tmp_path / "store").mkdir()
    for file in ("shop.py", "my jobs.py", "store/__init__.py", "store/jobs.py"):
        (tmp_path / file).write_text("" if "init" in file else MAKES_AN_APP)
    (tmp_path / "store" / "__main__.py").write_text(MAKES_AN_APP)
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [name]


def test_code_without_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "-.py"
    script.write_text(MAKES_AN_APP)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.split() == ["main"]

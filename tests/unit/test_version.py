"""One release, one number."""

from importlib.metadata import version

import duly


def test_the_package_and_the_code_agree() -> None:
    assert duly.__version__ == version("duly")

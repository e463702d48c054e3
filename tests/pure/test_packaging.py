"""What an installed package contains."""

from __future__ import annotations

import sys
from pathlib import Path

import pathspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def test_no_module_is_left_out_of_the_package() -> None:
    # The patterns are those of .gitignore: one without a leading slash matches at any depth.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    excluded = pathspec.GitIgnoreSpec.from_lines(settings["sdist"]["exclude"])
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py*") if path.suffix in (".py", ".pyi")]
    assert len(modules) > 50
    assert list(excluded.match_files(modules)) == []

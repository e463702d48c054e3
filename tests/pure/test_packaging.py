"""What an installed package contains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pathspec

ROOT = Path(__file__).parents[2]


def test_no_module_is_left_out_of_the_package() -> None:
    # The patterns are those of .gitignore: one without a leading slash matches at any depth.
    setting = re.search(r"^sdist\.exclude = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert setting
    excluded = pathspec.GitIgnoreSpec.from_lines(json.loads(setting[1]))
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py*") if path.suffix in (".py", ".pyi")]
    assert len(modules) > 50
    assert list(excluded.match_files(modules)) == []

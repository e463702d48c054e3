from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import isobit
from isobit.cli.common import integer, print_json, progress_bars, size_text, visible
from isobit.cli.main import COMMANDS, main
from isobit.errors import CheckFailedError, InputError

ISOBIT = [sys.executable, "-m", "isobit.cli.main"]

Action = Callable[[], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Action], None]:
    """Installs a subcommand `fake` that runs the given function."""

    def install(action: Action) -> None:
        module = ModuleType("isobit.cli.fake", "A fake.")
        module.add_arguments = lambda parser: parser.add_argument("--number", type=integer(1, 9))  # type: ignore[attr-defined]
        module.run = lambda _args: action()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "isobit.cli.fake", module)
        monkeypatch.setitem(COMMANDS, "fake", "for tests")

    return install


def raising(error: BaseException) -> Action:
    def action() -> int:
        print("printed before")
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("bad value 7"), 2, "isobit: bad value 7\n"),
        (InputError("two\nlines \x1b[31m"), 2, "isobit: two lines \\x1b[31m\n"),
        (CheckFailedError("they differ"), 1, "isobit: they differ\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_exit_codes(
    command: Callable[[Action], None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    command(raising(error))
    assert main(["fake"]) == code
    assert capsys.readouterr() == ("printed before\n", line)


def test_mistakes_of_ours_are_not_hidden(command: Callable[[Action], None]) -> None:
    command(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["fake"])


@pytest.mark.parametrize("code", [0, 1])
def test_exit_code_of_the_command(command: Callable[[Action], None], code: int) -> None:
    command(lambda: code)
    assert main(["fake"]) == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["isnpect"], "there is no command 'isnpect'; did you mean 'inspect'? (see isobit --help)"),
        (["--nonsense"], "there is no command '--nonsense' (see isobit --help)"),
        (["fake", "--numb", "3"], "unrecognized arguments: --numb 3 (see isobit fake --help)"),
        (["fake", "--number", "x"], "argument --number: 'x' is not an integer from 1 to 9 (see isobit fake --help)"),
        (["fake", "--number", "10"], "argument --number: 10 is not an integer from 1 to 9 (see isobit fake --help)"),
        (["pull", "smollm2-135"], "there is no model or file 'smollm2-135'; near matches: smollm2-135m; "
         "`isobit pull --list` shows all names"),
        (["pull"], "no model given; name one, or use `isobit pull --list` to see which there are"),
        (["pull", "--list", "x"], "--list takes no model; got 'x'"),
        (["inspect", "x.gguf"], "there is no file x.gguf; check the path"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    command: Callable[[Action], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    command(lambda: 0)
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"isobit: {message}\n")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text and help_text in text for name, help_text in COMMANDS.items())
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"isobit {isobit.__version__}\n"
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: isobit {name}" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    check = (
        "import sys; from isobit.cli.main import main; code = main(['--help']); "
        "heavy = {'numpy', 'rich', 'tokenizers', 'jinja2', 'isobit._native', 'platformdirs'} & set(sys.modules); "
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_reader_that_goes_away(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run([*ISOBIT, "--help"], stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_disk_under_stdout() -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run([*ISOBIT, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(f"isobit: [Errno {errno.ENOSPC}]")
    assert result.stderr.count("\n") == 1


def test_interrupt_keeps_what_was_printed() -> None:
    script = (
        "import sys, types; from isobit.cli import main as m\n"
        "f = types.ModuleType('f'); f.add_arguments = lambda parser: None\n"
        "def run(args):\n"
        "    print('partial answer', end=''); print('ready', file=sys.stderr, flush=True); sys.stdin.read()\n"
        "f.run = run; sys.modules['isobit.cli.pull'] = f; sys.exit(m.main(['pull']))"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.communicate() == (b"partial answer", b"")


def test_terminal_without_the_characters(tmp_path: Path) -> None:
    script = (
        "import sys, types; from isobit.cli import main as m\n"
        "f = types.ModuleType('f'); f.add_arguments = lambda parser: None\n"
        "f.run = lambda args: print('naïve 😀') or 0; sys.modules['isobit.cli.pull'] = f; sys.exit(m.main(['pull']))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"na\\xefve \\U0001f600\n", b"")


@pytest.mark.parametrize("name", COMMANDS)
def test_modules_of_the_commands(name: str) -> None:
    module = importlib.import_module(f"isobit.cli.{name}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    assert callable(module.run)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "naïve\n", "n": 1})
    assert json.loads(capsys.readouterr().out) == {"text": "naïve\n", "n": 1}
    with pytest.raises(ValueError, match="JSON"):
        print_json({"x": float("nan")})


def test_list_of_models(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOBIT_HOME", str(tmp_path))
    assert main(["pull", "--list", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert listing["folder"] == str(tmp_path / "models")
    assert {model["name"]: model["path"] for model in listing["models"]}["smollm2-135m"] is None
    assert main(["pull", "--list"]) == 0
    assert "Gemma Terms of Use" in capsys.readouterr().out


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars(None) as nothing:
        assert nothing is None
    with progress_bars(True) as progress:
        assert progress is not None
        for done in range(0, 1_000_001, 1000):
            progress("download", done, 1_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[4] == "download    40 %  400.0 kB of 1.0 MB"


def test_progress_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars(None) as progress:
        assert progress is not None
        progress("download", 500_000, 1_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "download" in captured.err


def test_small_texts() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 98_362_432, 10**13)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "98.4 MB",
        "10.0 TB",
    ]
    assert visible("a\x1b[0m\tß\n\x00") == "a\\x1b[0m\tß\n\\x00"

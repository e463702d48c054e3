"""The command `isobit`: finds the subcommand, imports only its module, and turns errors into exit codes.

Exit codes: 0 done, 1 a check failed, 2 bad input or anything else that went wrong, 130 interrupted,
141 the reader of our output went away.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, TextIO, cast

import isobit
from isobit.errors import CheckFailedError, IsobitError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

EXIT_CHECK_FAILED = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

COMMANDS: dict[str, str] = {
    "pull": "download a model by name, or list those there are",
    "inspect": "show what is in a model file and the memory it needs",
    "run": "answer one prompt",
    "chat": "talk with a model",
    "logits": "compute logits and their digest",
    "perplexity": "measure the perplexity of a text",
    "certify": "check the promise: the same bits under every setting",
    "bench": "measure speed, against the machine's ceilings and other engines",
    "doctor": "show processor, instruction sets, threads, versions",
}
"""Name and help of each subcommand; its module is `isobit.cli.<name>`."""


class Command(Protocol):
    """What the module of a subcommand offers. Its docstring is the description shown by --help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the subcommand's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Does the work; returns the exit code. Raises IsobitError."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Reports a wrong argument; exit code 2."""
        self.exit(EXIT_ERROR, f"isobit: {one_line(message)} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Prints help; argparse's own version hides that it could not be written."""
        print(message, end="", file=file or sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (default: that of the process) and returns its exit code."""
    make_output_printable(sys.stdout)
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except CheckFailedError as error:
        code = _fail(str(error), EXIT_CHECK_FAILED)
    except IsobitError as error:
        code = _fail(str(error), EXIT_ERROR)
    except KeyboardInterrupt:
        code = _interrupted()
    except BrokenPipeError:
        _discard_stdout()
        code = EXIT_BROKEN_PIPE
    except OSError as error:  # a full disk under stdout, a file that vanished: not the program's fault
        _discard_stdout()
        code = _fail(f"{error}; check the file, its rights and the free space", EXIT_ERROR)
    return code


def one_line(message: str) -> str:
    """The message with line breaks and control characters (a file's names may hold any) made visible."""
    return "".join(c if c.isprintable() else " " if c in "\r\n\t" else f"\\x{ord(c):02x}" for c in message)


def make_output_printable(stream: TextIO) -> None:
    """Characters that the terminal's encoding lacks are written as escapes instead of ending the program."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _dispatch(arguments: list[str]) -> int:
    try:
        if arguments and arguments[0] in COMMANDS:
            return _run(arguments[0], arguments[1:])
        return _top_level(arguments)
    except SystemExit as stop:  # argparse: after --help, --version and wrong arguments
        sys.stdout.flush()
        return stop.code if isinstance(stop.code, int) else 0


def _run(name: str, arguments: list[str]) -> int:
    command = cast(Command, importlib.import_module(f"isobit.cli.{name}"))
    parser = Parser(
        prog=f"isobit {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def _top_level(arguments: list[str]) -> int:
    """Everything that is not a subcommand: --help, --version, nothing at all, an unknown name."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="isobit",
        usage="isobit COMMAND [ARGUMENTS]",
        description="Quantized language models whose output is a pure function of their input.",
        epilog=f"commands:\n{listing}\n\n`isobit COMMAND --help` shows the arguments of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"isobit {isobit.__version__}")
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_ERROR
    _, rest = parser.parse_known_args(arguments)
    near = difflib.get_close_matches(rest[0], list(COMMANDS), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return parser.error(f"there is no command {rest[0]!r}{hint}")


def _fail(message: str, code: int) -> int:
    _flush_quietly()
    print(f"isobit: {one_line(message)}", file=sys.stderr)
    return code


def _interrupted() -> int:
    """What was printed stays; on a terminal the shell's prompt gets a line of its own."""
    _flush_quietly()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return EXIT_INTERRUPTED


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Points stdout nowhere, so that the interpreter's own flush at exit cannot fail."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # replaced by something that is no file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())

"""What the subcommands share: common arguments, JSON output, progress on stderr, finding a model."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobit.hub import Progress, resolve

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

    from isobit.model import Model

MODEL_HELP = "path of a GGUF file, a pulled name (isobit pull --list), or hf:ORG/REPO[:FILE-OR-QUANT]"
_PLAIN_STEP = 10  # percent between two lines of progress where there is no terminal


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Declares the positional argument MODEL; pass it to `resolve_model`."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Declares --json: exactly one JSON object on stdout (`print_json`) and nothing else there."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else there")


def add_progress_argument(parser: argparse.ArgumentParser) -> None:
    """Declares --progress / --no-progress: True, False, or None for "on a terminal"."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show progress on stderr (default: if that is a terminal)",
    )


@contextlib.contextmanager
def open_model(args: argparse.Namespace, **settings: Any) -> Iterator[Model]:
    """Loads MODEL with the settings of `options.add_model`, and closes it at the end. Raises IsobitError."""
    import isobit
    from isobit.cli.options import model_settings

    with progress_bars(None, "operations") as bars:
        model = isobit.load(args.model, **model_settings(args), **settings, progress=bars)
    with model:
        yield model


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """An argparse type: an integer from `minimum` to `maximum`."""
    expected = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r:.80} is not {expected}") from None
        if value < minimum or (maximum is not None and value > maximum):
            raise argparse.ArgumentTypeError(f"{value} is not {expected}")
        return value

    return parse


def resolve_model(text: str) -> Path:
    """The file of MODEL; see `isobit.hub.resolve`. Nothing is downloaded. Raises ModelNotFoundError."""
    return resolve(text)


def print_json(value: dict[str, object]) -> None:
    """Prints the one JSON object of --json. Non-finite floats are not JSON: a ValueError, so our mistake."""
    print(json.dumps(value, indent=2, allow_nan=False))


def visible(text: str) -> str:
    """Text from a file with control characters (which could steer the terminal) shown as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def size_text(num_bytes: int) -> str:
    """A size for reading, such as `98.4 MB` (powers of 1000)."""
    size, units = float(num_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


@contextlib.contextmanager
def progress_bars(show: bool | None, unit: str = "bytes") -> Iterator[Progress | None]:
    """Progress on stderr: yields a function (stage, done, total) that draws one bar for each stage.

    show: the value of --progress. Yields None where nothing is to be shown. Without a terminal plain lines
    are written instead of bars. unit: "bytes", or anything else for plain counts.
    """
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield None
    elif not sys.stderr.isatty():
        yield _PlainProgress(unit)
    else:
        with _rich_bars(unit) as bars:
            yield bars


@contextlib.contextmanager
def progress(stage: str, show: bool | None = None) -> Iterator[Callable[[int, int], None]]:
    """Progress of one kind of work in plain counts: yields a function (done, total)."""
    with progress_bars(show, unit="count") as bars:
        yield lambda done, total: bars(stage, done, total) if bars else None


@contextlib.contextmanager
def _rich_bars(unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    amount: ProgressColumn = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description:10}"), BarColumn(), amount, TimeRemainingColumn(compact=True))
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as display:
        yield _RichProgress(display)


class _RichProgress:
    def __init__(self, display: RichProgress) -> None:
        self._display = display
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._display.add_task(stage, total=total)
        self._display.update(self._tasks[stage], completed=done, total=total)


class _PlainProgress:
    """Lines such as `download  40 %  39.3 of 98.4 MB`, for logs."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._shown: dict[str, int] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        step = percent // _PLAIN_STEP
        if step == self._shown.get(stage):
            return
        self._shown[stage] = step
        amounts = (size_text(done), size_text(total)) if self._unit == "bytes" else (str(done), str(total))
        print(f"{stage:10} {percent:3} %  {amounts[0]} of {amounts[1]}", file=sys.stderr, flush=True)

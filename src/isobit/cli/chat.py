"""`isobit chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from isobit.cli.common import open_model
from isobit.cli.options import add_chat, add_model, add_sampling, sampling_settings
from isobit.errors import InputError

if TYPE_CHECKING:
    from isobit.model import Model

INTRODUCTION = (
    "Type a message and press Enter. /reset forgets the conversation, /quit or Ctrl-D ends it; Ctrl-C stops an answer."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    add_sampling(parser)
    add_chat(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    with open_model(args) as model:
        _ = model.template  # a missing template is an error now, not after the first message
        start = [{"role": "system", "content": args.system}] if args.system else []
        messages = list(start)
        print(INTRODUCTION, file=sys.stderr)
        while (line := _read()) is not None:
            if line == "/quit":
                break
            if line == "/reset":
                messages = list(start)
            elif line:
                messages = _answer(model, [*messages, {"role": "user", "content": line}], args)
    return 0


def _read() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None


def _answer(model: Model, messages: list[dict[str, str]], args: argparse.Namespace) -> list[dict[str, str]]:
    """Streams the answer; Ctrl-C keeps what was said so far. A message that does not fit is taken back."""
    pieces: list[str] = []
    try:
        for chunk in model.stream(messages, max_tokens=args.max_tokens, **sampling_settings(args)):
            pieces.append(chunk.text)
            print(chunk.text, end="", flush=True)
    except KeyboardInterrupt:
        pass
    except InputError as error:
        print(f"isobit: {error}", file=sys.stderr)
        return messages[:-1]
    print()
    return [*messages, {"role": "assistant", "content": "".join(pieces)}]

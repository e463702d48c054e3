"""`isobit run`: one answer, streamed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from isobit.cli.common import add_json_argument, open_model, print_json
from isobit.cli.options import add_chat, add_model, add_sampling, sampling_settings
from isobit.errors import InputError

if TYPE_CHECKING:
    from isobit.model import Model, Prompt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument(
        "prompt", nargs="?", default="-", metavar="PROMPT", help="the prompt; - or none reads standard input"
    )
    add_sampling(parser)
    parser.add_argument("--raw", action="store_true", help="continue the text as it stands, without the chat template")
    add_chat(parser)
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    text = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not text:
        raise InputError("the prompt is empty; give a text, or - to read it from standard input")
    with open_model(args) as model:
        prompt = make_prompt(text, args)
        if args.json:
            completion = model.generate(prompt, max_tokens=args.max_tokens, **sampling_settings(args))
            print_json({"model": args.model, **asdict(completion)})
        else:
            _stream(model, prompt, args)
    return 0


def make_prompt(text: str, args: argparse.Namespace) -> Prompt:
    """The raw text, or the messages that the template renders."""
    if args.raw:
        if args.system:
            raise InputError("--system needs the chat template; it cannot be used with --raw")
        return text
    system = [{"role": "system", "content": args.system}] if args.system else []
    return [*system, {"role": "user", "content": text}]


def _stream(model: Model, prompt: Prompt, args: argparse.Namespace) -> None:
    chunks = model.stream(prompt, max_tokens=args.max_tokens, **sampling_settings(args))
    try:
        for chunk in chunks:
            sys.stdout.write(chunk.text)
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()

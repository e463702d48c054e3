"""Options that several commands share."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from isobit.cli.common import add_model_argument


def add_model(parser: argparse.ArgumentParser, *, context: str = "--ctx") -> None:
    """MODEL, what chooses its bits (activations, cache), and what does not (threads, instruction set).

    context: the long option for the tokens of context.
    """
    add_model_argument(parser)
    parser.add_argument(
        "--activations",
        choices=("int8", "int16"),
        default="int8",
        help="rounding before each matrix: int8 is fast, int16 is indistinguishable from FP32 (default: %(default)s)",
    )
    parser.add_argument(
        "--cache",
        choices=("f16", "f32"),
        default="f16",
        help="type of the key/value cache (default: %(default)s)",
    )
    parser.add_argument("-t", "--threads", type=int, help="threads (default: the physical cores that may be used)")
    parser.add_argument("--isa", help="force an instruction set; see `isobit doctor` for those of this machine")
    parser.add_argument(
        "-c",
        context,
        type=int,
        dest="context",
        help="tokens of context (default: the model's, at most 32768)",
    )


def add_chat(parser: argparse.ArgumentParser) -> None:
    """What the chat template is given besides the messages."""
    parser.add_argument("--system", help="a system message")
    parser.add_argument(
        "--date",
        type=_date,
        metavar="YYYY-MM-DD",
        help="the date that a template may ask for; without it such a template is an error, not a new prompt each day",
    )


def _date(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-01-31") from None


def model_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments for `isobit.load`."""
    return {
        "activations": args.activations,
        "cache": args.cache,
        "threads": args.threads,
        "isa": args.isa,
        "context": args.context,
        "clock": (lambda: args.date) if getattr(args, "date", None) else None,
    }


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Sampling settings under the names people type."""
    parser.add_argument(
        "-n", "--max-tokens", type=int, default=256, help="most tokens to produce (default: %(default)s)"
    )
    parser.add_argument("--temp", type=float, default=0.8, help="temperature; 0 is greedy (default: %(default)s)")
    parser.add_argument(
        "--top-k", type=int, default=40, help="keep the k best tokens; 0 keeps all (default: %(default)s)"
    )
    parser.add_argument(
        "--top-p", type=float, default=0.95, help="keep the best tokens of this share (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="any integer from -2^63 to 2^64-1; same seed, same text (default: %(default)s)",
    )


def sampling_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `SamplingParams`."""
    return {"temperature": args.temp, "top_k": args.top_k, "top_p": args.top_p, "seed": args.seed}

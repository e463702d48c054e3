"""`isobit perplexity`: how well a model predicts a text."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from isobit.cli.common import add_json_argument, open_model, print_json, progress
from isobit.cli.options import add_model
from isobit.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command (--ctx is the window that is scored at once)."""
    add_model(parser)
    parser.add_argument("file", metavar="FILE", type=Path, help="a UTF-8 text")
    parser.add_argument("--chunk", type=int, default=128, help="tokens per pass (default: %(default)s); changes no bit")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from isobit.lab.perplexity import perplexity

    text = _read(args.file)
    with open_model(args) as model:
        ids = model.encode(text)
        with progress("perplexity") as report:
            result = perplexity(model, ids, chunk=args.chunk, progress=report)
    if args.json:
        print_json({"model": args.model, "numerics": model.numerics, **asdict(result)})
    else:
        print(f"perplexity {result.perplexity:.4f} over {result.tokens} tokens, {result.sha256}")
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start}); convert it first") from None

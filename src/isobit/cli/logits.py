"""`isobit logits`: the digest of the logits of a text, and the logits themselves."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from isobit.cli.common import add_json_argument, open_model, print_json
from isobit.cli.options import add_model
from isobit.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="a raw text")
    what.add_argument("--tokens", help="token ids, separated by commas")
    parser.add_argument("--chunk", type=int, help="tokens per pass (default: 128); changes no bit")
    parser.add_argument("--backend", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--out", metavar="F.npy", type=Path, help="write the logits, float32 [tokens, vocabulary]")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from isobit.lab.digests import logits_sha256

    with open_model(args, backend=args.backend) as model:
        ids = model.encode(args.prompt) if args.prompt is not None else _parse_tokens(args.tokens)
        model.check_tokens(ids)
        parts = model.iter_logits(ids, chunk=args.chunk if args.chunk is not None else 128)
        if args.out:
            parts = _saving(parts, args.out, len(ids), model.program.vocabulary_size)
        sha256 = logits_sha256(parts)
        result = {"model": args.model, "numerics": model.numerics, "tokens": len(ids), "sha256": sha256}
    if args.json:
        print_json(result)
    else:
        print(f"{sha256}  {len(ids)} tokens, {result['numerics']}")
    return 0


def _parse_tokens(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--tokens is {text!r}; expected integers separated by commas, such as 1,2,3") from None


def _saving(
    parts: Iterator[npt.NDArray[np.float32]], path: Path, tokens: int, vocabulary: int
) -> Iterator[npt.NDArray[np.float32]]:
    """Passes the parts on while writing them; the file appears under its name when it is complete."""
    import numpy as np

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": (tokens, vocabulary)}
            np.lib.format.write_array_header_1_0(stream, header)
            for part in parts:
                stream.write(part.astype("<f4").tobytes())
                yield part
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)

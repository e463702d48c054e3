"""Downloads a model into the models folder and prints the path of its file.

A model that is there already, with the right sha256, is not downloaded again. Small models have names
(--list); any GGUF model of the Hugging Face hub can be named as hf:ORG/REPO, hf:ORG/REPO:Q4_K_M,
hf:ORG/REPO:FILE.gguf or hf:ORG/REPO@REVISION:… (this needs `pip install 'isobit[hub]'`).
"""

from __future__ import annotations

import argparse

from isobit.cli.common import (
    add_json_argument,
    add_progress_argument,
    print_json,
    progress_bars,
    size_text,
)
from isobit.errors import InputError
from isobit.hub import CATALOGUE, is_pulled, models_folder, pull, pulled_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("model", metavar="NAME", nargs="?", help="a name of the list, or hf:ORG/REPO[:FILE-OR-QUANT]")
    parser.add_argument("--list", action="store_true", help="show the models that have names")
    add_progress_argument(parser)
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Pulls or lists."""
    if args.list:
        if args.model is not None:
            raise InputError(f"--list takes no model; got {args.model!r}")
        _list(args.json)
        return 0
    if args.model is None:
        raise InputError("no model given; name one, or use `isobit pull --list` to see which there are")
    with progress_bars(args.progress) as progress:
        path = pull(args.model, progress)
    if args.json:
        print_json({"model": args.model, "path": str(path), "size": path.stat().st_size})
    else:
        print(path)
    return 0


def _list(as_json: bool) -> None:
    entries = [(entry, is_pulled(entry)) for entry in CATALOGUE.values()]
    if as_json:
        models = [
            {
                "name": entry.name,
                "size": entry.size,
                "sha256": entry.sha256,
                "licence": entry.licence,
                "description": entry.description,
                "path": str(pulled_path(entry)) if pulled else None,
            }
            for entry, pulled in entries
        ]
        print_json({"folder": str(models_folder()), "models": models})
        return
    for entry, pulled in entries:
        print(f"{entry.name:20} {size_text(entry.size):>9}  {'pulled' if pulled else '':7} {entry.description}")
        print(f"{'':39} licence: {entry.licence}")

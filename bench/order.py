"""What the fixed order of additions costs: the shipped kernels beside ones that add in the order that suits them.

    python -m venv FOLDER && FOLDER/bin/pip install -C cmake.define.ISOBIT_FREE_ORDER=ON .
    FOLDER/bin/python bench/order.py [MODEL …] [-t THREADS] [--activations int8|int16] [--reps N] [--json]

The other kernels (native/kernels/running_sum.h) go on from one chunk to the next in registers, where the canonical
order combines chunks in a tree. Both share packed weights and take turns within one process. The price is how many per
cent the free order is faster: the median of the rounds, and in brackets the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from isobit import _native
from isobit.cli.common import resolve_model
from isobit.lab.bench import Ours, Work, make_works
from isobit.lab.bench.statistics import Spread
from isobit.model import Model

MODELS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
FREE = "freeorder"


def price(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each work."""
    works = make_works(512, 64, [1, 8], [])
    settings = {"context": 2048, "activations": args.activations, "threads": args.threads}
    with Model(resolve_model(name), **settings) as fixed, fixed.variant(isa=FREE) as free:
        sides = [Ours(fixed), Ours(free)]
        return [{"model": name, "work": work.label, "price_percent": measure(sides, work, args.reps)} for work in works]


def measure(sides: list[Ours], work: Work, reps: int) -> dict[str, Any]:
    """How many per cent the second side is faster, after a round that only warms up."""
    seconds: list[list[float]] = [[], []]
    for turn in range(reps + 1):
        for side in ((0, 1), (1, 0))[turn % 2]:  # nobody is always first
            seconds[side].append(sides[side].run(work))
    fixed, free = (Spread.of(one[1:]) for one in seconds)
    return Spread.of([100 * (ratio - 1) for ratio in fixed.over(free).rounds]).json()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=_native.default_threads())
    parser.add_argument("--activations", default="int8", choices=("int8", "int16"))
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not _native.has_isa(FREE):
        sys.exit(f"this build of isobit has no kernels {FREE!r}; see the head of this file for one that has them")
    lines = []
    for name in args.models:
        for line in price(name, args):
            lines.append(line)
            if not args.json:
                p = line["price_percent"]
                print(f"{name:20} {line['work']:14} {p['median']:+5.1f} % ({p['min']:+.1f} to {p['max']:+.1f})")
    if args.json:
        print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()

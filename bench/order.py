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
from collections.abc import Iterator

from isobit import _native
from isobit.cli.common import progress, resolve_model
from isobit.hub.catalogue import CATALOGUE
from isobit.lab.bench import Ours, make_works, measure
from isobit.lab.bench.statistics import Spread
from isobit.model import Model

FREE = "freeorder"


def prices(name: str, args: argparse.Namespace) -> Iterator[tuple[str, Spread]]:
    """Each work of a model, and how many per cent faster the free order does it."""
    settings = {"context": 2048, "activations": args.activations, "threads": args.threads}
    with Model(resolve_model(name), **settings) as fixed, fixed.variant(isa=FREE) as other:
        free = Ours(other, FREE)
        with progress(name, None) as report:
            results = measure(Ours(fixed), [free], make_works(512, 64, [1, 8], []), args.reps, report).results
    for result in results:
        yield result.work.label, Spread.of([100 / ratio - 100 for ratio in result.ratios[FREE].rounds])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=tuple(CATALOGUE), metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=_native.default_threads())
    parser.add_argument("--activations", default="int8", choices=("int8", "int16"))
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not _native.has_isa(FREE):
        sys.exit(f"this build of isobit has no kernels {FREE!r}; see the head of this file for one that has them")
    lines = []
    for name in args.models:
        for label, price in prices(name, args):
            lines.append({"model": name, "work": label, "price_percent": price.json()})
            if not args.json:
                print(f"{name:20} {label:14} {price.median:+5.1f} % ({price.min:+.1f} to {price.max:+.1f})", flush=True)
    if args.json:
        print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()

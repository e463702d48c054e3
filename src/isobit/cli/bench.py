"""Measures the speed of a model: prefill (pp) and decode (tg), against what the machine can do and other engines.

Every round does each work with each engine once, in turn; figures are the median of the rounds and, in brackets,
the least and the greatest. Ratios (× as fast as the peer) are taken round by round. GB/s are bytes of packed
weights, shown as a share of a plain read of as many bytes; TOPS are those of the matrices, as a share of integer
dot products in registers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobit.cli.common import (
    add_json_argument,
    add_progress_argument,
    integer,
    open_model,
    print_json,
    progress,
    resolve_model,
    size_text,
)
from isobit.cli.options import add_model
from isobit.errors import InputError

if TYPE_CHECKING:
    from isobit.lab.bench import Ours, Peer, Report, Work
    from isobit.lab.bench.profile import Profile
    from isobit.lab.bench.statistics import Spread
    from isobit.model import Model

DEFAULT_DEPTHS = (512, 8192)
BUSY = 0.5
"""Load average (runnable threads over the last minute) above which a run says that it was not alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command. --ctx are the depths at which decode is measured; --context is the cache's size."""
    add_model(parser, context="--context")
    parser.add_argument("--pp", type=integer(1), default=512, help="tokens of prefill (default: %(default)s)")
    parser.add_argument("--tg", type=integer(1), default=64, help="steps of decode (default: %(default)s)")
    parser.add_argument(
        "--batch", type=integers(1), default=[1, 8], metavar="N,…", help="sequences decoded at once (default: 1,8)"
    )
    parser.add_argument(
        "--ctx",
        type=integers(0),
        dest="depths",
        metavar="N,…",
        help="tokens in the cache before decode; 0 for none (default: 512,8192, as far as the model takes them)",
    )
    parser.add_argument("--reps", type=integer(1), default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--vs", type=names, default=[], metavar="PEER,…", help="other engines: llama.cpp, ik")
    parser.add_argument(
        "--peer-python", type=Path, metavar="PATH", help="interpreter that has the peers (default: this one)"
    )
    parser.add_argument("--profile", action="store_true", help="show instead where the time goes, by operation")
    add_json_argument(parser)
    add_progress_argument(parser)


def integers(minimum: int) -> Callable[[str], list[int]]:
    """An argparse type: integers with commas between them."""
    one = integer(minimum)
    return lambda text: [one(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """An argparse type: different names of peers with commas between them."""
    from isobit.lab.bench import PEERS

    for name in text.split(","):
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"there is no peer {name!r}; known are {', '.join(PEERS)}")
    return list(dict.fromkeys(text.split(",")))


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from isobit.lab.bench import Ours

    with open_model(args) as model:
        ours = Ours(model)
        head = header(args, ours)
        if args.profile:
            return _profile(args, model, head)
        works, left_out = chosen_works(args, model)
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            ours.check(works)
            peers = [stack.enter_context(running_peer(args, name, ours)) for name in args.vs]
            report = _measure(args, ours, peers, works)
    engines = [{"name": ours.name, "settings": ours.settings}] + [
        {"name": peer.name, "version": peer.version, "settings": peer.settings} for peer in peers
    ]
    if args.json:
        print_json({**head, "engines": engines, "reps": args.reps, "left_out": left_out, **report.json()})
    else:
        print("\n".join(table(head, engines, report)))
        for label in left_out:
            print(f"left out, more than the context of {model.context_length} tokens: {label}")
    return 0


def chosen_works(args: argparse.Namespace, model: Model) -> tuple[list[Work], list[str]]:
    """The works asked for; default depths that the context cannot hold are left out and named."""
    from isobit.lab.bench import make_works

    depths = args.depths if args.depths is not None else list(DEFAULT_DEPTHS)
    fits = [d for d in depths if args.depths is not None or d + args.tg <= model.context_length]
    left_out = [work.label for work in make_works(args.pp, args.tg, [], [d for d in depths if d not in fits])[2:]]
    return make_works(args.pp, args.tg, args.batch, fits), left_out


@contextlib.contextmanager
def running_peer(args: argparse.Namespace, name: str, ours: Ours) -> Iterator[Peer]:
    """A peer with the threads that we have."""
    from isobit.lab.bench import Peer

    if args.cache != "f16":
        raise InputError(f"--cache is {args.cache}; the peers run with f16, so compare with --cache f16")
    peer = Peer(name, resolve_model(args.model), ours.runner.threads, python=args.peer_python)
    try:
        yield peer
    finally:
        peer.close()


def header(args: argparse.Namespace, ours: Ours) -> dict[str, Any]:
    """Machine, versions and model."""
    from isobit.cli.doctor import make_report

    facts, _ = make_report()
    return {
        "model": args.model,
        "file": ours.model.path.name,
        "file_bytes": ours.model.checkpoint.file.num_bytes,
        "numerics": ours.model.numerics,
        "threads": ours.runner.threads,
        "isa": ours.runner.isa,
        "machine": {
            "processor": facts["processor"],
            "threads": facts["threads"],
            "load_average": os.getloadavg()[0],
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "versions": facts["versions"],
    }


def table(head: dict[str, Any], engines: list[dict[str, Any]], report: Report) -> Iterator[str]:
    """The result for reading."""
    processor = head["machine"]["processor"]["model"]
    yield f"{head['file']} ({size_text(head['file_bytes'])}), {head['numerics']}"
    yield f"{processor}, {head['threads']} threads, {head['isa']}, {size_text(head['machine']['memory_bytes'])} memory"
    load = head["machine"]["load_average"]
    if load > BUSY:
        yield f"note: the load average was {load:.1f} at the start; other programs disturb the figures,"
        yield "      most of all those of engines whose threads spin while they wait"
    for engine in engines[1:]:
        settings = ", ".join(f"{name} {value}" for name, value in engine["settings"].items())
        yield f"{engine['name']} {engine['version']}: {settings}".translate({ord(c): None for c in "[]'"})
    yield (
        f"ceilings: read of {size_text(report.bytes_per_token)} {spread(report.read.times(1e-9))} GB/s, "
        f"dot {spread(report.dot.times(1e-12), 3)} TOPS, fma {spread(report.fma.times(1e-12), 3)} TFLOPS"
    )
    yield ""
    peers = [engine["name"] for engine in engines[1:]]
    rows = [["work", "tokens/s", "of the ceiling", "batch 1 ×", *(c for p in peers for c in (p, "× as fast"))]]
    rows += [_row(result, peers) for result in report.results]
    yield from aligned(rows)


def _row(result: Any, peers: list[str]) -> list[str]:
    prefill = result.work.kind == "pp"
    rate = result.rate.median * (1e-12 if prefill else 1e-9)
    amount = f"{rate:.3f} TOPS" if prefill else f"{rate:.1f} GB/s"
    cells = [result.work.label, spread(result.speeds["isobit"]), f"{amount}, {result.share.median:.0%}"]
    cells.append(f"{result.scaling.median:.2f}" if result.scaling else "")
    for peer in peers:
        cells += [spread(result.speeds[peer]), spread(result.ratios[peer], 2)]
    return cells


def spread(values: Spread, digits: int = 1) -> str:
    """Median, and in brackets the least and the greatest."""
    return f"{values.median:.{digits}f} ({values.min:.{digits}f}–{values.max:.{digits}f})"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines, columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _measure(args: argparse.Namespace, ours: Ours, peers: list[Peer], works: list[Work]) -> Report:
    from isobit.lab.bench import measure

    with progress("bench", args.progress) as report:
        return measure(ours, peers, works, args.reps, report)


def _profile(args: argparse.Namespace, model: Model, head: dict[str, Any]) -> int:
    from isobit.lab.bench.profile import profile

    if args.vs:
        print("isobit: --profile looks at Isobit only; --vs is not used", file=sys.stderr)
    profiles = profile(model, args.pp, args.tg, args.reps)
    if args.json:
        print_json({**head, "profiles": [one.json() for one in profiles]})
    else:
        print("\n\n".join("\n".join(_profile_lines(one)) for one in profiles))
    return 0


def _profile_lines(one: Profile) -> Iterator[str]:
    yield f"{one.label}: {1e3 * one.total:.3f} ms a pass, {1e3 * one.outside:.3f} ms of it outside of operations"
    rows = [[part, f"{1e3 * seconds:.3f} ms", f"{seconds / one.total:6.1%}"] for part, seconds in one.parts.items()]
    yield from aligned(rows)

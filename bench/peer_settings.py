"""Which settings make each peer fastest: every combination, in rounds. Its result belongs into `PEERS`.

python bench/peer_settings.py FILE.gguf [--peer-python PATH] [--vs llama.cpp,ik] [-t THREADS] [--reps N]
"""

from __future__ import annotations

import argparse
import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from isobit import _native
from isobit.lab.bench import PEERS, Peer, Work
from isobit.lab.bench.statistics import Spread

WORKS = (Work("pp", 512), Work("tg", 32), Work("tg", 32, 8), Work("tg", 32, 1, 512))


CHOICES: dict[str, tuple[Any, ...]] = {"flash_attn": (False, True), "repack": ([], ["pp", "tg"])}


def combinations(name: str) -> list[dict[str, Any]]:
    """All ways to set the peer's switches."""
    switches = list(PEERS[name].settings)
    return [dict(zip(switches, v, strict=True)) for v in itertools.product(*(CHOICES[s] for s in switches))]


def measure(name: str, args: argparse.Namespace) -> None:
    with ExitStack() as stack:
        running = []
        for settings in combinations(name):
            peer = Peer(name, args.file, args.threads, python=args.peer_python, settings=settings)
            stack.callback(peer.close)
            running.append((settings, peer))
        for work in WORKS:
            rounds = [[peer.run(work) for _, peer in running] for _ in range(args.reps + 1)][1:]
            for (settings, _), seconds in zip(running, zip(*rounds, strict=True), strict=True):
                speed = Spread.of([work.all_tokens / s for s in seconds])
                print(f"{name:10} {work.label:18} {speed.median:8.1f} ({speed.min:.1f}–{speed.max:.1f})  {settings}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--vs", default="llama.cpp,ik")
    parser.add_argument("--peer-python", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=_native.default_threads())
    parser.add_argument("--reps", type=int, default=3)
    args = parser.parse_args()
    for name in args.vs.split(","):
        measure(name, args)


if __name__ == "__main__":
    main()

"""The README's table of speed: `isobit bench` for each model beside the other engines.

    python bench/table.py [MODEL …] [--vs llama.cpp,ik] [--peer-python PATH] [--json FILE] [-- OPTIONS OF BENCH …]

Prints Markdown: tokens per second, the median of the rounds, and in brackets how many times as fast as each peer with
the least and the greatest ratio of a round. Let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isobit.hub.catalogue import CATALOGUE


def bench(model: str, options: list[str]) -> dict[str, Any]:
    """The JSON of one run, in a process of its own so that one model's memory is gone before the next."""
    command = [sys.executable, "-m", "isobit.cli.main", "bench", model, "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with exit code {done.returncode}")
    return dict(json.loads(done.stdout))


def table(reports: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown with a line for each model and work."""
    peers = [engine["name"] for engine in reports[0]["engines"][1:]]
    heads = ["model", "work", "isobit, tokens/s", "of the ceiling", *(f"{peer} (× as fast)" for peer in peers)]
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for report in reports:
        for work in report["works"]:
            yield f"| {report['model']} | {' | '.join(cells(work, peers))} |"


def cells(work: dict[str, Any], peers: list[str]) -> Iterator[str]:
    speeds = work["tokens_per_second"]
    share = work.get("share_of_dot_peak") or work["share_of_plain_read"]
    yield work["label"]
    yield f"{speeds['isobit']['median']:.1f}"
    yield f"{share['median']:.0%}"
    for peer in peers:
        ratio = work["ratio_to_peer"][peer]
        yield f"{speeds[peer]['median']:.1f} ({ratio['median']:.2f}; {ratio['min']:.2f}–{ratio['max']:.2f})"


def about(report: dict[str, Any]) -> str:
    machine = report["machine"]
    peers = ", ".join(
        f"{e['name']} {e['version']} ({', '.join(f'{k} {v}' for k, v in e['settings'].items())})"
        for e in report["engines"][1:]
    ).translate({ord(c): None for c in "[]'"})
    return (
        f"{machine['processor']['model']}, {report['threads']} threads, {report['isa']}, {report['reps']} rounds, "
        f"load average {machine['load_average']:.1f} at the start. {peers}"
    )


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before and after `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=tuple(CATALOGUE), metavar="MODEL")
    parser.add_argument("--vs", default="llama.cpp,ik", help="other engines; empty for none (default: %(default)s)")
    parser.add_argument("--peer-python")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    own, rest = split(sys.argv[1:])
    args = parser.parse_args(own)
    options = [*(["--vs", args.vs] if args.vs else []), "--progress", *rest]
    if args.peer_python:
        options += ["--peer-python", args.peer_python]
    reports = []
    for model in args.models:
        reports.append(bench(model, options))
        if args.json:  # after each model, so that an end in the middle loses little
            args.json.write_text(json.dumps(reports, indent=1), encoding="utf-8")
    print("\n".join([*table(reports), "", about(reports[0])]))


if __name__ == "__main__":
    main()

"""`isobit certify`: the matrix of the promise, run on a model."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from isobit.cli.common import add_json_argument, open_model, print_json, progress
from isobit.cli.options import add_model

if TYPE_CHECKING:
    from isobit.lab.certify import CaseResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; exit code 1 when a case differs."""
    from isobit.lab.certify import certifier_for

    results: list[CaseResult] = []
    with open_model(args) as model, progress("certify") as report:
        certifier = certifier_for(model)
        total = certifier.count()
        for result in certifier.run():
            results.append(result)
            report(len(results), total)
            if not args.json:
                print(line(result), flush=True)
    ok = all(result.ok for result in results)
    if args.json:
        cases = [
            {"name": r.name, "sha256": r.sha256, "ok": r.ok, **({"place": str(r.place)} if r.place else {})}
            for r in results
        ]
        print_json({"ok": ok, "model": args.model, "numerics": model.numerics, "cases": cases})
    elif ok:
        print(f"all {len(results)} cases agree, {model.numerics}")
    else:
        failed = sum(not r.ok for r in results)
        print(f"isobit: {failed} of {len(results)} cases differ", file=sys.stderr)
    return 0 if ok else 1


def line(result: CaseResult) -> str:
    """One case, one line."""
    verdict = "ok" if result.ok else f"DIFFERS: {result.place}"
    return f"{result.sha256[:16]}  {result.name:<36} {verdict}"

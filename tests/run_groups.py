"""Runs groups of tests one after the other and prints the sum of all at the end.

`python tests/run_groups.py [--seed N] GROUP …` where a group is a folder beside this file; one that is not there
is passed over. Exit code 1 if a test failed, pytest broke down, or no test ran at all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parent
NO_TESTS = 5
FAILED = 1


class Counts(NamedTuple):
    """Tests of a group; an error in a fixture or while importing counts as failed."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run_group(group: str, seed: int) -> Counts:
    """Runs one group in a process of its own, so that a crash is told and not the end."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", str(TESTS / group), f"--junitxml={report}"]
        code = subprocess.run([*command, f"--randomly-seed={seed}"], cwd=TESTS.parent, check=False).returncode
        return read_report(report, code)


def read_report(report: Path, code: int) -> Counts:
    """The counts of a finished run; one failure more where it ended in a way that no test accounts for."""
    counts = Counts(0, 0, 0)
    try:
        suites = ElementTree.parse(report).getroot().iter("testsuite")
        totals = [
            {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")} for suite in suites
        ]
    except (OSError, ElementTree.ParseError):  # pytest itself crashed
        return Counts(0, 1, 0)
    for total in totals:
        failed = total["failures"] + total["errors"]
        # A test that fails and whose clean-up then errs too counts once as a test and twice as failed.
        passed = max(total["tests"] - failed - total["skipped"], 0)
        counts = Counts(counts.passed + passed, counts.failed + failed, counts.skipped + total["skipped"])
    if code not in (0, NO_TESTS) and counts.failed == 0:
        return counts._replace(failed=1)
    return counts


def main() -> int:
    """Runs the groups named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("groups", nargs="+")
    parser.add_argument("--seed", type=int, default=20261201, help="of the tests' order")
    args = parser.parse_args()
    total = Counts(0, 0, 0)
    for group in args.groups:
        if not any((TESTS / group).glob("test_*.py")):
            print(f"== {group}: no tests", flush=True)
            continue
        print(f"== {group}", flush=True)
        counts = run_group(group, args.seed)
        print(f"== {group}: {counts}", flush=True)
        total = Counts(*(a + b for a, b in zip(total, counts, strict=True)))
    print(total, flush=True)
    return FAILED if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Shows what decides how Isobit runs here: processor features, instruction sets, threads, versions.

None of it changes a bit of any result; the numerics ids say what does. Exit code 1 where the compiled part
of Isobit is missing, since then nothing can be computed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import isobit
from isobit.cli.common import add_json_argument, print_json
from isobit.hub import CATALOGUE, is_pulled, models_folder
from isobit.numerics import ACTIVATIONS, CACHES, numerics_id

_LIBRARIES = ("numpy", "tokenizers", "jinja2", "rich", "platformdirs", "huggingface-hub")
_CGROUP = Path("/sys/fs/cgroup")

Report = dict[str, object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    report, ok = make_report()
    if args.json:
        print_json(report)
    else:
        for section, values in report.items():
            _print_section(section, values)
    return 0 if ok else 1


def make_report() -> tuple[Report, bool]:
    """The report by sections, and whether the compiled part is there."""
    native, problem = _load_native()
    folder = models_folder()
    report: Report = {
        "processor": _processor(native),
        "threads": _threads(native),
        "versions": _versions(native),
        "numerics": {
            "default": isobit.NUMERICS,
            "all": [numerics_id(activations, cache) for activations in ACTIVATIONS for cache in CACHES],
        },
        "models": {
            "folder": str(folder),
            "pulled": [entry.name for entry in CATALOGUE.values() if is_pulled(entry)],
        },
    }
    if problem:
        report["problem"] = problem
    return report, native is not None


def _load_native() -> tuple[ModuleType | None, str | None]:
    try:
        from isobit import _native
    except ImportError as error:
        return (
            None,
            f"the compiled part of Isobit (isobit._native) cannot be loaded: {error}; install Isobit again",
        )
    return _native, None


def _processor(native: ModuleType | None) -> Report:
    report: Report = {"model": _processor_name(), "machine": platform.machine()}
    if native is not None:
        report["features"] = {name: bool(there) for name, there in native.cpu_features().items()}
        report["instruction sets"] = list(native.available_isas())
        report["used by default"] = native.default_isa()
    return report


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or "unknown"


def _threads(native: ModuleType | None) -> Report:
    report: Report = {"cores of the machine": os.cpu_count() or 1}
    if hasattr(os, "sched_getaffinity"):
        report["cores this process may use"] = len(os.sched_getaffinity(0))
    limit = cgroup_limit(_CGROUP)
    report["limit of the container, cores"] = "none" if limit is None else limit
    if native is not None:
        report["used by default"] = native.default_threads()
    return report


def cgroup_limit(root: Path) -> float | None:
    """Cores' worth of time that the control group under `root` allows (v2 or v1), or None for no limit."""
    try:
        quota, period = (root / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (root / "cpu" / "cpu.cfs_period_us").read_text(encoding="ascii")
        except (OSError, ValueError):
            return None
    try:
        return None if int(quota) <= 0 else int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return None


def _versions(native: ModuleType | None) -> Report:
    report: Report = {
        "isobit": isobit.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }
    for name in _LIBRARIES:
        try:
            report[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            report[name] = "not installed"
    if native is not None:
        report |= {f"native {name}": value for name, value in native.build_info().items()}
    return report


def _print_section(section: str, values: object) -> None:
    if not isinstance(values, dict):
        print(f"{section}: {values}")
        return
    print(section)
    width = max(map(len, values))
    for name, value in values.items():
        print(f"  {name:{width}}  {_text(value)}")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(name if there else f"no {name}" for name, there in value.items())
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

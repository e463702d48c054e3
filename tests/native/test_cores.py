"""The default number of threads: affinity, physical cores, and quotas of control groups of both versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isobit import _native

CPUS = sorted(os.sched_getaffinity(0))
ASK = "import os, sys; os.sched_setaffinity(0, eval(sys.argv[1])); from isobit import _native; "


def system(root: Path, files: dict[str, str], *, cores: dict[int, str] | None = None) -> str:
    """A folder that looks like the root of a system: each processor a core of its own unless `cores` says else."""
    siblings = {cpu: str(cpu) for cpu in CPUS} | (cores or {})
    topology = {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": s for cpu, s in siblings.items()}
    for name, text in (files | topology).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return str(root)


def default_threads(root: str, cpus: list[int]) -> int:
    """In a process bound to `cpus`."""
    code = ASK + f"print(_native.default_threads({root!r}))"
    return int(subprocess.check_output([sys.executable, "-c", code, repr(cpus)]))


UNBOUND = "max 100000"
ONE_CORE = "150000 100000"


def v2(**quotas: str) -> dict[str, str]:
    """cpu.max of some groups around the process's own, /outer/inner; the mount is `root`."""
    folders = {"root": "", "outer": "outer/", "inner": "outer/inner/", "other": "other/", "hybrid": "unified/outer/"}
    files = {f"sys/fs/cgroup/{folders[group]}cpu.max": quota for group, quota in quotas.items()}
    return {"proc/self/cgroup": "0::/outer/inner"} | files


def v1(group: str, quota: str, period: str = "100000") -> dict[str, str]:
    """The two files of a group; the process is in /docker/1f."""
    folder = f"sys/fs/cgroup/{group}"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}
    return {"proc/self/cgroup": "9:name=systemd:/\n4:cpuset:/\n3:cpu,cpuacct:/docker/1f"} | files


@pytest.mark.parametrize(
    "files",
    [
        v2(inner=ONE_CORE),
        v2(inner=UNBOUND, outer=ONE_CORE),
        v2(root=ONE_CORE),  # a container that sees the host's path
        v2(hybrid=ONE_CORE),
        v2(root="1000 100000"),  # less than a core is one thread
        {"sys/fs/cgroup/cpu.max": ONE_CORE},  # /proc is hidden
        v1("cpu,cpuacct/docker/1f", "150000"),
        v1("cpu/docker", "99999", "50000"),
        v1("cpu", "100000"),
    ],
)
def test_a_quota_of_one_core(tmp_path: Path, files: dict[str, str]) -> None:
    assert _native.default_threads(system(tmp_path, files)) == 1


@pytest.mark.parametrize(
    "files",
    [
        {},
        v2(inner=UNBOUND),
        v2(other=ONE_CORE),
        v2(root="99999999999 100000"),
        v2(root="nonsense"),
        v2(root="100000 0"),
        v1("cpu/docker/1f", "-1"),
        v1("cpu/docker/1f", "100000", ""),
        v1("cpuset", "100000"),
    ],
)
def test_no_quota(tmp_path: Path, files: dict[str, str]) -> None:
    assert _native.default_threads(system(tmp_path, files)) == len(CPUS)


def test_two_processors_of_one_core_are_one_thread(tmp_path: Path) -> None:
    root = system(tmp_path, {}, cores=dict.fromkeys(CPUS, "0-63"))
    assert _native.default_threads(root) == 1


def test_affinity(tmp_path: Path) -> None:
    root = system(tmp_path, {})
    for count in range(1, len(CPUS) + 1):
        assert default_threads(root, CPUS[:count]) == count
    assert default_threads("/", CPUS[-1:]) == 1

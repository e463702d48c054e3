from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import isobit
from isobit.cli.doctor import cgroup_limit
from isobit.cli.main import main
from isobit.numerics import ACTIVATIONS, CACHES, numerics_id


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOBIT_HOME", str(tmp_path))


def test_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("isobit._native")
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["processor"]["used by default"] in report["processor"]["instruction sets"]
    assert report["threads"]["used by default"] >= 1
    assert report["versions"]["isobit"] == isobit.__version__
    assert report["numerics"]["default"] == numerics_id()
    assert set(report["numerics"]["all"]) == {numerics_id(a, c) for a in ACTIVATIONS for c in CACHES}
    assert report["models"] == {"folder": str(tmp_path / "models"), "pulled": []}
    assert main(["doctor"]) == 0
    assert numerics_id() in capsys.readouterr().out


def test_without_the_compiled_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isobit._native", None)
    monkeypatch.delattr(isobit, "_native", raising=False)
    assert main(["doctor"]) == 1
    assert "problem: the compiled part of Isobit (isobit._native) cannot be loaded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_limit_of_a_container(tmp_path: Path, files: dict[str, str], limit: float | None) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cgroup_limit(tmp_path) == limit

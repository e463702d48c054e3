"""`isobit bench --vs` with the real engines; skipped for those that are not installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from isobit.cli.main import main
from isobit.lab.bench import PEERS, Peer
from isobit.lab.bench.peers import PeerError


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if importlib.util.find_spec(PEERS[name].module) is None:
        pytest.skip(f"{PEERS[name].package} is not installed")
    return name


def test_rounds(peer: str, model_path: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = model_path("smollm2-135m")
    sizes = ["--pp", "32", "--tg", "2", "--batch", "1,2", "--ctx", "40", "--reps", "1"]
    assert main(["bench", str(path), *sizes, "--vs", peer, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [engine["name"] for engine in report["engines"]] == ["isobit", peer]
    assert report["engines"][1]["settings"] == {**PEERS[peer].settings, "threads": report["threads"]}
    for work in report["works"]:
        speeds = [work["tokens_per_second"][name]["median"] for name in ("isobit", peer)]
        assert work["ratio_to_peer"][peer]["median"] == pytest.approx(speeds[0] / speeds[1])


def test_a_file_that_is_no_model(peer: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    with pytest.raises(PeerError, match=r"cannot load|ended with"):
        Peer(peer, broken, 1)

"""The processes of other engines, with a real one that speaks the protocol, and dies, in place of an engine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isobit.lab.bench import PEERS, Peer, Work
from isobit.lab.bench import peers as peers_module
from isobit.lab.bench.peers import PeerError, PeerKind

HELLO = 'print(json.dumps({"version": "9", "settings": options["settings"]}), flush=True)'
START = f"import json, sys, time\noptions = json.loads(sys.argv[1])\n{HELLO}\n"
ECHO = """
for line in sys.stdin:
    work = json.loads(line)
    print(json.dumps({"seconds": work["tokens"] * work["batch"] + work["depth"]}), flush=True)
"""

Start = Callable[[str], Peer]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a worker with the given source under the name of a module that is installed."""
    monkeypatch.setitem(PEERS, "echo", PeerKind("json", "echo-package", {"fast": True}))

    def start(source: str) -> Peer:
        worker = tmp_path / "worker.py"
        worker.write_text(source, encoding="utf-8")
        return Peer("echo", tmp_path / "model.gguf", 3, worker=worker)

    return start


def test_protocol(start: Start) -> None:
    peer = start(START + ECHO)
    try:
        assert peer.version == "9"
        assert peer.settings == {"fast": True, "threads": 3}
        assert peer.run(Work("tg", 5, 2, 100)) == 110
        assert peer.run(Work("pp", 7)) == 7
    finally:
        peer.close()
    peer.close()
    assert peer._process.returncode is not None


def test_crash(start: Start) -> None:
    peer = start(START + "sys.stdin.readline()\nimport os\nos.write(2, b'GGML_ASSERT(S > 0)\\nlong trace')\nos.abort()")
    with pytest.raises(PeerError, match=r"echo ended with signal 6 \(GGML_ASSERT\(S > 0\)\)"):
        peer.run(Work("pp", 5))
    with pytest.raises(PeerError, match="ended"):
        peer.run(Work("pp", 5))
    peer.close()


def test_end_before_the_first_line(start: Start) -> None:
    with pytest.raises(PeerError, match=r"echo ended with exit code 3 \(no such library\)"):
        start("import sys\nprint('no such library', file=sys.stderr)\nsys.exit(3)")


def test_error_line(start: Start) -> None:
    with pytest.raises(PeerError, match="echo failed: it cannot load x"):
        start('print(\'{"error": "it cannot load x"}\')')


def test_hang(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = start(START + "time.sleep(600)")
    monkeypatch.setattr(peers_module, "TIMEOUT", 0.2)
    with pytest.raises(PeerError, match="has not answered"):
        peer.run(Work("pp", 5))
    peer.close()


def test_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PEERS, "echo", PeerKind("no_such_module_at_all", "echo-package", {}))
    with pytest.raises(PeerError, match=r"echo is not installed for .*--no-binary echo-package echo-package"):
        Peer("echo", tmp_path, 1)


def test_unknown(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"no peer 'gpt'; known are llama\.cpp, ik"):
        Peer("gpt", tmp_path, 1, python=Path(sys.executable))

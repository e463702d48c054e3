"""Other engines, each in a process of its own that loads the model once (`peer_worker.py`)."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isobit.errors import IsobitError
from isobit.lab.bench.works import SEED, Work

WORKER = Path(__file__).with_name("peer_worker.py")
TIMEOUT = 600.0
"""Seconds for one answer; loading with repacking and the longest prefill are far below."""
_SHOWN = 300  # characters of a dead peer's last words


@dataclass(frozen=True)
class PeerKind:
    """An engine that can be measured beside ours, with the settings it runs under unless others are asked for."""

    module: str
    package: str
    settings: Mapping[str, Any]


PEERS: dict[str, PeerKind] = {
    "llama.cpp": PeerKind("llama_cpp", "llama-cpp-python", {"flash_attn": True}),
    "ik": PeerKind("ik_llama_cpp", "ik-llama-cpp-python", {"flash_attn": True, "repack": ["tg"]}),
}
"""The settings are the fastest for the peer, by `bench/peer_settings.py`; `repack` lists the kinds of work that use
weights repacked while loading. Other processors may prefer others: run it there before publishing figures. On 2 cores
of an AMD EPYC with AVX-512 (Zen 4), Qwen2.5-Coder-0.5B Q4_K_M, tokens/s:

    llama.cpp 0.3.36  flash attention on   pp 512: 244   tg: 47   tg, batch 8:  97   tg after 512: 43
                                     off           216       45                 88                 42
    ik 0.1.5          flash attention on           480       71                157                 67
                                     off           376       72                156                 66
                      on, repacked                 421       97                210                 83

Repacking makes ik's decode faster and its prefill slower, so it has both: each work with the weights that suit it.
"""


class PeerError(IsobitError):
    """Another engine is not installed, failed or ended."""


class Peer:
    """A running peer. Use `close`, or it stays until our process ends. Raises PeerError whenever it fails."""

    def __init__(
        self,
        name: str,
        model: Path,
        threads: int,
        *,
        python: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        worker: Path = WORKER,
    ) -> None:
        kind = peer_kind(name)
        self.name = name
        self.python = str(python or sys.executable)
        check_installed(name, self.python)
        options = {
            "module": kind.module,
            "model": str(model),
            "threads": threads,
            "seed": SEED,
            "settings": dict(settings or kind.settings),
        }
        self._words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed with the peer)
        self._process = subprocess.Popen(
            [self.python, str(worker), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
        )
        try:
            hello = self._answer()
        except BaseException:
            self.close()
            raise
        self.version = str(hello["version"])
        self.settings: dict[str, Any] = {**hello["settings"], "threads": threads}

    def run(self, work: Work) -> float:
        """Seconds of one run of `work`."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(asdict(work)), file=self._process.stdin, flush=True)
        except OSError:
            raise self._ended() from None
        return float(self._answer()["seconds"])

    def close(self) -> None:
        """Ends the process; calling it twice is fine."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what it was told and did not read
                    stream.close()

    def _answer(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], TIMEOUT)[0]:
            raise PeerError(f"{self.name} has not answered for {TIMEOUT:.0f} s; measure less, or without it")
        line = stream.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name} failed: {answer['error']}{self._last_words()}; try it alone, or without it")
        return answer

    def _ended(self) -> PeerError:
        code = self._process.wait()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return PeerError(
            f"{self.name} ended with {how}{self._last_words()}; measure without it, or give it more memory"
        )

    def _last_words(self) -> str:
        self._words.flush()
        self._words.seek(0)
        lines = [line for line in self._words.read().splitlines() if line.strip()]
        # A failed assertion is followed by a long trace of the stack.
        telling = [line for line in lines if "ASSERT" in line or "error" in line.lower()] or lines
        words = " ".join(" ".join(telling).split())[-_SHOWN:]
        return f" ({words})" if words else ""


def peer_kind(name: str) -> PeerKind:
    """A peer by name. Raises PeerError for one that is not known."""
    if name not in PEERS:
        raise PeerError(f"there is no peer {name!r}; known are {', '.join(PEERS)}")
    return PEERS[name]


def check_installed(name: str, python: str) -> None:
    """Raises PeerError where the interpreter is none, or cannot find the peer's package."""
    kind = peer_kind(name)
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({kind.module!r}) is None)"
    try:
        found = subprocess.run([python, "-c", look], capture_output=True, check=False, timeout=TIMEOUT)
    except OSError as error:
        raise PeerError(f"{python} cannot be started: {error.strerror}; --peer-python names an interpreter") from None
    if found.returncode:
        raise PeerError(
            f"{name} is not installed for {python}; install it with `CMAKE_ARGS=-DGGML_NATIVE=ON {python} -m pip "
            f"install --no-binary {kind.package} {kind.package}`, or name an interpreter that has it (--peer-python)"
        )

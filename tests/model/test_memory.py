"""What a loaded model takes of the machine's memory, and that the file's pages come back when they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isobit.backends.cpu import CpuRunner
from isobit.formats import GGUFTensor, load_checkpoint
from isobit.model import Model
from isobit.models import build_program

MB = 1_000_000
BESIDES = 150 * MB  # Python, its libraries, the tokenizer, buffers
NAMES = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")

# Not ru_maxrss: that is at least the memory of the process that started this one.
REPORT = """
import json, sys
import isobit

def resident():
    lines = (line.split() for line in open("/proc/self/status"))
    return {words[0].strip(":"): int(words[1]) * 1024 for words in lines if words[0].startswith(("Rss", "VmHWM"))}

model = isobit.load(sys.argv[1], threads=2)
loaded = resident()
list(model.stream(list(range(100, 116)), max_tokens=4, temperature=0))
cache = model.engine.pool.cache
page = (cache.keys.nbytes + cache.values.nbytes) // cache.num_pages
packed = model.runner._weights.native.bytes
print(json.dumps({"peak": resident()["VmHWM"], "loaded": loaded, "page": page, "packed": packed}))
"""


@pytest.fixture(scope="module", params=NAMES)
def path(request, model_path) -> Path:
    return model_path(request.param)


def report(path: Path) -> dict:
    return json.loads(subprocess.check_output([sys.executable, "-c", REPORT, str(path)]))


def test_peak_memory(path: Path) -> None:
    """At no time, loading included, are there two copies of the weights."""
    size = path.stat().st_size
    seen = report(path)
    assert seen["packed"] <= 1.05 * size
    assert seen["peak"] <= 1.15 * size + seen["page"] + BESIDES


def test_the_file_is_let_go_of_after_packing(path: Path) -> None:
    """Of the file's pages only what Python read of it stays, and the program's own libraries."""
    assert report(path)["loaded"]["RssFile"] <= 60 * MB


def test_released_pages_read_the_same(path: Path) -> None:
    checkpoint = load_checkpoint(path)
    program = build_program(checkpoint)
    before = {name: checksum(tensor) for name, tensor in checkpoint.tensors.items()}
    CpuRunner(program).close()
    assert {name: checksum(tensor) for name, tensor in checkpoint.tensors.items()} == before
    assert len(set(before.values())) > 1


def checksum(tensor: GGUFTensor) -> int:
    return int(np.add.reduce(tensor.data, dtype=np.uint64))


def test_a_variant_made_after_the_release_gives_the_same_logits(model_path) -> None:
    ids = list(range(100, 120))
    with Model(model_path("smollm2-135m")) as model, model.variant(threads=1) as other:
        assert np.array_equal(model.logits(ids).view(np.int32), other.logits(ids).view(np.int32))

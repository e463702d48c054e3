"""certify passes on real models, and finds a kernel whose order depends on the shape of its input."""

from __future__ import annotations

import json

import pytest

import isobit
from helpers.tiny_model import write_tiny_model
from isobit.cli.main import main
from isobit.lab.certify import certifier_for

MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.timeout(1200)
def test_the_promise_holds(name: str, model_path, capsys) -> None:
    assert main(["certify", str(model_path(name)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert len(report["cases"]) > 50
    assert all(case["ok"] for case in report["cases"])


def test_int16_and_f32_too(model_path) -> None:
    with isobit.load(str(model_path("smollm2-135m")), activations="int16", cache="f32") as model:
        assert all(result.ok for result in certifier_for(model).run())


def test_a_shape_dependent_order_is_found(tmp_path, capsys) -> None:
    path = str(write_tiny_model(tmp_path / "tiny.gguf"))
    assert main(["certify", path]) == 0
    capsys.readouterr()
    assert main(["certify", path, "--isa", "specimen", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    failed = {case["name"]: case["place"] for case in report["cases"] if not case["ok"]}
    # One token at a time against many: the first sum of more than one chunk is the feed-forward's.
    assert failed["chunk 1"] == "first difference in layers.0.down_proj, token 0"
    assert "reference backend" in failed

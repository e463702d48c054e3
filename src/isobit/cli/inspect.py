"""Shows what is in a model file: metadata, weight types, chat template, and the memory it needs.

The memory is that of the weights, which take the file's size once they are packed (within 5 %), plus a key/value
cache in F16 for --ctx tokens. Python, tokenizer and buffers come on top, mostly less than 100 MB.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from isobit.cli.common import (
    add_json_argument,
    add_model_argument,
    integer,
    print_json,
    resolve_model,
    size_text,
    visible,
)
from isobit.errors import InputError, IsobitError
from isobit.formats import Checkpoint, GGUFTensor, load_checkpoint
from isobit.models import build_program
from isobit.ops import Attention, Program
from isobit.ops.batch import PAGE_SIZE

_F16_BYTES = 2
_ITEMS_SHOWN = 3
_TEXT_SHOWN = 70
_TEMPLATE_PREFIX = "tokenizer.chat_template"

Report = dict[str, Any]
"""JSON values by the keys of --json."""


@dataclass(frozen=True)
class TypeShare:
    """How much of a file is of one weight type. `parameters` counts weights."""

    name: str
    tensors: int
    parameters: int
    bytes: int
    supported: bool


@dataclass(frozen=True)
class Memory:
    """Bytes needed to run with `context` tokens in the cache. `window_layers` look back `window` tokens only."""

    context: int
    file_bytes: int
    kv_cache_bytes: int
    total_bytes: int
    layers: int
    window: int | None
    window_layers: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_model_argument(parser)
    parser.add_argument(
        "--ctx", type=integer(1), metavar="N", help="context length in tokens (default: the model's own)"
    )
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Inspects MODEL."""
    path = resolve_model(args.model)
    checkpoint = load_checkpoint(path)
    try:
        report = make_report(path, checkpoint, args.ctx, with_tensors=args.tensors)
    finally:
        checkpoint.close()
    if args.json:
        print_json(report)
    else:
        print("\n".join(_lines(report)))
    return 0


def make_report(path: Path, checkpoint: Checkpoint, context: int | None, *, with_tensors: bool) -> Report:
    """Everything there is to show, as JSON values. Raises InputError for a context the model cannot have."""
    shares = type_shares(checkpoint.tensors.values())
    parameters = sum(share.parameters for share in shares)
    weight_bytes = sum(share.bytes for share in shares)
    program, reason = _program(checkpoint)
    report: Report = {
        "model": str(path),
        "files": [str(part) for part in checkpoint.file.paths],
        "size": checkpoint.file.num_bytes,
        "gguf_version": checkpoint.file.version,
        "alignment": checkpoint.file.alignment,
        "architecture": checkpoint.architecture,
        "supported": program is not None,
        "reason": reason,
        "parameters": parameters,
        "bits_per_weight": round(8 * weight_bytes / parameters, 3) if parameters else None,
        "types": [asdict(share) for share in shares],
        "memory": asdict(memory_needed(program, checkpoint.file.num_bytes, context)) if program else None,
        "metadata": {key: abbreviated(value) for key, value in checkpoint.metadata.items() if not _is_template(key)},
        "chat_templates": {key: value for key, value in checkpoint.metadata.items() if _is_template(key)},
    }
    if with_tensors:
        report["tensors"] = [_tensor(tensor) for tensor in checkpoint.tensors.values()]
    return report


def type_shares(tensors: Iterable[GGUFTensor]) -> list[TypeShare]:
    """The shares of the weight types, the largest first."""
    groups: dict[str, list[GGUFTensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.type.name, []).append(tensor)
    shares = [
        TypeShare(
            name,
            len(group),
            sum(math.prod(tensor.shape) for tensor in group),
            sum(int(tensor.data.size) for tensor in group),
            group[0].type.supported,
        )
        for name, group in groups.items()
    ]
    return sorted(shares, key=lambda share: -share.bytes)


def memory_needed(program: Program, file_bytes: int, context: int | None) -> Memory:
    """Memory for `context` tokens (None: as many as the model was trained for), cache in F16, whole pages.

    Layers with a sliding window keep all positions too. Raises InputError for more than the model takes.
    """
    if context is None:
        context = program.context_length
    if context > program.context_length:
        raise InputError(f"--ctx is {context}; this model takes at most {program.context_length} tokens")
    positions = math.ceil(context / PAGE_SIZE) * PAGE_SIZE
    per_position = program.num_layers * program.num_kv_heads * program.head_dim * 2 * _F16_BYTES
    windows = [op.window for op in program.ops if isinstance(op, Attention) and op.window]
    cache = positions * per_position
    return Memory(
        context,
        file_bytes,
        cache,
        file_bytes + cache,
        program.num_layers,
        max(windows, default=None),
        len(windows),
    )


def abbreviated(value: object) -> object:
    """A metadata value as JSON: arrays as their length and first items, non-finite floats as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float | str):
        return value
    items = value if isinstance(value, list) else value.tolist()  # type: ignore[attr-defined]
    return {"length": len(items), "first": [abbreviated(item) for item in items[:_ITEMS_SHOWN]]}


def _program(checkpoint: Checkpoint) -> tuple[Program | None, str | None]:
    """The program, or why there is none: the same answer that loading the model would give."""
    try:
        return build_program(checkpoint), None
    except IsobitError as error:
        return None, str(error)


def _is_template(key: str) -> bool:
    return key == _TEMPLATE_PREFIX or key.startswith(f"{_TEMPLATE_PREFIX}.")


def _tensor(tensor: GGUFTensor) -> Report:
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "type": tensor.type.name,
        "bytes": int(tensor.data.size),
        "offset": tensor.offset,
        "supported": tensor.type.supported,
    }


def _lines(report: Report) -> Iterable[str]:
    """The report as text; strings of the file are made harmless."""
    sections = (_overview(report), _type_lines(report), _memory_lines(report), _metadata_lines(report))
    yield from map(visible, chain(*sections, _template_lines(report), _tensor_lines(report)))


def _overview(report: Report) -> Iterable[str]:
    files = len(report["files"])
    parts = f" in {files} files" if files > 1 else ""
    supported = "yes" if report["supported"] else f"no: {report['reason']}"
    yield f"model         {report['model']}"
    yield f"file          GGUF version {report['gguf_version']}, {size_text(report['size'])}{parts}"
    yield f"architecture  {report['architecture']}"
    yield f"supported     {supported}"
    yield f"parameters    {report['parameters']:,}, {report['bits_per_weight']} bits per weight"


def _type_lines(report: Report) -> Iterable[str]:
    yield ""
    yield f"{'type':8} {'tensors':>7} {'parameters':>15} {'bytes':>10}"
    for share in report["types"]:
        note = "" if share["supported"] else "  not supported"
        size = size_text(share["bytes"])
        yield f"{share['name']:8} {share['tensors']:7} {share['parameters']:15,} {size:>10}{note}"


def _memory_lines(report: Report) -> Iterable[str]:
    memory = report["memory"]
    if memory is None:
        return
    yield ""
    yield f"memory for {memory['context']} tokens (choose with --ctx)"
    yield f"  file            {size_text(memory['file_bytes']):>10}"
    yield f"  KV cache, F16   {size_text(memory['kv_cache_bytes']):>10}"
    yield f"  together        {size_text(memory['total_bytes']):>10}"
    if memory["window"]:
        layers = f"{memory['window_layers']} of {memory['layers']} layers"
        yield f"  {layers} attend to the last {memory['window']} tokens only"


def _metadata_lines(report: Report) -> Iterable[str]:
    yield ""
    yield "metadata"
    for key, value in report["metadata"].items():
        if isinstance(value, dict):
            more = ", …" if value["length"] > _ITEMS_SHOWN else ""
            items = ", ".join(_short(item) for item in value["first"])
            yield f"  {key} = {value['length']} items [{items}{more}]"
        else:
            yield f"  {key} = {_short(value)}"


def _template_lines(report: Report) -> Iterable[str]:
    templates = report["chat_templates"]
    yield ""
    if not templates:
        yield "chat template: none"
    for key, value in templates.items():
        yield "chat template" + key.removeprefix(_TEMPLATE_PREFIX).replace(".", " ")
        yield f"{value}"


def _tensor_lines(report: Report) -> Iterable[str]:
    if "tensors" not in report:
        return
    yield ""
    yield f"{'tensor':40} {'shape':>20} {'type':>8} {'bytes':>12} {'offset':>12}"
    for tensor in report["tensors"]:
        shape = " × ".join(map(str, tensor["shape"]))
        yield f"{tensor['name']:40} {shape:>20} {tensor['type']:>8} {tensor['bytes']:12} {tensor['offset']:12}"


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}… ({len(text)} characters)"

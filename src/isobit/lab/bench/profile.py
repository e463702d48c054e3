"""Where the time of a pass goes, by kind of operation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isobit.lab.bench.ours import Ours
from isobit.lab.bench.works import Work
from isobit.model import Model
from isobit.ops import (
    Add,
    Attention,
    Embed,
    GatedActivation,
    KvWrite,
    Linear,
    Program,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Softcap,
)

_KINDS: dict[type, str] = {
    Embed: "embed",
    RmsNorm: "norm",
    Rope: "rope",
    KvWrite: "cache write",
    Attention: "attention",
    GatedActivation: "activation",
    Add: "add",
    Scale: "scale",
    Softcap: "softcap",
    SelectRows: "select",
}


@dataclass(frozen=True)
class Profile:
    """Seconds of a pass: `total`, by kind of stage (the longest first), and outside of the stages."""

    label: str
    total: float
    parts: dict[str, float]

    @property
    def outside(self) -> float:
        """Seconds that no stage accounts for: the call, preparation, starting threads."""
        return self.total - sum(self.parts.values())

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        parts = [{"part": part, "seconds": s, "share": s / self.total} for part, s in self.parts.items()]
        return {"label": self.label, "seconds_per_pass": self.total, "outside": self.outside, "parts": parts}


def profile(model: Model, pp: int, tg: int, reps: int) -> list[Profile]:
    """Profiles of a prefill of `pp` tokens and of a step of decode (`tg` steps), the mean of `reps` runs.

    Raises InputError where the context is too small, or for another backend.
    """
    ours = Ours(model)
    works = [Work("pp", pp), Work("tg", tg)]
    ours.check(works)
    try:
        return [_profile(ours, work, reps) for work in works]
    finally:
        ours.close()


def _profile(ours: Ours, work: Work, reps: int) -> Profile:
    ours.run(work)  # warms up
    ours.runner.start_profile()
    started = time.perf_counter()
    for _ in range(reps):
        ours.run(work)
    passes = reps * (1 if work.kind == "pp" else work.tokens)
    total = (time.perf_counter() - started) / passes
    parts: dict[str, float] = {}
    stages = ours.runner.profile()
    labels = stage_labels(ours.model.program, [ops for ops, _ in stages])
    for label, (_, seconds) in zip(labels, stages, strict=True):
        parts[label] = parts.get(label, 0.0) + seconds / passes
    ranked = dict(sorted(parts.items(), key=lambda part: -part[1]))
    return Profile(work.label, total, ranked)


def stage_labels(program: Program, stages: Sequence[Sequence[int]]) -> list[str]:
    """What each stage does, such as `gate + up linear` or `add, norm, round`.

    stages: the operation of each of a stage's steps. A linear operation may round its input in a step before its own;
    the program's last operation has a last step more, which checks that the logits are finite.
    """
    steps = Counter(op for ops in stages for op in ops)
    last = len(program.ops) - 1
    steps[last] -= 1
    seen: Counter[int] = Counter()
    labels = []
    for ops in stages:
        linears, others = [], []
        for op in ops:
            seen[op] += 1
            if seen[op] > steps[op]:
                others.append("check")
            elif not isinstance(program.ops[op], Linear):
                others.append(_KINDS[type(program.ops[op])])
            elif seen[op] == steps[op]:
                linears.append(program.labels[op].rpartition(".")[2].removesuffix("_proj"))
            else:
                others.append("round")
        linear = [f"{' + '.join(linears)} linear"] if linears else []
        labels.append(", ".join(dict.fromkeys([*others, *linear])))
    return labels

"""Sampling: pure functions of logits, settings, seed and position. No state, no global random numbers."""

from isobit.sampling.params import SamplingParams
from isobit.sampling.sample import log_softmax, sample

__all__ = ["SamplingParams", "log_softmax", "sample"]

"""What all groups of tests share: real models by name, fixed seeds, the same hypothesis examples every time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from isobit.hub import models_folder, pull

settings.register_profile("isobit", derandomize=True, deadline=None)
settings.load_profile("isobit")


def pytest_configure() -> None:
    """Ctrl-C reaches the programs that tests start even where the run itself was started in the background.

    A shell lets its background jobs ignore SIGINT, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    """Tells what a run must be repeated with: the seed of the tests' order, and where models are."""
    seed = config.getoption("randomly_seed", default="none (pytest-randomly is not installed)")
    return f"isobit: seed {seed} (repeat with --randomly-seed={seed}), models in {models_folder()}"


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """A function from a model's name in the catalogue to its file, which is pulled if it is not there."""
    return pull

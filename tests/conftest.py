"""Configuration of all tests."""

import os
import secrets
import signal
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest

from programs import missing
from sampling import ALL

if "PYTEST_XDIST_WORKER" in os.environ:
    # several processes share the cores; BLAS and PyTorch read these variables when they are loaded
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# No deadlines: examples may be slow on a busy machine. The examples are the same in each run.
hypothesis.settings.register_profile(
    "onepass",
    deadline=None,
    max_examples=200 if ALL else 50,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("onepass")

# Selects settings of learners and other parameters; set here to be equal in all processes.
SEED = os.environ.setdefault("ONEPASS_TEST_SEED", str(secrets.randbelow(1_000_000)))


def _seed() -> str:
    """How to repeat the choice of parameters."""
    if ALL:
        return "parameters of tests: all"
    return f"parameters of tests: drawn with ONEPASS_TEST_SEED={SEED}"


def pytest_report_header() -> str:
    return _seed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With -q there is no header."""
    if not terminalreporter.showheader:
        terminalreporter.write_line(_seed())


def pytest_configure() -> None:
    """In CI, missing programs are an error instead of skipped tests."""
    if os.environ.get("CI") and missing():
        pytest.exit(f"not installed: {', '.join(missing())}. Try: make programs", returncode=1)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers of the printed seed."""
    return np.random.default_rng(int(SEED))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, in this process and in those started here.

    A program started in the background may ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

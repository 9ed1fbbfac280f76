"""What holds for all tests."""

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from programs import missing

if "PYTEST_XDIST_WORKER" in os.environ:
    # one of several processes that share the cores; whoever loads BLAS or PyTorch looks at these
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Nothing asserts a time: on a busy machine an example may take long, and be long in the making.
# The examples are the same in each run.
hypothesis.settings.register_profile(
    "onepass",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("onepass")


def pytest_configure() -> None:
    """In CI no test is skipped for want of a program."""
    if os.environ.get("CI") and missing():
        pytest.exit(f"not installed: {', '.join(missing())}. Try: make programs", returncode=1)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, here and in processes that are begun here.

    A program that was started in the background may have been told to ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

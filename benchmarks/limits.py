"""Limits of this machine, measured in the same run as the benchmarks."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas
from turns import turns

ROWS = 1024  # size of the multiplied matrices
LONG = 1 << 25  # number of doubles to read: 256 MB, larger than any cache


@dataclass(frozen=True)
class Limits:
    """Operations per second of dgemm, and bytes per second read from memory, on one thread."""

    peak: float
    bandwidth: float


def measured(rounds: int) -> Limits:
    """Measure both limits."""
    return Limits(peak(rounds), bandwidth(rounds))


def peak(rounds: int) -> float:
    """Measure floating-point operations per second of dgemm."""
    A = np.asfortranarray(np.random.default_rng(0).normal(size=(ROWS, ROWS)))

    def multiply(count: int) -> None:
        for _ in range(count):
            blas.dgemm(1.0, A, A)

    return 2.0 * ROWS**3 * float(np.median(turns({"dgemm": multiply}, rounds)["dgemm"]))


def bandwidth(rounds: int) -> float:
    """Measure bytes per second read from memory."""
    a = np.ones(LONG)

    def read(count: int) -> None:
        for _ in range(count):
            blas.dasum(a)

    return 8.0 * LONG * float(np.median(turns({"dasum": read}, rounds)["dasum"]))

"""Limits: what this machine can do at most, measured in the same run as all else."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas
from turns import turns

ROWS = 1024  # of the matrices that are multiplied
LONG = 1 << 25  # doubles that are read: 256 MB, more than any cache


@dataclass(frozen=True)
class Limits:
    """Operations a second of dgemm, and bytes a second that are read from memory; one thread."""

    peak: float
    bandwidth: float


def measured(rounds: int) -> Limits:
    """Both, here and now."""
    return Limits(peak(rounds), bandwidth(rounds))


def peak(rounds: int) -> float:
    """Floating-point operations a second of dgemm."""
    A = np.asfortranarray(np.random.default_rng(0).normal(size=(ROWS, ROWS)))

    def multiply(count: int) -> None:
        for _ in range(count):
            blas.dgemm(1.0, A, A)

    return 2.0 * ROWS**3 * float(np.median(turns({"dgemm": multiply}, rounds)["dgemm"]))


def bandwidth(rounds: int) -> float:
    """Bytes a second that are read from memory."""
    a = np.ones(LONG)

    def read(count: int) -> None:
        for _ in range(count):
            blas.dasum(a)

    return 8.0 * LONG * float(np.median(turns({"dasum": read}, rounds)["dasum"]))

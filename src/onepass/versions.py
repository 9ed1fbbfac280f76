"""Versions of Python, onepass and the packages it uses, for reports of problems."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from onepass import native

PACKAGES = (
    "numpy", "scipy", "scikit-learn", "safetensors", "pyarrow", "torch", "river", "onnxruntime",
    "starlette", "uvicorn", "matplotlib",
)  # fmt: skip


def show_versions() -> None:
    """Print the versions of onepass, Python and other packages, and whether loops are compiled.

    Examples
    --------
    >>> import onepass as op
    >>> op.show_versions()  # doctest: +ELLIPSIS
    onepass: ...
    loops: ...
    """
    print(f"onepass: {version('onepass')}")
    print(f"loops: {native.status}")
    print(f"Python: {sys.version.split()[0]}, {platform.platform()}")
    for name in PACKAGES:
        try:
            print(f"{name}: {version(name)}")
        except PackageNotFoundError:
            print(f"{name}: not installed")

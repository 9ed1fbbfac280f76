"""The compiled loops of onepass: C without NumPy's headers, one file for every Python from 3.11 on.

All else about the package is in pyproject.toml. Where no C compiler is found, or one that does not
know vectors as GCC and Clang do, the package is installed without them and runs on NumPy alone; so
it is for a Python whose threads share no lock, which knows no such file for every version.
"""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("native")
FREE = sysconfig.get_config_var("Py_GIL_DISABLED")  # threads share no lock

loops = Extension(
    "onepass._compiled",
    sources=[str(path) for path in sorted(NATIVE.glob("*.c"))],
    depends=[str(path) for path in sorted(NATIVE.glob("*.h"))],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    # numbers are compared and rooted, but nobody reads errno or traps what overflows
    extra_compile_args=[
        "-std=gnu11",
        "-O3",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
    ],
    py_limited_api=True,
    optional=True,
)

setup(
    ext_modules=[] if FREE else [loops],
    options={} if FREE else {"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""The compiled loops of onepass: C without NumPy's headers, one file for every Python from 3.11 on.

All else about the package is in pyproject.toml. Where no C compiler is found, or one that does not
know vectors as GCC and Clang do, the package is installed without them and runs on NumPy alone.
"""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("native")

setup(
    ext_modules=[
        Extension(
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
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""Build of the compiled loops: C without NumPy's headers, one binary for all Pythons from 3.11.

Everything else about the package is in pyproject.toml. Without a C compiler that supports the
vector extensions of GCC and Clang, the package is installed without the loops and runs on NumPy.
Free-threaded Python has no stable ABI: the loops are built for the one version. As their objects
are not safe without the GIL yet, the module does not declare so, and importing it enables the GIL.
"""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

URL = ""  # of the project's pages; "" until there is one

NATIVE = Path("native")
FREE = sysconfig.get_config_var("Py_GIL_DISABLED")  # free-threaded build

loops = Extension(
    "onepass._compiled",
    sources=[str(path) for path in sorted(NATIVE.glob("*/*.c"))],
    depends=[str(path) for path in sorted(NATIVE.glob("*/*.h"))],
    define_macros=[("Py_GIL_DISABLED", "1") if FREE else ("Py_LIMITED_API", "0x030B0000")],
    # the code uses comparisons and square roots, but neither errno nor floating-point traps
    extra_compile_args=[
        "-std=gnu11",
        "-O3",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
    ],
    py_limited_api=not FREE,
    optional=True,
)

setup(
    project_urls={"Source": URL} if URL else {},
    ext_modules=[loops],
    options={} if FREE else {"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""The command line: ``onepass run``, ``predict``, ``inspect``, ``data`` and ``reproduce``.

A command is thin: it reads its arguments, calls the library and shows what came. What needs more
than that belongs in the library.
"""

from onepass.cli.app import app, main

__all__ = ["app", "main"]

"""Command line ``onepass``, one file per command or group of commands.

A command parses its arguments, calls the library and prints the result. All other code belongs in
the library.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(tokens: Sequence[str] | None = None) -> int:
    """Run the command ``onepass``; return its exit code. See :func:`onepass.cli.app.main`.

    Parameters
    ----------
    tokens : sequence of str, optional
        The arguments; by default those of the process.
    """
    try:  # Ctrl-C may occur during these imports
        from onepass.cli.app import main as launched

        return launched(tokens)
    except KeyboardInterrupt:
        sys.stderr.write("onepass: interrupted.\n")
        return 130

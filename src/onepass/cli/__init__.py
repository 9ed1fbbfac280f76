"""Commands of the command line ``onepass``, one file per command or group of commands.

A command reads its arguments, calls the library and prints the result. Everything else belongs in
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
        The arguments; those of the process by default.
    """
    try:  # Ctrl-C may come during these imports
        from onepass.cli.app import main as launched

        return launched(tokens)
    except KeyboardInterrupt:
        sys.stderr.write("onepass: interrupted.\n")
        return 130

"""The command-line application: commands, error messages and exit codes.

========= =============================================================
exit code meaning
========= =============================================================
0         success
1         an error, reported on standard error
2         usage error: an unknown option or name, or an invalid value
130       interrupted by Ctrl-C; the progress so far is saved
143       terminated by SIGTERM; the progress so far is saved
141       the reader closed standard output, like ``head``
========= =============================================================
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from onepass.cli.data import fetch, list_datasets, path
from onepass.cli.fit import fit
from onepass.cli.model import backup, inspect, merge, verify
from onepass.cli.predict import predict
from onepass.cli.reproduce import reproduce
from onepass.cli.run import run
from onepass.cli.serve import serve
from onepass.cli.terminal import print_message


def _version() -> str:
    from importlib.metadata import version

    from onepass import native

    return f"{version('onepass')}, loops: {native.status}"


app = App(
    name="onepass",
    help="Online learning in one pass: predict each row, then learn from its target.",
    help_epilogue="""Start here:

    onepass run flights --model rls,sgd --save flights.onepass
    onepass run table.csv --target price
    onepass serve rls --data served
    onepass COMMAND --help
""",
    help_format="plaintext",  # the list of commands needs no Markdown
    version=_version,
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
_data = App(
    name="data",
    help="List, fetch and locate the named data sets.",
    help_epilogue="Examples:\n\n    onepass data list\n",
    help_format="markdown",
)


def _add(where: App, name: str, command: Callable[..., object], *examples: str) -> None:
    """Add a command, with examples below its help."""
    lines = "".join(f"    onepass {example}\n" for example in examples)
    epilogue = f"Examples:\n\n{lines}"
    where.command(command, name=name, help_epilogue=epilogue, help_format="markdown")


_add(
    app, "run", run,
    "run flights --model rls,sgd --report out",
    "run table.csv --target price --drop id --save m.onepass",
    "run - --target load --set rls__forgetting=0.999 < log.csv",
    "run table.csv --target price --drop id --save m.onepass --resume",
)  # fmt: skip
_add(
    app, "fit", fit,
    "fit 'data/*.parquet' --target y --save m.onepass --workers 2",
    "fit 'data/*.parquet' --target y --save m.onepass --engine ray --workdir shared/summaries",
)  # fmt: skip
_add(
    app, "predict", predict,
    "predict m.onepass new.csv --keep id --out predictions.csv",
    "predict m.onepass - < new.csv | head",
)  # fmt: skip
_add(app, "inspect", inspect, "inspect m.onepass", "inspect m.onepass --json")
_add(app, "merge", merge, "merge monday.onepass tuesday.onepass --save both.onepass")
_add(
    app, "serve", serve,
    "serve m.onepass --data served",
    "serve rls --data served --set rls__forgetting=0.999 --drift adwin",
    "serve --data served --host 0.0.0.0 --tokens tokens.txt",
)  # fmt: skip
_add(app, "backup", backup, "backup served/m.db backups/m.db")
_add(app, "verify", verify, "verify backups/m.db")
_add(
    app, "reproduce", reproduce, "reproduce", "reproduce orfit-fig6 --draws 4 --out figures"
)  # fmt: skip
_add(_data, "list", list_datasets, "data list")
_add(_data, "fetch", fetch, "data fetch mnist")
_add(_data, "path", path, "data path flights")
app.command(_data)


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: bool = False,
) -> int:
    """Run a command.

    Parameters
    ----------
    *tokens
        The command and its arguments.
    debug
        Show the traceback of an error.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        try:
            return _code(app(tokens, exit_on_error=False, print_error=False))
        except BrokenPipeError:
            raise
        except CycloptsError:
            if debug:
                traceback.print_exc()
            raise
        except Exception as error:
            if debug:
                traceback.print_exc()
            elif not _print_error(error):
                raise
            return 1


def main(tokens: Sequence[str] | None = None) -> int:
    """Run the command ``onepass``; return its exit code.

    Parameters
    ----------
    tokens : sequence of str, optional
        The arguments; by default those of the process.
    """
    given = sys.argv[1:] if tokens is None else list(tokens)
    try:
        code = _code(app.meta(given or ["--help"], exit_on_error=False, print_error=False))
        sys.stdout.flush()
    except CycloptsError as error:
        print_message(f"onepass: {_message(error)} See {_command(given)} --help.")
        return 2
    except BrokenPipeError:
        # discard buffered output, so that Python can flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _message(usage: CycloptsError) -> str:
    """Return the message of a usage error; a missing argument is named."""
    if isinstance(usage, MissingArgumentError) and not usage.keyword:
        missing = usage.argument
        if missing is not None and not missing.tokens:
            chain = " ".join(usage.command_chain or ())
            return f"{chain}: {missing.name} is required, got none."
    return str(usage).strip()


def _command(tokens: Sequence[str]) -> str:
    """Return the command that the arguments name, for a reference to its help."""
    chain = app.parse_commands([each for each in tokens if each != "--debug"])[0]
    return " ".join(["onepass", *chain])


def _code(result: object) -> int:
    return result if isinstance(result, int) else 0


def _print_error(error: Exception) -> bool:
    """Print the message if the error is an expected one; return whether it is."""
    from onepass.errors import OnepassError

    if isinstance(error, OnepassError):
        print_message(f"{type(error).__name__}: {error}")
    elif isinstance(error, OSError):
        print_message(f"onepass: {error.filename or 'the file'}: {error.strerror or error}.")
    else:
        return False
    return True


def _print_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    """Print a warning without its location in the code."""
    print_message(f"{category.__name__}: {message}")

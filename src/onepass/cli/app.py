"""App: the commands under one name, and what becomes of errors.

========= =============================================================
exit code meaning
========= =============================================================
0         done
1         an error, told on standard error
2         wrong usage: an unknown option or name, or a value that an option cannot have
130       interrupted by Ctrl-C; what was learned until then is saved
143       asked to end by SIGTERM; the same
141       whoever read standard output has closed it, as ``head`` does
========= =============================================================
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from onepass.cli.data import fetch, listed, path
from onepass.cli.model import inspect, merge
from onepass.cli.predict import predict
from onepass.cli.reproduce import reproduce
from onepass.cli.run import run
from onepass.cli.serve import serve
from onepass.cli.terminal import print_message

__all__ = ["app", "launch", "main"]


def _version() -> str:
    from importlib.metadata import version

    return version("onepass")


app = App(
    name="onepass",
    help="Learn a stream in one pass: predict each row, be told the answer, learn it, let it go.",
    help_epilogue="""Start here:

    onepass run flights --model rls,sgd --save flights.onepass
    onepass run table.csv --target price
    onepass serve rls --data served
    onepass COMMAND --help
""",
    help_format="plaintext",  # to show the commands alone, nothing need be parsed as Markdown
    version=_version,
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
_data = App(
    name="data",
    help="Named data sets: which there are, and where they lie.",
    help_epilogue="Examples:\n\n    onepass data list\n",
    help_format="markdown",
)


def _add(where: App, name: str, command: Callable[..., object], *examples: str) -> None:
    """A command, with examples below its help."""
    lines = "".join(f"    onepass {example}\n" for example in examples)
    epilogue = f"Examples:\n\n{lines}"
    where.command(command, name=name, help_epilogue=epilogue, help_format="markdown")


_add(
    app, "run", run,
    "run flights --model rls,sgd --report out",
    "run table.csv --target price --drop id --save m.onepass",
    "run - --target load --set rls.forgetting=0.999 < log.csv",
    "run table.csv --target price --drop id --save m.onepass --resume",
)  # fmt: skip
_add(
    app, "predict", predict,
    "predict m.onepass new.csv --keep id --out said.csv",
    "predict m.onepass - < new.csv | head",
)  # fmt: skip
_add(app, "inspect", inspect, "inspect m.onepass", "inspect m.onepass --json")
_add(app, "merge", merge, "merge monday.onepass tuesday.onepass --save both.onepass")
_add(
    app, "serve", serve,
    "serve m.onepass --data served",
    "serve rls --data served --set rls.forgetting=0.999 --drift adwin",
    "serve --data served --host 0.0.0.0 --tokens tokens.txt",
)  # fmt: skip
_add(
    app, "reproduce", reproduce, "reproduce", "reproduce orfit-fig6 --draws 4 --out figures"
)  # fmt: skip
_add(_data, "list", listed, "data list")
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
        Show where in the code an error was raised.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _warned
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
            elif not _told(error):
                raise
            return 1


def main(tokens: Sequence[str] | None = None) -> int:
    """What ``onepass`` does in a shell; its exit code.

    Parameters
    ----------
    tokens : sequence of str, optional
        The arguments; those of the process by default.
    """
    given = sys.argv[1:] if tokens is None else list(tokens)
    try:
        code = _code(app.meta(given or ["--help"], exit_on_error=False, print_error=False))
        sys.stdout.flush()
    except CycloptsError as wrong:
        print_message(f"onepass: {_wrong(wrong)} See {_command(given)} --help.")
        return 2
    except BrokenPipeError:
        # what is still buffered has nowhere to go: let Python's own flush at exit succeed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _wrong(usage: CycloptsError) -> str:
    """What is wrong, where something was left out in our own words."""
    if isinstance(usage, MissingArgumentError) and not usage.keyword:  # not even the option's name
        left_out = usage.argument
        if left_out is not None and not left_out.tokens:
            chain = " ".join(usage.command_chain or ())
            return f"{chain}: {left_out.name} must be given, got none."
    return str(usage).strip()


def _command(tokens: Sequence[str]) -> str:
    """The command that was called, as far as there is one: it has a help of its own."""
    chain = app.parse_commands([word for word in tokens if word != "--debug"])[0]
    return " ".join(["onepass", *chain])


def _code(result: object) -> int:
    return result if isinstance(result, int) else 0


def _told(error: Exception) -> bool:
    """Tell an error in one message, if it is one that was raised on purpose."""
    from onepass.errors import OnepassError

    if isinstance(error, OnepassError):
        print_message(f"{type(error).__name__}: {error}")
    elif isinstance(error, OSError):
        print_message(f"onepass: {error.filename or 'the file'}: {error.strerror or error}.")
    else:
        return False
    return True


def _warned(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """A warning as a remark, without the place in the code."""
    print_message(f"{category.__name__}: {message}")

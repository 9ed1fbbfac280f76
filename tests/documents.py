"""README.md and the pages of docs/ as documents of Sybil, and the commands that they may mention.

The Python blocks of a page share a namespace; the output below prompts (``>>>``) must be equal. The
lines of shell blocks that call ``onepass`` are executed in this process; other lines are not. A
comment in the line above a block excludes it::

    <!-- not run: fetches 11 MB -->
"""

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path
from typing import Any

from cyclopts import App
from sybil import Document, Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from onepass.cli import main
from onepass.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXCLUDED = re.compile(r"^ *<!-- not run: .+ -->\n\s*```[^`]*```", re.MULTILINE)


class Page(Document):
    """A page without excluded blocks; line numbers are those of the file."""

    def __init__(self, text: str, path: str) -> None:
        text = EXCLUDED.sub(lambda block: "\n" * block[0].count("\n"), text)
        text = text.replace("n_jobs=8", "n_jobs=2")  # the results do not depend on it
        super().__init__(text, path)
        self.namespace["__name__"] = "__main__"


class PromptParser(PythonCodeBlockParser):
    """Blocks of the language ``pycon``."""

    def __init__(self, doctest_optionflags: int) -> None:
        super().__init__(doctest_optionflags=doctest_optionflags)
        self.codeblock_parser = CodeBlockParser("pycon", PythonEvaluator())


def run_commands(example: Example) -> None:
    """Call ``onepass`` in this process with the arguments that a shell would pass."""
    for line in example.parsed.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "onepass":
            error = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
                code = main(arguments)
            assert code == 0, f"{line}\n{error.getvalue()}"


FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SYBIL = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=FLAGS),
        PromptParser(doctest_optionflags=FLAGS),
        CodeBlockParser("bash", run_commands),
    ],
    document_types={".md": Page},
)


def command_table(group: App, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], App]:
    """All commands by their path, without groups of commands."""
    found = {}
    for name in group:
        if not name.startswith("-"):
            below = command_table(group[name], (*path, name))
            found |= below or {(*path, name): group[name]}
    return found


COMMANDS = command_table(app)
"""The commands of ``onepass`` by their path."""


def options(command: Any) -> set[str]:
    """The options of a command, with their short forms."""
    arguments = command.assemble_argument_collection(default_parameter=app.default_parameter)
    return {name for argument in arguments for name in argument.names if name.startswith("-")}

"""Documents are executed: what a page shows is what a reader gets.

Its Python blocks run in order, in one namespace and one empty directory; prompts (``>>>``) are held
to the output below them. In shell blocks the lines that call ``onepass`` run in the same directory,
in the same order. A block that cannot run here says so, and why, in the line above it::

    <!-- not run: fetches 11 MB -->
"""

import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import App

from onepass.cli import main
from onepass.cli.app import app

ROOT = Path(__file__).parents[1]
PYTHON = {"python", "py", "pycon"}
SHELL = {"bash", "sh", "shell", "console"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a Markdown text; ``line`` is the number of its first line of code."""

    language: str
    code: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks that are to run, in order."""
    language, code, start, excused = None, [], 0, False
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*```+\s*(\w*)", line)
        if language is None:
            if fence:
                language, code, start = fence[1], [], number + 1
            elif line.strip():
                excused = line.strip().startswith("<!-- not run: ")
        elif fence:
            if not excused:
                yield Block(language, "\n".join(code) + "\n", start)
            language, excused = None, False
        else:
            code.append(line)


def run_python(block: Block, namespace: dict[str, Any], name: str) -> None:
    """Run a block in the namespace; hold prompts to their output."""
    if ">>>" not in block.code:
        # empty lines in front, so that an error names the line of the document
        source = compile("\n" * (block.line - 1) + block.code, name, "exec")
        exec(source, namespace)  # noqa: S102  our own README
        return
    test = doctest.DocTestParser().get_doctest(
        block.code, namespace, f"line {block.line}", name, block.line - 1
    )
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=output.append, clear_globs=False)
    assert not runner.failures, "".join(output)
    namespace.update(test.globs)


def commands(block: Block) -> Iterator[list[str]]:
    """The calls of ``onepass`` in a shell block, as lists of words."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        if words and words[0] == "onepass":
            yield words[1:]


def run_command(words: list[str], cwd: Path, where: str) -> None:
    """Call ``onepass`` with the words that a shell would give it, in this process."""
    output = io.StringIO()
    silent = contextlib.redirect_stdout(io.StringIO())
    with contextlib.chdir(cwd), silent, contextlib.redirect_stderr(output):
        code = main(words)
    assert code == 0, f"{where}: onepass {shlex.join(words)}\n{output.getvalue()}"


def run_document(text: str, name: str, cwd: Path) -> int:
    """Run all blocks of a text; return how many blocks and commands ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(text):
        if block.language in PYTHON:
            run_python(block, namespace, name)
            ran += 1
        elif block.language in SHELL:
            for words in commands(block):
                run_command(words, cwd, f"{name}, line {block.line}")
                ran += 1
    return ran


def command_table(of: App, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], App]:
    """All commands by their path; those that only hold others are left out."""
    found = {}
    for name in of:
        if not name.startswith("-"):
            below = command_table(of[name], (*path, name))
            found |= below or {(*path, name): of[name]}
    return found


COMMANDS = command_table(app)
"""The commands of ``onepass`` by their path."""


def options(command: Any) -> set[str]:
    """The options of a command, in all their spellings."""
    arguments = command.assemble_argument_collection(default_parameter=app.default_parameter)
    return {name for argument in arguments for name in argument.names if name.startswith("-")}

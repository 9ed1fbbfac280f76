"""README is executed: what it shows is what a reader gets.

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

import pytest

from onepass.cli import main

ROOT = Path(__file__).parents[2]
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
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=said.append, clear_globs=False)
    assert not runner.failures, "".join(said)
    namespace.update(test.globs)


def commands(block: Block) -> Iterator[list[str]]:
    """The calls of ``onepass`` in a shell block, as lists of words."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        if words and words[0] == "onepass":
            yield words[1:]


def run_command(words: list[str], cwd: Path, where: str) -> None:
    """Call ``onepass`` with the words that a shell would give it, in this process."""
    said = io.StringIO()
    silent = contextlib.redirect_stdout(io.StringIO())
    with contextlib.chdir(cwd), silent, contextlib.redirect_stderr(said):
        code = main(words)
    assert code == 0, f"{where}: onepass {shlex.join(words)}\n{said.getvalue()}"


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


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to run in; figures go to files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


def test_readme_runs(elsewhere: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert run_document(text, "README.md", elsewhere) >= 2


def test_readme_links_to_what_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'(?:src|href)="([^"#]+)"', text)
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert not [link for link in local if not (ROOT / link).exists()]


SAMPLE = """
# A sample

```python
from pathlib import Path
x = 2
Path("left.txt").write_text("here")
```

<!-- not run: there is no such module -->
```python
import nothing_of_this_name
```

```text
not code (
```

```pycon
>>> x + 1
3
>>> z = x * 3
```

```python
assert z == 6
```

```bash
pip install onepass
```
"""


def test_the_runner_runs(elsewhere: Path) -> None:
    assert run_document(SAMPLE, "sample.md", elsewhere) == 3
    assert (elsewhere / "left.txt").read_text() == "here"


def test_the_runner_notices_what_is_wrong(elsewhere: Path) -> None:
    with pytest.raises(AssertionError, match="Expected:"):
        run_document("```python\n>>> 1 + 1\n3\n```\n", "sample.md", elsewhere)
    with pytest.raises(ZeroDivisionError) as wrong:
        run_document("words\n\n```python\nx = 1\nx / 0\n```\n", "sample.md", elsewhere)
    assert wrong.traceback[-1].lineno == 4  # counted from 0


def test_commands_are_read_as_a_shell_reads_them() -> None:
    block = Block("bash", '$ onepass run a.csv \\\n  --target "the y"  # learn\nls\n', 1)
    assert list(commands(block)) == [["run", "a.csv", "--target", "the y"]]

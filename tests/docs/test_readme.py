"""README is executed, as :mod:`documents` describes."""

import re
from pathlib import Path

import pytest

from documents import ROOT, Block, commands, run_document


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

"""The scripts of benchmarks/ go together, also those that no other test runs."""

import ast
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_scripts_find_what_they_take_from_each_other(path: Path) -> None:
    """Also where they take it only when they are asked for it."""
    for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        beside = path.with_name(f"{getattr(each, 'module', None)}.py")
        if isinstance(each, ast.ImportFrom) and beside in BENCHMARKS:
            there = ast.parse(beside.read_text(encoding="utf-8")).body
            known = {name for one in there for name in _defined(one)}
            assert known >= {alias.name for alias in each.names}, beside.name


def _defined(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in statement.names]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [name.id for each in targets if each for name in ast.walk(each)
            if isinstance(name, ast.Name)]  # fmt: skip

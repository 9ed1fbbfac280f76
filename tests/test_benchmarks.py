"""Scripts of benchmarks/ import names from each other that exist."""

import ast
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_imports_between_scripts(path: Path) -> None:
    """Imports within functions are included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        beside = path.with_name(f"{getattr(node, 'module', None)}.py")
        if isinstance(node, ast.ImportFrom) and beside in BENCHMARKS:
            body = ast.parse(beside.read_text(encoding="utf-8")).body
            defined = {name for statement in body for name in _defined(statement)}
            assert defined >= {alias.name for alias in node.names}, beside.name


def _defined(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in statement.names]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [name.id for each in targets if each for name in ast.walk(each)
            if isinstance(name, ast.Name)]  # fmt: skip

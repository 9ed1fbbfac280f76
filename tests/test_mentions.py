"""Names that messages, docstrings and documents mention exist.

Every ``op.x.y`` is evaluated, with the keyword arguments that follow it, and every ``--option`` and
``onepass COMMAND`` is looked up in the command line.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache, reduce
from pathlib import Path

import pytest

import onepass
from documents import COMMANDS, ROOT, options

OPTIONS = {name for command in COMMANDS.values() for name in options(command)} | {
    "--help", "--version", "--debug",
}  # fmt: skip
PROGRAMS = (
    "pip ",
    "python ",
    "curl ",
    "redis-",
    "docker ",
    "podman ",
    "openssl ",
    "systemctl ",
    ".py ",
)
"""Lines with these words may show options of other programs."""

NAME = re.compile(r"(?<![\w./-])op((?:\.[A-Za-z_]\w*)+)(\.?)(?:\(([^()]*)\))?")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*\b(?!-?\{)")
COMMAND = re.compile(r"`onepass ([a-z]+)")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Return the strings of a module; the expressions of an f-string are replaced by ``{}``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
                ),
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            yield node.lineno, node.value


@cache
def texts() -> list[tuple[str, str]]:
    """Return all strings and lines of documents with their place."""
    found = []
    for package in ("onepass", "onepass_experiments"):
        for path in sorted((ROOT / "src" / package).rglob("*.py")):
            for line, text in literals(path):
                found.append((f"{path.relative_to(ROOT)}:{line}", text))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found.append((f"{path.relative_to(ROOT)}:{line}", text))
    return found


def fault(names: str, dot: str, arguments: str | None) -> str | None:
    """Return what is wrong with a mention of a name and its keyword arguments, or None."""
    try:
        found = reduce(getattr, names.strip(".").split("."), onepass)
    except AttributeError as error:
        return str(error)
    keywords = re.findall(r"(?:^|,)\s*(\w+)=", arguments or "")
    if not keywords or dot:
        return None
    parameters = inspect.signature(found).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    unknown = sorted(set(keywords) - set(parameters))
    return f"no parameter {', '.join(unknown)}" if unknown else None


def test_every_mentioned_name_exists() -> None:
    faults = [
        f"{place}: {match[0]}: {why}"
        for place, text in texts()
        for match in NAME.finditer(text)
        if text[match.end() : match.end() + 1] != "{"  # the rest of the name is inserted
        if (why := fault(*match.groups()))
    ]
    assert not faults, "\n".join(faults)


def test_every_mentioned_option_exists() -> None:
    faults = [
        f"{place}: {option}"
        for place, text in texts()
        for line in text.splitlines()
        if not any(program in line for program in PROGRAMS)
        for option in OPTION.findall(line)
        if option not in OPTIONS
    ]
    assert not faults, "\n".join(faults)


def test_every_mentioned_command_exists() -> None:
    commands = {path[0] for path in COMMANDS}
    faults = [
        f"{place}: onepass {command}"
        for place, text in texts()
        for command in COMMAND.findall(text)
        if command not in commands
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("mention", "why"),
    [
        ("op.RLSRegresor", "no attribute"),
        ("op.RLSRegressor(ridges=1)", "no parameter ridges"),
        ("op.RLSRegressor(ridge=1).", None),
    ],
)
def test_faults_are_found(mention: str, why: str | None) -> None:
    match = NAME.search(mention)
    assert match
    found = fault(*match.groups())
    assert found is None if why is None else why in str(found)

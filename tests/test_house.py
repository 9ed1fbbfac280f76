"""The laws of the house, held by test and not by good will; CONTRIBUTING.md says why each stands.

Files are read as syntax trees, so that a law about what is written does not depend on what runs.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import onepass
from onepass import errors

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "onepass"
FILES = sorted(SRC.rglob("*.py"))
ROOMS = ("learners", "memory", "features", "stream", "evaluate")
"""The folders whose ``__init__`` lists what a user may choose from."""

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(path: Path) -> str:
    """The first folder or file below onepass: ``learners``, ``cli``."""
    return Path(path.relative_to(SRC).parts[0]).stem


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it, by its full dotted name."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def tops(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call in a file, with what is called as it is written: ``np.random.seed``."""
    made = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    return [(ast.unparse(call.func), call) for call in made]


# -- names ----------------------------------------------------------------------------------------


@each_file
def test_a_file_is_named_for_its_idea(path: Path) -> None:
    nameless = {"utils", "util", "helpers", "helper", "misc", "common", "core", "base", "manager"}
    assert not nameless & {path.stem, *path.relative_to(SRC).parts[:-1]}


@each_file
def test_a_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(tree(path))
    assert docstring
    assert docstring.splitlines()[0].endswith(".")


# -- what a library does not do -------------------------------------------------------------------


@each_file
def test_only_the_command_line_prints_and_only_what_serves_reads_a_clock(path: Path) -> None:
    if room(path) == "cli":
        return
    said = {name for name, _ in calls(path)}
    assert not said & {"print", "pprint", "input"}
    if room(path) == "service":  # it runs for days, and says when things happened
        return
    assert not tops(path) & {"logging", "time", "loguru", "structlog"}
    clocks = re.compile(r"\b(now|today|utcnow|perf_counter|monotonic)$")
    assert not {name for name in said if clocks.search(name)}


@each_file
def test_randomness_comes_from_a_seed_alone(path: Path) -> None:
    assert "random" not in tops(path)
    allowed = {
        "BitGenerator", "Generator", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64",
        "SeedSequence", "default_rng",
    }  # fmt: skip
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {
            "np.random",
            "numpy.random",
        }:
            assert node.attr in allowed, f"line {node.lineno}"
    for name, call in calls(path):
        if name.endswith("default_rng"):
            assert call.args or call.keywords, f"line {call.lineno}: a generator without a seed"


@each_file
def test_nothing_read_from_a_file_is_run(path: Path) -> None:
    assert not tops(path) & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal"}
    assert "shelve" not in tops(path)
    for name, call in calls(path):
        assert name not in {"eval", "exec", "compile", "__import__"}, f"line {call.lineno}"
        for keyword in call.keywords:
            trusted = keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False"
            assert not trusted, f"line {call.lineno}"


@each_file
def test_torch_stays_in_its_rooms(path: Path) -> None:
    if room(path) not in {"nn", "baselines", "scale", "reproduce", "linalg"}:
        assert "torch" not in tops(path)


@each_file
def test_nothing_asks_which_sibling_it_is(path: Path) -> None:
    listed = {name for folder in ROOMS[:3] for name in _public(f"onepass.{folder}")}
    own = {node.name for node in tree(path).body if isinstance(node, ast.ClassDef)}
    for name, call in calls(path):
        if name in {"isinstance", "issubclass"}:
            asked = {n.id for n in ast.walk(call.args[1]) if isinstance(n, ast.Name)}
            asked |= {n.attr for n in ast.walk(call.args[1]) if isinstance(n, ast.Attribute)}
            assert not asked & (listed - own), f"line {call.lineno}"


# -- what a module gives --------------------------------------------------------------------------


def _public(name: str) -> list[str]:
    return list(getattr(importlib.import_module(name), "__all__", ()))


def _rank(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order that ruff keeps."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


@each_file
def test_all_is_true(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    assert hasattr(module, "__all__")
    names = list(module.__all__)
    assert len(set(names)) == len(names)
    for name in names:
        assert not name.startswith("_")
        assert hasattr(module, name), name
    if path != SRC / "__init__.py":
        assert names == sorted(names, key=_rank)
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    defined = {node.name for node in tree(path).body if isinstance(node, kinds)}
    assert {name for name in defined if not name.startswith("_")} <= set(names)


def test_every_public_name_is_there() -> None:
    assert dir(onepass) == sorted(onepass.__all__)
    for name in onepass.__all__:
        assert getattr(onepass, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = onepass.nothing


def test_type_checkers_see_the_same_public_names() -> None:
    blocks = [node for node in tree(SRC / "__init__.py").body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} == set(onepass.__all__)


def test_what_a_user_may_choose_is_at_the_front_door() -> None:
    assert set(_public("onepass.learners")) <= set(onepass.__all__)
    assert {folder for folder in ROOMS[1:] if _public(f"onepass.{folder}")} <= set(onepass.__all__)
    doors = {"persist": {"load", "save"}, "pipeline": {"Pipeline"}}
    for module, names in doors.items():
        if (SRC / f"{module}.py").exists():
            assert names <= set(onepass.__all__)


def test_specifications_are_frozen() -> None:
    for name in _public("onepass.memory"):
        spec = getattr(importlib.import_module("onepass.memory"), name)
        if inspect.isclass(spec) and dataclasses.is_dataclass(spec):
            assert spec.__dataclass_params__.frozen, name  # type: ignore[attr-defined]


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "OnepassError"])
def test_an_error_is_also_what_a_user_would_catch(name: str) -> None:
    kind = getattr(errors, name)
    parents = {parent.__name__ for parent in kind.__mro__}
    usual = {base for base in kind.__mro__ if base.__module__ == "builtins"}
    assert usual - {Exception, BaseException, Warning, object}
    if issubclass(kind, Warning):
        return
    assert issubclass(kind, errors.OnepassError)
    drawn = re.search(rf"── {name} +\(([^)]+)\)", errors.__doc__ or "")
    assert drawn, "the tree in the module's docstring shows every error"
    assert {base.rpartition(".")[2] for base in drawn[1].split(", ")} <= parents


CAUGHT_ABOVE = {"randomness": "persist says it again, with the file and the place within it"}
BUILTIN = {"Exception", "KeyError", "OSError", "RuntimeError", "TypeError", "ValueError"}


def _within(node: ast.AST, *, private: bool = False) -> Iterator[tuple[bool, ast.AST]]:
    """Every node below, with whether it stands in a private function or class."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        inside = private or (named and child.name.startswith("_"))
        yield inside, child
        yield from _within(child, private=inside)


@each_file
def test_errors_are_raised_from_the_one_tree(path: Path) -> None:
    if path.stem == "errors":
        return
    made = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
    assert not [node.name for node in made if node.name.endswith("Error")]
    inner = path.stem in CAUGHT_ABOVE
    for private, node in _within(tree(path)):
        assert not isinstance(node, ast.Assert), "an assert vanishes under python -O"
        if isinstance(node, ast.Raise) and isinstance(node.exc, (ast.Call, ast.Name)):
            what = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            # a private function may raise what its own module catches, and says better
            plain = {"Exception", "RuntimeError"} if inner or private else BUILTIN
            assert ast.unparse(what) not in plain, f"line {node.lineno}"


# -- docstrings -----------------------------------------------------------------------------------


def _described(docstring: str) -> list[str] | None:
    """The names in a numpydoc docstring's Parameters section; None where there is no section."""
    lines = inspect.cleandoc(docstring).splitlines()
    heads = [i for i, line in enumerate(lines[1:]) if line and set(line) == {"-"}]
    start = next((i for i in heads if lines[i] == "Parameters"), None)
    if start is None:
        return None
    end = next((i for i in heads if i > start), len(lines))
    entries = [line for line in lines[start + 2 : end] if line and not line.startswith(" ")]
    return [name.strip(" *") for line in entries for name in line.partition(" :")[0].split(",")]


def _taken(thing: Any) -> list[str]:
    """The names of the parameters that a class or function takes."""
    taken = inspect.signature(thing).parameters
    return [name for name in taken if name != "self" and not name.startswith("_")]


def _wrong(thing: Any, *, at_a_door: bool) -> str:
    """What is wrong with a docstring; parameters must be described where a user meets them."""
    docstring = inspect.getdoc(thing) or ""
    if not docstring.partition("\n")[0].strip():
        return "says nothing"
    described = _described(docstring)
    if described is None and not at_a_door:
        return ""
    taken = _taken(thing)
    return "" if (described or []) == taken else f"describes {described}, takes {taken}"


def _without_parameters(thing: Any) -> bool:
    """Exceptions, protocols and abstract classes: nobody constructs them by hand."""
    return inspect.isclass(thing) and (
        issubclass(thing, BaseException)
        or getattr(thing, "_is_protocol", False)
        or inspect.isabstract(thing)
    )


@each_file
def test_docstrings_describe_every_parameter(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    doors = set(onepass.__all__).union(*(_public(f"onepass.{folder}") for folder in ROOMS))
    wrong = {}
    for public in _public(module.__name__):
        thing = getattr(module, public)
        if getattr(thing, "__module__", None) != module.__name__ or not callable(thing):
            continue
        if not _without_parameters(thing):
            wrong[public] = _wrong(thing, at_a_door=public in doors)
        for name, made in vars(thing).items() if inspect.isclass(thing) else ():
            if inspect.isfunction(made) and not name.startswith("_"):
                # a method may stand in for its parent's, which is described there
                wrong[f"{public}.{name}"] = _wrong(getattr(thing, name), at_a_door=False)
    assert not {name: said for name, said in wrong.items() if said}


def test_the_reader_of_docstrings_reads() -> None:
    docstring = """A thing.

    Parameters
    ----------
    X, y : array
        Rows: and their answers.
    *steps : Any
    depth
        How deep.

    Returns
    -------
    it : float
    """
    assert _described(docstring) == ["X", "y", "steps", "depth"]
    assert _described("A thing.") is None


# -- imports --------------------------------------------------------------------------------------


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(  # noqa: S603  our own words, our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


HEAVY = {"matplotlib", "numpy", "pandas", "polars", "pyarrow", "scipy", "sklearn", "torch"}
QUICK = ["onepass", *(["onepass.cli"] if (SRC / "cli").exists() else [])]


@pytest.mark.parametrize("module", QUICK)
def test_import_is_quick(module: str) -> None:
    assert not _loaded_by(f"import {module}") & HEAVY


WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {"httptools", "matplotlib", "msgspec", "onnxruntime", "pandas", "polars",
                   "pyarrow", "redis", "river", "torch", "uvicorn", "uvloop"}:
            raise ImportError(name)

sys.meta_path.insert(0, Absent())

import onepass
from onepass.learners import __all__ as learners

for name in onepass.__all__:
    getattr(onepass, name)
for name in learners:
    learner = getattr(onepass, name)()
    learner.learn_one({"x0": 1.0, "x1": 2.0}, 0).partial_fit([[2.0, 1.0]], [1])
    assert learner.predict([[1.0, 2.0]]).shape == (1,)
"""


def test_all_that_needs_no_extra_works_without_them() -> None:
    done = subprocess.run(  # noqa: S603  our own words, our own interpreter
        [sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_imports_run_only_downward() -> None:
    code = "import sys; from importlinter.cli import lint_imports_command as lint; sys.exit(lint())"
    done = subprocess.run(  # noqa: S603  our own words, our own interpreter
        [sys.executable, "-c", code, "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr

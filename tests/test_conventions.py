"""Conventions explained in CONTRIBUTING.md; each test lists all violations of one of them.

Files are parsed as syntax trees, so that results do not depend on executed code.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import onepass
from onepass import errors

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
FILES = sorted(
    path
    for package in ("onepass", "onepass_experiments")
    for path in (SRC / package).rglob("*.py")
    if "has moved. Import" not in path.read_text(encoding="utf-8")  # importing it is an error
)
IMPORTABLE = [path for path in FILES if path.name != "flower.py"]
"""The files whose packages are installed; ``make engines`` runs the others elsewhere."""
CHOICES = ("learners", "memory", "features", "stream", "evaluate")
"""Packages whose ``__all__`` lists components for users."""


def assert_no(offenders: Iterable[str], rule: str) -> None:
    """Fail with all offenders if there are any."""
    listed = sorted(set(offenders))
    if listed:
        pytest.fail("\n  ".join([f"{rule} ({len(listed)}):", *listed]), pytrace=False)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


def at(path: Path, node: Any = None) -> str:
    """The location of a node: ``src/onepass/x.py:12``."""
    return f"{path.relative_to(ROOT)}{'' if node is None else f':{node.lineno}'}"


def entry(path: Path) -> str:
    """The folder or module directly below the package: ``learners``, ``errors``."""
    return Path(path.relative_to(SRC).parts[1]).stem


def experiment(path: Path) -> bool:
    return path.relative_to(SRC).parts[0] == "onepass_experiments"


@cache
def module(path: Path) -> ModuleType:
    parts = path.relative_to(SRC).with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


@cache
def exported(package: str) -> tuple[str, ...]:
    """The ``__all__`` of a package, by its public path if it has one."""
    public = package in onepass.__all__
    found = getattr(onepass, package) if public else importlib.import_module(f"onepass.{package}")
    return tuple(found.__all__)


@cache
def imports(path: Path) -> list[tuple[ast.stmt, str]]:
    """All imports that a file executes, with the full names of modules."""
    blocks = (node for node in nodes(path) if isinstance(node, ast.If))
    typing = {
        id(node)
        for block in blocks
        if ast.unparse(block.test).endswith("TYPE_CHECKING")
        for statement in block.body
        for node in ast.walk(statement)
    }
    found: list[tuple[ast.stmt, str]] = []
    for node in nodes(path):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            found += ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += ((node, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def importing(path: Path, packages: set[str]) -> Iterator[str]:
    """Imports of these packages."""
    for node, name in imports(path):
        if name.partition(".")[0] in packages:
            yield f"{at(path, node)} imports {name}"


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """All calls in a file, with the source of the callee: ``np.random.seed``."""
    found = [node for node in nodes(path) if isinstance(node, ast.Call)]
    return [(ast.unparse(call.func), call) for call in found]


# -- names ----------------------------------------------------------------------------------------


def test_file_names_are_specific() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "core", "base", "manager"}
    assert_no(
        (at(path) for path in FILES if vague & {path.stem, *path.relative_to(SRC).parts[:-1]}),
        "files with a vague name",
    )


def test_names_of_test_modules_are_unique() -> None:
    """Pytest imports them by their name without the folder."""
    folders: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        folders.setdefault(path.name, []).append(at(path))
    del folders["conftest.py"]  # which pytest tells apart
    assert_no(
        (" and ".join(paths) for paths in folders.values() if len(paths) > 1),
        "modules of tests with the same name",
    )


def test_modules_have_a_docstring() -> None:
    first = {path: (ast.get_docstring(tree(path)) or "").partition("\n")[0] for path in FILES}
    assert_no(
        (at(path) for path, line in first.items() if not line.endswith(".")),
        "modules whose docstring does not begin with a sentence",
    )


FORBIDDEN = {
    "asker", "diary", "heard", "keeper", "kept", "likeness", "memento", "pupil", "said", "shelf",
    "tending", "told", "wandering", "whoever",
}  # fmt: skip
"""Words that must not be parts of identifiers."""


@cache
def words(identifier: str) -> list[str]:
    """The words of an identifier in snake case or camel case, in lower case.

    >>> words("rows_seen_"), words("HTTPServerError")
    (['rows', 'seen'], ['http', 'server', 'error'])
    """
    pattern = r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+"
    return [word.lower() for word in re.findall(pattern, identifier)]


def identifiers(node: ast.AST) -> Iterator[str]:
    """The identifiers that a node defines or uses."""
    if isinstance(node, ast.alias):
        yield from filter(None, (node.name, node.asname))
    for field in ("id", "attr", "arg", "name", "rest"):
        name = getattr(node, field, None)
        if isinstance(name, str) and not isinstance(node, ast.alias):
            yield name


def test_identifiers_are_terms_of_the_field() -> None:
    """Words that only this project used are not parts of identifiers."""
    offenders: list[str] = []
    for path in [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8").lower()
        if not any(word in text for word in FORBIDDEN):  # parsing takes long
            continue
        names = {name for node in ast.walk(tree(path)) for name in identifiers(node)}
        offenders += (
            f"{at(path)}: {name}" for name in names if not FORBIDDEN.isdisjoint(words(name))
        )
    for path in sorted((ROOT / "native").glob("*.[ch]")):
        code = re.sub(
            r"/\*.*?\*/|\"[^\"\n]*\"", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        names = set(re.findall(r"[A-Za-z_]\w*", code))
        offenders += (
            f"{at(path)}: {name}" for name in names if not FORBIDDEN.isdisjoint(words(name))
        )
    assert_no(offenders, "identifiers with forbidden words")


# -- rules for library code -----------------------------------------------------------------------


def test_only_commands_print_and_only_the_service_logs_or_reads_a_clock() -> None:
    clock = re.compile(r"\b(now|today|utcnow|perf_counter|monotonic)$")
    offenders: list[str] = []
    for path in FILES:
        if entry(path) in {"cli", "versions"}:
            continue
        for name, call in calls(path):
            loud = name in {"print", "pprint", "input"}
            if loud or (clock.search(name) and entry(path) != "service"):
                offenders.append(f"{at(path, call)} calls {name}")
        if entry(path) not in {"logs", "service"}:
            offenders += importing(path, {"logging", "time", "loguru", "structlog"})
    assert_no(offenders, "prints, logs or reads a clock")


def test_random_numbers_come_from_a_seed() -> None:
    allowed = {
        "BitGenerator", "Generator", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64",
        "SeedSequence", "default_rng",
    }  # fmt: skip
    offenders: list[str] = []
    for path in FILES:
        offenders += importing(path, {"random"})
        for node in nodes(path):
            of_numpy = isinstance(node, ast.Attribute) and (
                ast.unparse(node.value) in {"np.random", "numpy.random"}
            )
            if of_numpy and node.attr not in allowed:
                offenders.append(f"{at(path, node)} uses np.random.{node.attr}")
        for name, call in calls(path):
            if name.endswith("default_rng") and not call.args and not call.keywords:
                offenders.append(f"{at(path, call)} makes a generator without a seed")
    assert_no(offenders, "random numbers without a seed")


def test_no_unsafe_deserialization() -> None:
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    running = {"eval", "exec", "compile", "__import__", "joblib.load", "joblib.dump"}
    offenders: list[str] = []
    for path in FILES:
        # catching an error of pickle is allowed
        offenders += (
            line for line in importing(path, unsafe) if not line.endswith("PicklingError")
        )
        offenders += (
            f"{at(path, node)} imports {name}" for node, name in imports(path) if name in running
        )
        for name, call in calls(path):
            trusted = (
                keyword
                for keyword in call.keywords
                if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False"
            )
            if name in running or any(trusted):
                offenders.append(f"{at(path, call)} calls {name}")
    assert_no(offenders, "unsafe deserialization")


def test_torch_is_imported_only_for_networks_and_linear_algebra() -> None:
    allowed = {"nn", "linalg"}
    core = (path for path in FILES if entry(path) not in allowed and not experiment(path))
    assert_no((line for path in core for line in importing(path, {"torch"})), "imports torch")


def test_no_isinstance_of_siblings() -> None:
    listed = {name for package in CHOICES[:3] for name in exported(package)}
    offenders: list[str] = []
    for path in FILES:
        own = {node.name for node in tree(path).body if isinstance(node, ast.ClassDef)}
        for name, call in calls(path):
            if name in {"isinstance", "issubclass"}:
                parts = list(ast.walk(call.args[1]))
                kinds = {node.id for node in parts if isinstance(node, ast.Name)}
                kinds |= {node.attr for node in parts if isinstance(node, ast.Attribute)}
                offenders += (
                    f"{at(path, call)} tests for {kind}" for kind in kinds & (listed - own)
                )
    assert_no(offenders, "isinstance of a learner, memory or feature outside its own file")


# -- public names ---------------------------------------------------------------------------------


NAMESPACES = ("errors", "models", "integrations.river", "scale.federated", "types", "estimators")
"""Modules from which users, or all packages, import names as from a package."""


def test_packages_and_no_other_modules_list_their_names() -> None:
    offenders: list[str] = []
    for path in IMPORTABLE:
        names = getattr(module(path), "__all__", None)
        name = module(path).__name__.removeprefix("onepass.")
        if path.name != "__init__.py" and name not in NAMESPACES:
            offenders += [f"{at(path)}: has __all__"] if names is not None else []
            continue
        if names is None:
            offenders.append(f"{at(path)} has no __all__")
            continue
        undefined = {
            name for name in names if name.startswith("_") or not hasattr(module(path), name)
        }
        offenders += (f"{at(path)}: {name} is private or undefined" for name in undefined)
        if len(set(names)) < len(names):
            offenders.append(f"{at(path)} lists a name twice")
    assert_no(offenders, "wrong __all__")


def test_public_names_of_the_package() -> None:
    assert dir(onepass) == sorted(onepass.__all__)
    assert_no(
        (name for name in onepass.__all__ if getattr(onepass, name) is None), "names of nothing"
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = onepass.nothing
    chosen = {*exported("learners"), *(package for package in CHOICES[1:] if exported(package))}
    assert_no(chosen - set(onepass.__all__), "learners and packages missing in onepass.__all__")


def test_type_checkers_see_lazily_imported_names() -> None:
    offenders: list[str] = []
    for path in IMPORTABLE:
        body = tree(path).body
        if not any(
            isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in body
        ):
            continue
        blocks = [node for node in body if isinstance(node, ast.If)]
        statements = [*body, *(node for block in blocks for node in block.body)]
        seen = {getattr(node, "name", "") for node in statements}
        for node in statements:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                seen |= {alias.asname or alias.name for alias in node.names}
        offenders += (f"{at(path)}: {name}" for name in set(module(path).__all__) - seen)
    assert_no(offenders, "names that are not imported under TYPE_CHECKING")


def test_specifications_are_frozen() -> None:
    specifications = [
        getattr(getattr(onepass, package), name)
        for package in ("memory", "forgetting")
        for name in exported(package)
    ]
    assert_no(
        (
            each.__name__
            for each in specifications
            if dataclasses.is_dataclass(each) and not each.__dataclass_params__.frozen  # type: ignore[attr-defined]
        ),
        "specifications that can be changed",
    )


# -- errors ---------------------------------------------------------------------------------------


def test_errors_inherit_a_builtin_and_are_listed_in_the_docstring() -> None:
    offenders: list[str] = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        if not (inspect.isclass(kind) and issubclass(kind, Exception)) or name == "OnepassError":
            continue
        builtins = {base for base in kind.__mro__ if base.__module__ == "builtins"}
        if not builtins - {Exception, BaseException, Warning, object}:
            offenders.append(f"{name} inherits nothing that users would catch")
        if issubclass(kind, Warning):
            continue
        entry_of = re.search(rf"── {name} +\(([^)]+)\)", errors.__doc__ or "")
        parents = {parent.__name__ for parent in kind.__mro__}
        shown = {base.rpartition(".")[2] for base in entry_of[1].split(", ")} if entry_of else set()
        if not issubclass(kind, errors.OnepassError) or not shown or not shown <= parents:
            offenders.append(f"{name} is not in the tree of the module's docstring")
    assert_no(offenders, "wrong errors")


BUILTIN = {"Exception", "KeyError", "OSError", "RuntimeError", "TypeError", "ValueError"}


def raised(node: ast.AST, *, private: bool = False) -> Iterator[tuple[bool, ast.Raise]]:
    """All raise statements below a node, each with whether it is in a private definition."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        inner = private or (named and child.name.startswith("_"))
        if isinstance(child, ast.Raise):
            yield inner, child
        yield from raised(child, private=inner)


def test_only_errors_of_onepass_are_raised() -> None:
    offenders: list[str] = []
    for path in FILES:
        if entry(path) == "errors":
            continue
        classes = [node for node in nodes(path) if isinstance(node, ast.ClassDef)]
        offenders += (
            f"{at(path, node)} defines {node.name}"
            for node in classes
            if node.name.endswith("Error")
        )
        for private, node in raised(tree(path)):
            what = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            # a private function may raise builtin errors that its module catches
            forbidden = {"Exception", "RuntimeError"} if private else BUILTIN
            if what is not None and ast.unparse(what) in forbidden:
                offenders.append(f"{at(path, node)} raises {ast.unparse(what)}")
    assert_no(offenders, "errors that are not those of onepass.errors")


# -- docstrings -----------------------------------------------------------------------------------


def documented(docstring: str) -> list[str] | None:
    """The names in a numpydoc docstring's Parameters section; None where there is no section.

    >>> documented("Sum.\\n\\nParameters\\n----------\\nX, y : array\\n    Rows.\\n*more : Any")
    ['X', 'y', 'more']
    >>> documented("Sum.\\n\\nParameters\\n----------\\ndepth\\n\\nReturns\\n-------\\nz : float")
    ['depth']
    >>> documented("Sum.")
    """
    lines = inspect.cleandoc(docstring).splitlines()
    heads = [i for i, line in enumerate(lines[1:]) if line and set(line) == {"-"}]
    start = next((i for i in heads if lines[i] == "Parameters"), None)
    if start is None:
        return None
    end = next((i for i in heads if i > start), len(lines))
    entries = [line for line in lines[start + 2 : end] if line and not line.startswith(" ")]
    return [name.strip(" *") for line in entries for name in line.partition(" :")[0].split(",")]


def problem(thing: Any, *, complete: bool) -> str:
    """The problem of a docstring, or ""; with ``complete``, parameters must be documented."""
    docstring = inspect.getdoc(thing) or ""
    if not docstring.partition("\n")[0].strip():
        return "has no docstring"
    found = documented(docstring)
    if found is None and not complete:
        return ""
    parameters = inspect.signature(thing).parameters
    expected = [name for name in parameters if name != "self" and not name.startswith("_")]
    return "" if (found or []) == expected else f"describes {found}, takes {expected}"


def constructed(thing: Any) -> bool:
    """Whether users call an object: not exceptions, protocols and abstract classes."""
    return not inspect.isclass(thing) or not (
        issubclass(thing, BaseException)
        or getattr(thing, "_is_protocol", False)
        or inspect.isabstract(thing)
    )


def test_docstrings_describe_every_parameter() -> None:
    public = set(onepass.__all__).union(*map(exported, CHOICES))
    found: dict[str, str] = {}
    for path in IMPORTABLE:
        for name, thing in vars(module(path)).items():
            own = getattr(thing, "__module__", "") == module(path).__name__
            if name.startswith("_") or not own or not callable(thing):
                continue
            where = f"{at(path)}: {name}"
            if constructed(thing):
                found[where] = problem(thing, complete=name in public)
            for method, made in vars(thing).items() if inspect.isclass(thing) else ():
                if inspect.isfunction(made) and not method.startswith("_"):
                    # the parameters of an overridden method are documented in the base class
                    found[f"{where}.{method}"] = problem(getattr(thing, method), complete=False)
    assert_no((f"{where} {what}" for where, what in found.items() if what), "incomplete docstrings")


# -- imports --------------------------------------------------------------------------------------


WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {"confluent_kafka", "httptools", "httpx", "matplotlib", "onnxruntime", "pandas",
                   "polars", "prometheus_client", "redis", "river", "starlette", "torch",
                   "uvicorn", "uvloop"}:
            raise ImportError(name)

sys.meta_path.insert(0, Absent())

import numpy as np
import onepass
from onepass.learners import __all__ as learners

for name in onepass.__all__:
    getattr(onepass, name)
for name in learners:
    learner = getattr(onepass, name)()
    learner.learn_one({"x0": 1.0, "x1": 2.0}, 0).partial_fit([[2.0, 1.0]], [1])
    assert learner.predict([[1.0, 2.0]]).shape == (1,)

assert len(next(iter(onepass.stream.dataset("flights", block=9))).y) == 9
for path in (sys.argv[1] + "/a.csv", sys.argv[1] + "/a.parquet"):
    onepass.stream.write([{"a": np.ones(3)}], path)
    assert len(next(iter(onepass.stream.read(path))).X) == 3
"""


def test_core_works_without_extras(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  a fixed command
        [sys.executable, "-c", WITHOUT_EXTRAS, str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

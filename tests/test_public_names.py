"""The public names of onepass, compared with the checked-in list ``public_names.txt``.

The list holds every name that code, shells, HTTP clients and dashboards of users may depend on:
Python names with their signatures, commands with their options, HTTP fields and Prometheus metrics.
It names no internal module, so that code can move without a change to the list.

After a deliberate change::

    PYTHONPATH=src python tests/test_public_names.py --write
"""

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pytest

import onepass
from onepass import errors

LIST = Path(__file__).with_name("public_names.txt")
PACKAGES = ("onepass", "onepass_experiments", "onepass_experiments.baselines")
PROTOCOL_METHODS = {
    "__add__", "__bool__", "__call__", "__contains__", "__enter__", "__exit__", "__getitem__",
    "__iter__", "__len__", "__next__", "__or__", "__setitem__",
}  # fmt: skip
"""Special methods that users call by syntax."""


# -- Python ---------------------------------------------------------------------------------------


def python_names() -> Iterator[str]:
    """Everything reachable by attributes from the packages, with signatures."""
    for package in PACKAGES:
        if importlib.util.find_spec(package):
            yield from module_names(package, importlib.import_module(package))


def exported(module: ModuleType) -> list[str]:
    """The names that a module declares, in ``__all__`` or by a ``__dir__`` of its own."""
    names = set(getattr(module, "__all__", ()))
    if "__dir__" in vars(module):
        names |= set(dir(module))
    if module is errors:  # what else it holds is for the package itself
        names = {name for name in names if isinstance(getattr(errors, name), type)}
    return sorted(name for name in names if not name.startswith("_"))


def module_names(path: str, module: ModuleType) -> Iterator[str]:
    for name in exported(module):
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            yield f"{path}.{name}"
            yield from module_names(f"{path}.{name}", thing)
        elif inspect.isclass(thing):
            yield from class_names(f"{path}.{name}", thing)
        elif callable(thing):
            yield f"{path}.{name}{signature(thing)}"
        else:
            yield from constant_names(f"{path}.{name}", thing)


def constant_names(path: str, thing: Any) -> Iterator[str]:
    """A constant; of a mapping or sequence also the entries, by key or by value."""
    yield path
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield from constant_names(f"{path}[{key!r}]", value)
    elif isinstance(thing, (tuple, list)):
        for entry in thing:
            yield f"{path}: {entry!r}"


def class_names(path: str, kind: type) -> Iterator[str]:
    """A class with its constructor, ancestors and members."""
    yield f"{path}{signature(kind)}"
    for base in sorted(bases(kind)):
        yield f"{path} inherits {base}"
    for name in members(kind):
        thing = getattr(kind, name, None)
        # a property and an attribute are read alike, so that neither is marked as such
        called = callable(thing) and inspect.isroutine(thing)
        yield f"{path}.{name}{signature(thing) if called else ''}"


def own_classes(kind: type) -> list[type]:
    """The classes of our packages among a class and its ancestors."""
    return [each for each in kind.__mro__ if each.__module__.partition(".")[0] in PACKAGES]


def bases(kind: type) -> set[str]:
    """The classes that users may test for or catch: of other packages, and our exceptions."""
    own = own_classes(kind)
    found = {base for each in own for base in each.__bases__ if base not in own}
    if issubclass(kind, BaseException):
        found |= set(own) - {kind}
    technical = {"object", "ABC", "Exception", "Generic", "NamedTuple", "Protocol"}
    return {base.__name__ for base in found} - technical


def members(kind: type) -> list[str]:
    """Public names that our classes define, in the body or on ``self``."""
    names: set[str] = set()
    for each in own_classes(kind):
        names |= set(vars(each)) | set(inspect.get_annotations(each)) | assigned(each)
    names |= fitted(kind)
    by_sklearn = re.compile(r"set_\w+_request")  # metadata routing
    public = {name for name in names if not name.startswith("_") and not by_sklearn.match(name)}
    return sorted(public | names & PROTOCOL_METHODS)


@cache
def assigned(kind: type) -> set[str]:
    """The attributes that the methods of a class assign to ``self``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # made at run time
        return set()
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }


def fitted(kind: type) -> set[str]:
    """What an instance shows after two rows, if it is a learner that needs no arguments."""
    if not callable(getattr(kind, "partial_fit", None)):
        return set()
    try:
        learner = kind().partial_fit([[0.0, 1.0], [1.0, 0.5]], [0, 1])
    except (TypeError, ValueError):
        return set()
    return set(vars(learner))


def signature(thing: Any) -> str:
    """Names, kinds and defaults of parameters; annotations are mypy's concern."""
    exception = inspect.isclass(thing) and issubclass(thing, BaseException)
    if exception and not inspect.isfunction(thing.__init__):  # in C: Python's versions differ
        return "(message)"
    found = inspect.signature(thing)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty, default=shown(each.default))
        for each in found.parameters.values()
        if each.name not in {"self", "cls"} and not each.name.startswith("_")
    ]
    plain = inspect.Signature(parameters, __validate_parameters__=False)
    return str(plain).replace("\n", " ")


class Verbatim:
    """Has the given text as its repr.

    Parameters
    ----------
    text : str
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def shown(default: Any) -> Any:
    """A default without addresses and internal modules in its repr."""
    if default is inspect.Parameter.empty or not re.search(r"<.*[. ]", repr(default)):
        return default
    return Verbatim(f"<{getattr(default, '__name__', type(default).__name__)}>")


# -- commands -------------------------------------------------------------------------------------


def cli_names() -> Iterator[str]:
    """Commands and their options, with choices and defaults."""
    app = importlib.import_module("onepass.cli.app").app
    yield from command_names(app, app, "onepass")
    yield from options("onepass", app.meta)


def command_names(app: Any, root: Any, path: str) -> Iterator[str]:
    yield path
    if app.default_command is not None:
        yield from options(path, app, root.default_parameter)
    for name in app:
        if name in {*app.help_flags, *app.version_flags}:
            if app is root:
                yield f"{path} {name}"
        else:
            yield from command_names(app[name], root, f"{path} {name}")


def options(path: str, app: Any, default_parameter: Any = None) -> Iterator[str]:
    given = {} if default_parameter is None else {"default_parameter": default_parameter}
    for argument in app.assemble_argument_collection(**given):
        names = [name for name in argument.names if name != "*"]
        if names and argument.parameter.show is not False:
            yield f"{path} {' '.join(names)}{choices(argument.hint)}{value(argument)}"


def choices(hint: Any) -> str:
    """The words that an option accepts, in braces."""
    kinds = [hint, *get_args(hint)]
    words = [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return f" {{{','.join(words)}}}" if words else ""


def value(argument: Any) -> str:
    default = argument.field_info.default
    if default is inspect.Parameter.empty:
        return " (required)" if argument.required else ""
    return f" = {default!r}"


# -- the service ----------------------------------------------------------------------------------


@cache
def served() -> tuple[dict[str, Any], str]:
    """The OpenAPI description and the exposition of a server whose learner has learned a block."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        words = ["serve", "rls", "--data", f"{folder}/data", "--port", "0", "--drift", "adwin"]
        with log.open("w") as file:
            server = subprocess.Popen(  # noqa: S603  our own words
                [sys.executable, "-m", "onepass", *words],
                stderr=file,
                env={**os.environ, "OMP_NUM_THREADS": "1", "ONEPASS_TOKEN": ""},
            )
        try:
            url = listening(server, log)
            x = {"name": "X", "shape": [2, 1], "datatype": "FP64", "data": [1.0, 2.0]}
            y = {"name": "y", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]}
            request(f"{url}/v2/models/rls/learn", {"inputs": [x, y]})
            request(f"{url}/v2/models/rls/infer", {"inputs": [x]})
            request(f"{url}/v2/models/rls/snapshot", {})
            description = json.loads(request(f"{url}/openapi.json"))
            return description, request(f"{url}/metrics")
        finally:
            server.terminate()
            server.wait(timeout=60)


def listening(server: subprocess.Popen[bytes], log: Path) -> str:
    """The address of a server, once it accepts requests."""
    while server.poll() is None:
        found = re.search(r"Listening on (http://[^ ]+:\d+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.02)
    raise AssertionError(log.read_text())


def request(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as reply:  # noqa: S310  our own server
        text: str = reply.read().decode()
    return text


def http_names() -> Iterator[str]:
    """Routes, and the fields of their requests and responses.

    Components are resolved: their names are internal to the description.
    """
    description = served()[0]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            roles = [role for each in operation.get("security", ()) for role in each["token"]]
            yield f"{route} (role: {', '.join(roles) or 'none'})"
            for each in operation.get("parameters", ()):
                yield f"{route} {each['in']} {each['name']}{required(each.get('required'))}"
            body = operation.get("requestBody", {})
            yield from content(f"{route} request", body, description)
            yield f"{route} statuses: {' '.join(sorted(operation['responses']))}"
            for status, response in operation["responses"].items():
                where = "(any error)" if status >= "400" else f"{route} {status}"
                yield from content(where, response, description)


def content(where: str, body: Mapping[str, Any], description: Any) -> Iterator[str]:
    for kind, entry in body.get("content", {}).items():
        yield f"{where} {kind}"
        if kind == "application/json":
            yield from fields(f"{where} body", "", entry.get("schema", {}), description)


def fields(where: str, path: str, schema: Any, description: Any) -> Iterator[str]:
    """One line for each field of a schema: ``inputs[].name: string (required)``."""
    if "$ref" in schema:
        at = description
        for part in schema["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        yield from fields(where, path, at, description)
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from fields(where, path, each, description)
    needed = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        below = f"{path}.{name}".removeprefix(".")
        yield f"{where} {below}{types(inner, description)}{required(name in needed)}"
        yield from fields(where, below, inner, description)
    if isinstance(schema.get("items"), dict):
        yield from fields(where, f"{path}[]", schema["items"], description)


def types(schema: Any, description: Any) -> str:
    """The types of a field; several with a bar between them."""
    if "$ref" in schema:
        component = schema["$ref"].rpartition("/")[2]
        return types(description["components"]["schemas"][component], description)
    if "anyOf" in schema or "oneOf" in schema:
        inner = {types(each, description) for each in schema.get("anyOf") or schema["oneOf"]}
        return ": " + " | ".join(sorted(each.removeprefix(": ") for each in inner))
    if "enum" in schema or "const" in schema:
        words = schema.get("enum", [schema.get("const")])
        return ": " + " | ".join(sorted(map(json.dumps, words)))
    kind = schema.get("type", "any")
    return f": {kind if isinstance(kind, str) else ' | '.join(sorted(kind))}"


def required(whether: Any) -> str:
    return " (required)" if whether else ""


def prometheus_names() -> Iterator[str]:
    """Metrics with their types, and samples with their labels."""
    for line in served()[1].splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            yield f"{name} ({kind})"
        elif line and not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            keys = ",".join(sorted(re.findall(r"(\w+)=", labels)))
            yield f"{name}{{{keys}}}"


# -- the list -------------------------------------------------------------------------------------

SECTIONS: Mapping[str, Callable[[], Iterator[str]]] = {
    "cli": cli_names,
    "http": http_names,
    "prometheus": prometheus_names,
    "python": python_names,
}


def public_names(section: str) -> list[str]:
    """The lines of a section, sorted, each once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about learners of two rows
        return sorted({f"{section} {line}" for line in SECTIONS[section]()})


@pytest.mark.parametrize("section", SECTIONS)
def test_public_names_equal_the_checked_in_list(section: str) -> None:
    for package in ("torch", "river", "uvicorn"):
        pytest.importorskip(package)
    every = LIST.read_text(encoding="utf-8").splitlines()
    listed = [line for line in every if line.startswith(f"{section} ")]
    lines = unified_diff(listed, public_names(section), n=0, lineterm="")
    changes = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    if changes:
        pytest.fail(
            "\n".join([f"Public names differ from {LIST.name} (- listed, + found):", *changes])
            + "\nIf the change is meant, update the list, review its diff, and add a line to "
            "CHANGELOG.md:\n    PYTHONPATH=src python tests/test_public_names.py --write",
            pytrace=False,
        )


def test_public_packages_can_be_imported_by_statements() -> None:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    packages = [
        line.split()[1] for line in lines if re.fullmatch(r"python onepass\.[a-z_.]+", line)
    ]
    assert "onepass.forgetting" in packages
    for package in packages:
        imported, used = importlib.import_module(package), attrgetter(package[8:])(onepass)
        assert all(getattr(imported, name) is getattr(used, name) for name in used.__all__)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: PYTHONPATH=src python tests/test_public_names.py --write")
    found = [line for section in SECTIONS for line in public_names(section)]
    LIST.write_text("\n".join(found) + "\n", encoding="utf-8")

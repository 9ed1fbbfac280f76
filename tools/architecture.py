"""Measure the architecture of a source tree: size, layers, imports, classes, annotations.

::

    python tools/architecture.py [TREE]

TREE is a checkout of this repository, by default the one of this file. Files are parsed, never
imported. Definitions:

code line         a line with code: docstrings, comments and blank lines do not count
import            an import statement at any depth, or a whole string that names a module, as in
                  ``import_module("onepass.x")``; ``import_module(name)`` is reported by line only
upward import     from a lower layer of the import-linter contract to a higher one, or between two
                  independent entries of one layer; also under TYPE_CHECKING
import cycle      modules that reach each other by import statements; imports under TYPE_CHECKING,
                  which are harmless at run time, are counted separately
ancestor          a class of our packages that a class inherits from, directly or not
single-user mixin a class with exactly one direct subclass in our packages that is never called by
                  its name or a value in a dict, not reachable through ``__all__`` from the package,
                  and no Protocol
Any               a parameter whose annotation mentions ``Any``, among annotated parameters
function length   lines of the body without the docstring
"""

# ruff: noqa: INP001, T201  a script that prints
import argparse
import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_ANCESTORS, MAX_FILE, MAX_FUNCTION = 4, 900, 80
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENDMARKER}  # fmt: skip


def text(node: ast.AST) -> bool:
    """Return whether a node is a string constant."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def prefixes(name: str) -> Iterator[str]:
    """Yield a dotted name and its prefixes, the longest first."""
    parts = re.split(r"[.:]", name)
    return (".".join(parts[:n]) for n in range(len(parts), 0, -1))


@dataclass(frozen=True)
class Import:
    """One import: its target, line and kind."""

    target: str
    line: int
    typing: bool = False
    text: bool = False


@dataclass
class Module:
    """A parsed file."""

    name: str
    path: Path
    source: str
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)
    bindings: dict[str, str] = field(default_factory=dict)
    computed: list[int] = field(default_factory=list)

    @property
    def code_lines(self) -> int:
        """Number of lines with code."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type not in LAYOUT:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and text(node.value):
                lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
        return len(lines)

    @property
    def length(self) -> int:
        """Number of lines."""
        return len(self.source.splitlines())

    def collect(self) -> None:
        """Collect imports and the names that they bind."""
        blocks = [node for node in ast.walk(self.tree) if isinstance(node, ast.If)]
        typed = [block for block in blocks if "TYPE_CHECKING" in ast.unparse(block.test)]
        typing = {node for block in typed for child in block.body for node in ast.walk(child)}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                base = "" if isinstance(node, ast.Import) else f"{self.base(node)}."
                for alias in node.names:
                    name = f"{base}{alias.name}"
                    self.imports.append(Import(name, node.lineno, node in typing))
                    bound = alias.asname or alias.name.partition(".")[0]
                    self.bindings[bound] = name if base or alias.asname else bound
            elif text(node) and re.fullmatch(r"\w+(\.\w+)+[.:]?\w*", node.value):
                self.imports.append(Import(node.value, node.lineno, text=True))
            elif isinstance(node, ast.Call) and not text(next(iter(node.args), node)):
                self.computed += [node.lineno] * ast.unparse(node.func).endswith("import_module")

    def base(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module from which names are imported."""
        if not node.level:
            return node.module or ""
        up = node.level - (self.path.stem == "__init__")
        parts = self.name.split(".")
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


class Tree:
    """All packages of a checkout.

    Parameters
    ----------
    root : Path
        The folder with ``pyproject.toml`` and ``src``.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.modules = root, dict[str, Module]()
        for path in sorted((root / "src").rglob("*.py")):
            parts = path.relative_to(root / "src").with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            source = path.read_text(encoding="utf-8")
            module = Module(name, path, source, ast.parse(source))
            module.collect()
            self.modules[name] = module
        self.classes = {
            f"{module.name}.{node.name}": (module, node)
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
        }
        self.bases = {
            name: [found for base in node.bases if (found := self.class_of(module, base))]
            for name, (module, node) in self.classes.items()
        }
        self.layers = self._layers()

    def module_of(self, name: str) -> str | None:
        """Return the module of a dotted name; None for other packages."""
        return next((prefix for prefix in prefixes(name) if prefix in self.modules), None)

    def class_of(self, module: Module, expression: ast.expr) -> str | None:
        """Return the class of this repository that an expression in a module names."""
        if isinstance(expression, ast.Subscript):
            expression = expression.value
        name = ast.unparse(expression)
        return self.resolved(f"{module.name}.{name}") if re.fullmatch(r"[\w.]+", name) else None

    def resolved(self, name: str) -> str | None:
        """Resolve a dotted name to a class, through any number of imports."""
        for _ in range(20):
            if name in self.classes:
                return name
            owner = self.module_of(name)
            first, _, rest = name.removeprefix(f"{owner}.").partition(".")
            bound = self.modules[owner].bindings.get(first) if owner else None
            if bound is None or bound == name:
                return None
            name = f"{bound}.{rest}" if rest else bound
        return None

    def _layers(self) -> dict[str, tuple[int, bool]]:
        """Return entry -> (layer number from 1 at the bottom, whether it is independent)."""
        with (self.root / "pyproject.toml").open("rb") as file:
            lint = tomllib.load(file)["tool"].get("importlinter", {})
        found: dict[str, tuple[int, bool]] = {}
        for contract in lint.get("contracts", ()):
            if contract["type"] == "layers":
                for number, layer in enumerate(reversed(contract["layers"]), 1):
                    for entry in re.findall(r"[\w.]+", layer):
                        for container in contract.get("containers", [""]):
                            name = f"{container}.{entry}".lstrip(".")
                            found[name] = number, "|" in layer
        return found

    def entry(self, module: str) -> str:
        """Return the contract entry of a module, otherwise its top-level package."""
        own = ".".join(module.split(".")[:2])
        return next((prefix for prefix in prefixes(module) if prefix in self.layers), own)

    def upward(self, package: str) -> Iterator[str]:
        """Yield imports that violate the contract."""
        for module in self.within(package):
            own = self.entry(module.name)
            for each in module.imports:
                target = self.module_of(each.target)
                other = self.entry(target) if target else own
                if other == own or own not in self.layers or other not in self.layers:
                    continue
                (low, _), (high, independent) = self.layers[own], self.layers[other]
                if high > low or (high == low and independent):
                    how = " (string)" if each.text else " (TYPE_CHECKING)" if each.typing else ""
                    yield f"{self.at(module, each.line)} {module.name} -> {target}{how}"

    def cycles(self, package: str, *, typing: bool) -> list[str]:
        """Return import cycles; ``typing`` includes imports under TYPE_CHECKING."""
        arrows = {
            module.name: {
                target
                for each in module.imports
                if typing >= each.typing and not each.text
                if (target := self.module_of(each.target)) not in {None, module.name}
            }
            for module in self.within(package)
        }
        reach = {name: reached(name, arrows) for name in arrows}
        loops = [[each for each in reach[name] if name in reach.get(each, ())] for name in arrows]
        return sorted({" <-> ".join(sorted(loop)) for loop in loops if loop})

    def ancestors(self, name: str) -> set[str]:
        """Return the ancestors of a class in this repository."""
        return set(self.bases[name]).union(*(self.ancestors(base) for base in self.bases[name]))

    def single_user_mixins(self, package: str) -> Iterator[str]:
        """Yield single-user mixins, as defined in the module docstring."""
        made = {
            self.class_of(module, each)
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, (ast.Call, ast.Dict))
            for each in ([node.func] if isinstance(node, ast.Call) else node.values)
        }
        users = [(base, name) for name, bases in self.bases.items() for base in bases]
        count, user = Counter(base for base, _ in users), dict(users)
        public = set(self.public(package))
        for name, (module, node) in self.classes.items():
            protocol = any("Protocol" in ast.unparse(base) for base in node.bases)
            alone = count[name] == 1 and name not in made | public and not protocol
            if alone and name.partition(".")[0] == package:
                yield f"{self.at(module, node.lineno)} {node.name}, only of {user[name]}"

    def public(self, package: str) -> Iterator[str]:
        """Yield the classes reachable from a package through ``__all__``."""
        module = self.modules[package]
        names: Iterable[str] = module.bindings  # if __all__ is not a literal
        for node in module.tree.body:
            assigned = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            if assigned and isinstance(node.value, ast.List):
                names = ast.literal_eval(node.value)
        for name in names:
            bound = module.bindings.get(name, f"{package}.{name}")
            if bound in self.modules and bound.startswith(f"{package.partition('.')[0]}."):
                yield from self.public(bound)
            elif found := self.resolved(f"{package}.{name}"):
                yield found

    def within(self, package: str) -> list[Module]:
        """Return the modules of a top-level package."""
        return [each for each in self.modules.values() if each.name.split(".")[0] == package]

    def at(self, module: Module, line: int) -> str:
        """Return the location as path:line."""
        return f"{module.path.relative_to(self.root)}:{line}"


def reached(start: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return all nodes reachable from ``start``, including ``start`` only if it is in a cycle."""
    found, waiting = set[str](), [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def long_functions(tree: Tree, module: Module) -> Iterator[str]:
    """Yield functions whose body is too long."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if length > MAX_FUNCTION:
                yield f"{tree.at(module, node.lineno)} {node.name}: {length} lines"


def listed(title: str, lines: Iterable[str]) -> None:
    """Print the number of lines and the lines."""
    found = list(lines)
    print("\n    ".join([f"{title}: {len(found)}", *found]))


def report(tree: Tree, package: str) -> None:
    """Print all measurements of a package."""
    modules = tree.within(package)
    code, files = Counter[str](), Counter[str]()
    for module in modules:
        entry = ".".join(module.name.split(".")[:2])
        code[entry] += module.code_lines
        files[entry] += 1
    numbers = {n for entry, (n, _) in tree.layers.items() if entry.startswith(f"{package}.")}
    total = sum(module.length for module in modules)
    print(f"== src/{package}\ncode lines: {code.total():,} of {total:,} lines")
    print(f"files: {len(modules)}\ntop-level entries: {len(code.keys() - {package})}")
    print(f"layers: {len(numbers)}")
    for entry in sorted(code, key=lambda each: (-tree.layers.get(each, (0, False))[0], each)):
        layer = tree.layers.get(entry, ("-", False))[0]
        print(f"    {layer:>3} {entry:<40} {files[entry]:>4} files {code[entry]:>7,} code lines")
    listed("upward imports", tree.upward(package))
    listed("imports computed at run time",
           (tree.at(module, line) for module in modules for line in module.computed))  # fmt: skip
    listed("import cycles", tree.cycles(package, typing=False))
    listed("import cycles with TYPE_CHECKING", tree.cycles(package, typing=True))
    many = {n: len(tree.ancestors(n)) for n in tree.classes if n.split(".")[0] == package}
    listed(f"classes with more than {MAX_ANCESTORS} ancestors",
           (f"{n} {name}" for name, n in many.items() if n > MAX_ANCESTORS))  # fmt: skip
    listed("single-user mixins", tree.single_user_mixins(package))
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    arguments = [node for node in nodes if isinstance(node, ast.arg) and node.annotation]
    annotations = [ast.unparse(node.annotation or node) for node in arguments]
    vague = sum(bool(re.search(r"\bAny\b", each)) for each in annotations)
    print(f"Any: {vague} of {len(annotations)} annotated parameters, "
          f"{vague / max(len(annotations), 1):.1%}")  # fmt: skip
    listed(f"files over {MAX_FILE} lines",
           (f"{tree.at(module, 1)}: {module.length}"
            for module in modules if module.length > MAX_FILE))  # fmt: skip
    listed(f"functions over {MAX_FUNCTION} lines",
           (line for module in modules for line in long_functions(tree, module)))  # fmt: skip
    print()


def report_native(folder: Path) -> None:
    """Print the size of the C code."""
    files = sorted([*folder.rglob("*.c"), *folder.rglob("*.h")])
    comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
    texts = [comment.sub("", path.read_text(encoding="utf-8")) for path in files]
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    print(f"== native\ncode lines: {lines:,}\nfiles: {len(files)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure the architecture of a source tree.")
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parents[1])
    checkout = Tree(parser.parse_args().tree.resolve())
    for top in sorted({name.split(".")[0] for name in checkout.modules}):
        report(checkout, top)
    report_native(checkout.root / "native")

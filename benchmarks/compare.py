"""Comparison of the accuracy and speed of two versions.

    python benchmarks/compare.py [--base main] [--head .] [--rounds 3] [--only NAME ...] [--profile]

Each version is installed with pip, including its compiled loops, into a separate folder. A version
is a commit, a branch, a tag or a folder. The current ``measures.py`` is run with both versions in
alternating processes. The best round counts, since other load can only make a round slower.
Results outside the tolerance of a measure are marked, and the exit status is then 1. ``--profile``
shows the functions that take most time in each version.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cells import table, write
from measures import MEASURES, Measure

ROOT = Path(__file__).parents[1]
HEAD = ["", "score", "base", "head", "tolerance", "rows/s, base", "head", "head / base"]
HEAD += ["tolerance", ""]
Found = dict[str, dict[str, Any]]


def main() -> None:
    """Print the table; exit with 1 if anything is worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="main", help="a commit, branch, tag or folder")
    parser.add_argument(
        "--head", default=str(ROOT), help="a commit, branch, tag or folder; by default this folder"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[each.name for each in MEASURES])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path, help="file for the results")
    args = parser.parse_args()
    chosen = [each for each in MEASURES if not args.only or each.name in args.only]
    with tempfile.TemporaryDirectory() as folder:
        installed = {}
        for side, version in (("base", args.base), ("head", args.head)):
            print(f"Installing {side}: {version}", file=sys.stderr, flush=True)
            installed[side] = install(version, Path(folder) / side)
        found: dict[str, Found] = {"base": {}, "head": {}}
        for i in range(args.rounds):
            for side in ("base", "head") if i % 2 == 0 else ("head", "base"):
                print(f"Round {i + 1} of {args.rounds}: {side}", file=sys.stderr, flush=True)
                names = [each.name for each in chosen]
                profiled = args.profile and i == 0
                join(found[side], measured(installed[side], names, profiled=profiled))
    if args.json:
        write(args.json, {"command": f"python benchmarks/compare.py --base {args.base} --profile",
                          **found})  # fmt: skip
    rows = [compared(each, found["base"][each.name], found["head"][each.name]) for each in chosen]
    print(table(HEAD, rows, 2))
    for side in ("base", "head"):
        for name, one in found[side].items():
            for place, part in one.get("profile", ()):
                print(f"{side}: {name}: {part:4.0%} {place}")
    sys.exit(any(row[-1] for row in rows))


def install(version: str, folder: Path) -> Path:
    """Install a version without its dependencies and return its location."""
    tree = Path(version)
    if not tree.is_dir():
        tree = folder / "tree"
        tree.mkdir(parents=True)
        archive = folder / "tree.zip"
        command = ["git", "-C", str(ROOT), "archive", "--output", str(archive), version]
        subprocess.run(command, check=True)  # noqa: S603  trusted arguments
        shutil.unpack_archive(archive, tree)
    place = folder / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    given = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": "0"}
    subprocess.run([*command, str(place), str(tree)], check=True, env=given)  # noqa: S603
    return place


def measured(place: Path, names: Sequence[str], *, profiled: bool) -> Found:
    """Run the measures with the version installed in a folder."""
    given = {**os.environ, "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "benchmarks" / "measures.py"), "--only", *names]
    command += ["--profile"] * profiled
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=given)  # noqa: S603
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("name"): line for line in lines}


def join(found: Found, more: Found) -> None:
    """Merge results, with the better speed; the score is the same in each round."""
    for name, one in more.items():
        before = found.get(name, {})
        if "speed" in one and "speed" in before:
            one["speed"] = max(one["speed"], before["speed"])
        found[name] = {**before, **one}


def compared(measure: Measure, base: dict[str, Any], head: dict[str, Any]) -> list[str]:
    """Return a row of the table; its last cell names what is worse."""
    words = [measure.name, measure.score]
    limits = [f"{measure.worse:.2%}" if measure.worse >= 1e-4 else f"{measure.worse:.0e}",
              f"{measure.slower:.0%}"]  # fmt: skip
    if "error" in head:
        return [*words, "", "", limits[0], "", "", "", limits[1], f"fails: {head['error']}"]
    after = [f"{head['score']:.6g}", f"{head['speed']:,.0f}"]
    if "error" in base:
        return [*words, "none", after[0], limits[0], "none", after[1], "", limits[1], ""]
    ratio = head["speed"] / base["speed"]
    problems = []
    if head["score"] > base["score"] + measure.worse * abs(base["score"]):
        problems.append("**worse**")
    if ratio < 1.0 - measure.slower:
        problems.append("**slower**")
    return [
        *words, f"{base['score']:.6g}", after[0], limits[0], f"{base['speed']:,.0f}", after[1],
        f"{ratio:.2f}×", limits[1], ", ".join(problems),
    ]  # fmt: skip


if __name__ == "__main__":
    main()

"""Places where the files of data sets lie, in the order in which they are looked in.

1. the package itself, for the sets that come with it;
2. the folder named by the environment variable ``ONEPASS_DATA``;
3. the cache: the folder named by ``ONEPASS_CACHE``, or the platform's own for caches;
4. where a system package puts them.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["cache_folder", "folders", "located"]

_BUNDLED = Path(__file__).parent / "data"


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder in which fetched data sets are kept.

    Parameters
    ----------
    cache : path, optional
        Another folder, before all others.
    """
    if cache is not None:
        return Path(cache)
    if named := os.environ.get("ONEPASS_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "onepass"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/onepass"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onepass"


def folders(cache: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders in which a set's files, ``set/file``, are looked for."""
    named = os.environ.get("ONEPASS_DATA")
    return [_BUNDLED, *([Path(named)] if named else []), cache_folder(cache)]


def located(
    files: Sequence[str],
    system: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> list[Path] | None:
    """The paths of a set's files, all from one folder; None where no folder has them all.

    Parameters
    ----------
    files : sequence of str
        Their paths, ``set/file``. One that ends in ``.gz`` may also lie there unpacked.
    system : str, optional
        The folder of a system package, in which they lie by their file name alone.
    cache : path, optional
        The cache to look in.
    """
    wanted = [[folder / file for file in files] for folder in folders(cache)]
    if system is not None:
        wanted.append([Path(system) / Path(file).name for file in files])
    for paths in wanted:
        there = [_packed_or_not(path) for path in paths]
        if all(path.is_file() for path in there):
            return there
    return None


def _packed_or_not(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" and not path.is_file() else path

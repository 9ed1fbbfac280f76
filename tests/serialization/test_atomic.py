"""Atomic writes: after any failure the path has the complete old or new file."""

import errno
import os
import stat
from pathlib import Path

import pytest

from onepass.serialization.atomic import atomic_write


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_new_file_replaces_the_old(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in ("one", "two"):
        with atomic_write(path) as temporary:
            assert temporary.parent.parent == tmp_path
            temporary.write_text(text)
        assert path.read_text() == text
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_in_the_block_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as temporary:  # noqa: PT012  both are the block
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_os_error_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"), atomic_write(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_file_is_flushed_before_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def record_sync(descriptor: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def record_replace(a: str, b: str) -> None:
        done.append("name")
        replace(a, b)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    with atomic_write(tmp_path / "a"):
        pass
    assert done == ["file", "name", "directory"]


@pytest.mark.parametrize(("number", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_directory_sync_ignores_einval_but_raises_eio(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    raised: bool,  # noqa: FBT001
) -> None:
    sync = os.fsync

    def fails(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    try:
        with atomic_write(tmp_path / "a"):
            pass
    except OSError:
        assert raised
    else:
        assert not raised


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_permissions_are_preserved_and_new_files_have_the_default(tmp_path: Path) -> None:
    path, usual = tmp_path / "a", tmp_path / "usual"
    usual.touch()
    with atomic_write(path):
        pass
    assert path.stat().st_mode == usual.stat().st_mode
    path.chmod(0o640)
    with atomic_write(path) as temporary:
        temporary.unlink()
        temporary.touch(0o600)  # the block may recreate the file
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_symbolic_link_remains_and_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("one", "two"):  # at first the link points to nothing
        with atomic_write(link) as temporary:
            assert temporary.parent.parent == target.parent
            temporary.write_text(text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), atomic_write(tmp_path):
        pass
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "none" / "a"):
        pass
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="Not an ordinary file"), atomic_write(tmp_path / "pipe"):
            pass
    assert not [name for name in names(tmp_path) if name.startswith(".")]

"""Archive files: written trees can be read, and every other file is refused."""

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save, save_file

from onepass.errors import CheckpointError
from onepass.serialization import archive
from raising import raises
from sampling import sample

TREE = {"w": np.arange(3.0), "names": ["a", "b"], "on": np.array([True, False, True])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onepass"


@pytest.fixture
def whole(path: Path) -> bytes:
    archive.write(path, TREE)
    return path.read_bytes()


def make_file(record: Any, arrays: dict[str, Any] | None = None) -> bytes:
    """The bytes of a file with this header and a valid digest."""
    text = record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))
    data = save(arrays or {}, metadata={"onepass": text})
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)


def record(**changes: Any) -> dict[str, Any]:
    fields = {"sha256": "0" * 64, "format": 1, "version": "1", "kind": "tree", "tree": None}
    return {k: v for k, v in (fields | changes).items() if v is not ...}


def read_error(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        archive.read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message


def test_write_and_read(path: Path) -> None:
    archive.write(path, TREE, kind="weights")
    again = archive.read(path, kind="weights")
    assert again["names"] == TREE["names"]
    for name in ("w", "on"):
        np.testing.assert_array_equal(again[name], TREE[name])
        again[name][0] = 0  # writable copy


def test_any_safetensors_reader_sees_the_arrays(path: Path) -> None:
    archive.write(path, {"memory_": {"Q": np.eye(2)}, "empty": np.zeros((0, 3))})
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["memory_.Q"], np.eye(2))
    assert arrays["empty"].shape == (0, 3)


@pytest.mark.parametrize("tree", [None, 3, [], {}, np.array(2.5), np.zeros(0), "0" * 64])
def test_small_trees(path: Path, tree: Any) -> None:
    archive.write(path, tree)
    again = archive.read(path)
    np.testing.assert_equal(again, tree)
    assert type(again) is type(tree)


def test_contents_has_the_metadata(path: Path, whole: bytes) -> None:
    found = archive.contents(path)
    assert (found.kind, found.format, found.nbytes) == ("tree", archive.FORMAT, len(whole))
    blank = whole.replace(found.sha256.encode(), b"0" * 64)
    assert found.sha256 == hashlib.sha256(blank).hexdigest()


def test_writing_is_deterministic(path: Path, whole: bytes) -> None:
    archive.write(path, TREE)
    assert path.read_bytes() == whole


def test_another_kind_is_refused(path: Path, whole: bytes) -> None:
    assert whole
    with raises(CheckpointError, got="a tree"):
        archive.read(path, kind="learner")


def test_truncated_file_is_refused(path: Path, whole: bytes) -> None:
    for length in range(len(whole)):
        read_error(path, whole[:length])
    read_error(path, whole + b"\0")


@pytest.mark.parametrize("flip", sample([0x01, 0x20, 0xFF], 1, "flipped bits"))
def test_changed_byte_is_detected(path: Path, whole: bytes, flip: int) -> None:
    for i in range(len(whole)):
        read_error(path, whole[:i] + bytes([whole[i] ^ flip]) + whole[i + 1 :])


def test_changed_padding_of_the_header_is_detected(path: Path, whole: bytes) -> None:
    end = 8 + int.from_bytes(whole[:8], "little")
    header = whole[8:end]
    if not header.endswith(b" "):
        for text in ("a", "ab", "abc"):
            archive.write(path, {**TREE, "text": text})
            whole = path.read_bytes()
            end = 8 + int.from_bytes(whole[:8], "little")
            if whole[end - 1 : end] == b" ":
                break
    assert whole[end - 1 : end] == b" "
    assert "checksum" in read_error(path, whole[: end - 1] + b"\t" + whole[end:])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
@example((2).to_bytes(8, "little") + b"{}")
@example((2**63).to_bytes(8, "little") + b"{}" * 20)
@example((99_999_999).to_bytes(8, "little") + b"{}" * 20)
def test_random_bytes_are_refused(path: Path, data: bytes) -> None:
    read_error(path, data)


DEEP = '{"sha256":"' + "0" * 64 + '","format":1,"version":"1","kind":"t","tree":' + "[" * 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("[]", "its format version is missing"),
        ("{}", "its format version is missing"),
        (json.dumps(record(format=True)), "its format version is missing"),
        (json.dumps(record(format="1")), "its format version is missing"),
        (json.dumps(record(format=0)), "missing or unexpected fields"),
        (json.dumps(record(version=None)), "missing or unexpected fields"),
        (json.dumps(record(kind=3)), "missing or unexpected fields"),
        (json.dumps(record(tree=...)), "missing or unexpected fields"),
        (json.dumps(record(more=1)), "missing or unexpected fields"),
        (json.dumps(record(sha256=...)), "missing or unexpected fields"),
        ('{"format":1,"format":1}', "a key is repeated"),
        ('{"format":NaN}', "NaN is not a finite number"),
        ('{"format":1e999}', "1e999 is not a finite number"),
        ('{"format":' + "1" * 5000 + "}", "not valid JSON"),
        (DEEP, "not valid JSON"),
    ],
)
def test_invalid_headers_are_refused(path: Path, text: str, words: str) -> None:
    assert words in read_error(path, make_file(text))


@pytest.mark.parametrize(
    ("tree", "arrays", "words"),
    [
        ({"$": "array", "name": "a"}, {}, "not a valid value"),
        (None, {"a": np.zeros(1)}, "the array 'a' is not used"),
        ({"a": {"$": "code", "value": "import os"}}, {}, "`a` is not a valid value"),
        ([[{"$": "float", "value": "NaN"}]], {}, "`0.0` is not a valid value"),
    ],
)
def test_invalid_trees_are_refused(
    path: Path, tree: Any, arrays: dict[str, Any], words: str
) -> None:
    assert words in read_error(path, make_file(record(tree=tree), arrays))


def test_valid_file_of_another_writer_is_read(path: Path) -> None:
    path.write_bytes(make_file(record(tree=[1, 2])))
    assert archive.read(path) == [1, 2]


def test_arrays_of_unsupported_dtypes_are_refused(path: Path) -> None:
    data = make_file(record(tree={"$": "array", "name": "a"}), {"a": np.zeros(2, np.float64)})
    assert b'"F64"' in data
    again = data.replace(b'"F64","shape":[2]', b'"C64","shape":[2]')
    assert "damaged" in read_error(path, again)


def test_newer_format_is_refused(path: Path) -> None:
    message = read_error(path, make_file(record(format=3, digest="of another kind")))
    assert message == f"{path}: must have format version 1 or lower, got 3. Upgrade onepass."


def test_safetensors_file_of_another_program_is_refused(path: Path) -> None:
    save_file({"a": np.zeros(1)}, path)
    with raises(CheckpointError, got="a safetensors file without its metadata"):
        archive.read(path)
    save_file({"a": np.zeros(1)}, path, metadata={"format": "pt"})
    with raises(CheckpointError, remedy="Load it with the program that wrote it"):
        archive.read(path)


def test_directories_and_pipes_are_refused(tmp_path: Path) -> None:
    with raises(CheckpointError, got="a directory or a device"):
        archive.read(tmp_path)
    with pytest.raises(CheckpointError, match="No such file"):
        archive.read(tmp_path / "none.onepass")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with raises(CheckpointError, got="a directory or a device"):
            archive.read(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "none" / "m.onepass"):
        with raises(CheckpointError, remedy="An existing file is"):
            archive.write(place, TREE)


def test_invalid_tree_leaves_the_old_file(path: Path, whole: bytes) -> None:
    with raises(CheckpointError, argument="w"):
        archive.write(path, {"w": object()})
    assert path.read_bytes() == whole


def test_too_much_text_is_refused(
    path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_LARGEST_HEADER", 1000)
    with pytest.raises(CheckpointError, match=r"at most 1,000 bytes, got \d,"):
        archive.write(path, ["text"] * 200)
    assert path.read_bytes() == whole
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_full_disk_leaves_the_old_file(
    path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError, match=r"No space left .* is unchanged"):
        archive.write(path, {})
    assert path.read_bytes() == whole
    assert list(path.parent.iterdir()) == [path]


def test_concurrent_writes_and_reads(path: Path) -> None:
    errors: list[BaseException] = []

    def write_many(k: int) -> None:
        try:
            for _ in range(15):
                archive.write(path, {"k": k, "w": np.full(1000 * k, float(k))})
        except BaseException as error:  # noqa: BLE001  asserted below
            errors.append(error)

    archive.write(path, {"k": 0, "w": np.zeros(0)})
    threads = [threading.Thread(target=write_many, args=(k,)) for k in (1, 2)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        tree = archive.read(path)
        assert tree["w"].shape == (1000 * tree["k"],)
        assert (tree["w"] == tree["k"]).all()
    for thread in threads:
        thread.join()
    assert not errors
    assert list(path.parent.iterdir()) == [path]

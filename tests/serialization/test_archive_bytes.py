"""Archives as bytes: equal to files, and damaged bytes are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onepass as op
from cases import LEARNERS, PIPELINES, Case, draw, features, make_targets, snapshot
from onepass.errors import CheckpointError
from onepass.serialization import archive, models
from raising import raises

TREE = {"w": np.arange(6.0).reshape(2, 3).T, "names": ["a", "é", "\udc80"], "n": 2**70, "x": 0.1}


def test_bytes_equal_the_file(tmp_path: Path) -> None:
    archive.write(tmp_path / "a", TREE, kind="weights")
    data = (tmp_path / "a").read_bytes()
    assert archive.dumps(TREE, "here", kind="weights") == data
    found = archive.loads(data, "here")
    assert snapshot(found.tree) == snapshot(TREE)
    assert (found.kind, found.nbytes, found.format) == ("weights", len(data), archive.FORMAT)
    assert found.sha256 == archive.contents(tmp_path / "a").sha256


def test_loaded_arrays_are_copies() -> None:
    data = archive.dumps(TREE, "here")
    one, two = (archive.loads(data, "here").tree for _ in range(2))
    one["w"][0, 0] = 99.0
    assert two["w"][0, 0] == 0.0
    assert archive.loads(data, "here").tree["w"][0, 0] == 0.0


@given(st.data())
def test_changed_bit_is_detected(data: st.DataObject) -> None:
    whole = bytearray(archive.dumps(TREE, "here"))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CheckpointError, match=r"^here"):
        archive.loads(bytes(whole), "here")


@given(st.binary(max_size=300), st.integers(0, 400))
def test_truncated_and_extended_bytes_are_refused(tail: bytes, length: int) -> None:
    whole = archive.dumps(TREE, "here")
    other = whole[:length] + tail
    if other != whole:
        with pytest.raises(CheckpointError):
            archive.loads(other, "here")


def test_too_much_text_and_invalid_trees_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(CheckpointError, where="here", argument="a"):
        archive.dumps({"a": object()}, "here")
    monkeypatch.setattr(archive, "_LARGEST_HEADER", 1000)
    with pytest.raises(CheckpointError, match="at most 1,000 bytes"):
        archive.dumps({"a": "x" * 2000}, "here")


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize(
    "case",
    draw([case for case in LEARNERS if case.public], "bytes of learners") + PIPELINES,
    ids=lambda case: case.name,
)
def test_bytes_of_learners_equal_saved_files(case: Case, tmp_path: Path) -> None:
    X = features(20)
    learner = case().partial_fit(X, make_targets(case, X))
    op.save(learner, tmp_path / "m.onepass")
    data = (tmp_path / "m.onepass").read_bytes()
    assert models.dumps(learner, "here") == data
    again: Any = models.from_contents(archive.loads(data, "here"), "here", {})
    assert snapshot(again) == snapshot(learner)

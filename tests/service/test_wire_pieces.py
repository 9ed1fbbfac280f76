"""JSON that is read piece by piece is what it is when read at once, wherever it is cut."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepass.errors import RequestError

msgspec = pytest.importorskip("msgspec")
from onepass.service.protocol import json as jsontext  # noqa: E402
from onepass.service.protocol.json import COLUMN, ELEMENT, LIST, OBJECT, TEXT  # noqa: E402
from onepass.service.protocol.limits import Limits  # noqa: E402

hard = st.text('ab,]}[{":\\ \n', max_size=8)
scalars = st.none() | st.booleans() | st.integers(-9, 999) | st.floats(-1, 1) | hard
deep = st.lists(st.dictionaries(hard, hard, max_size=2), max_size=3)
KINDS: dict[str, tuple[re.Pattern[bytes], Any]] = {
    "numbers": (ELEMENT, st.lists(st.integers(0, 9999))),
    "texts": (TEXT, st.lists(st.none() | hard)),
    "scalars": (ELEMENT, st.lists(scalars)),
    "rows": (LIST, st.lists(st.lists(scalars, max_size=4))),
    "records": (OBJECT, st.lists(st.dictionaries(hard, scalars, max_size=3))),
    "columns": (COLUMN, st.dictionaries(hard, st.lists(scalars, max_size=9))),
    "deeper": (OBJECT, st.lists(st.dictionaries(hard, deep, max_size=2), max_size=4)),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "PIECE", 8)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150)
@given(data=st.data())
def test_pieces_are_the_whole(kind: str, data: st.DataObject) -> None:
    end, values = KINDS[kind]
    told = data.draw(values)
    gap = data.draw(st.sampled_from(["", " ", "\n\t "]))
    text = json.dumps(
        told, separators=("," + gap, gap + ":"), ensure_ascii=data.draw(st.booleans())
    )
    pieces = list(jsontext.in_pieces(msgspec.json.decode, text.encode(), end, "here", Limits()))
    if isinstance(told, dict):
        assert {name: each for piece in pieces for name, each in piece.items()} == told
    else:
        assert [each for piece in pieces for each in piece] == told


def test_long_lists_are_cut() -> None:
    text = json.dumps(list(range(100))).encode()
    pieces = list(jsontext.in_pieces(msgspec.json.decode, text, ELEMENT, "here", Limits()))
    assert max(map(len, pieces)) <= 8
    assert sum(map(len, pieces)) == 100


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (b'"\\ud800"', "`here` must be JSON"),
        (b'"\xff"', "`here` must be UTF-8"),
        (b"1e999", r"`here(\[\d+\])?` must be a number within float64"),
        (b"[" * 5000 + b"]" * 5000, "`here` must be nested a few levels deep"),
    ],
)
@pytest.mark.parametrize("before", [0, 100])
@pytest.mark.parametrize("after", [0, 100])
def test_what_is_wrong_in_a_piece(inner: bytes, message: str, before: int, after: int) -> None:
    text = b"[" + b"1," * before + inner + b",1" * after + b"]"
    with pytest.raises(RequestError, match=message):
        list(jsontext.in_pieces(msgspec.json.decode, text, ELEMENT, "here", Limits()))

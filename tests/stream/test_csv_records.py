"""Rows of delimited text end at line breaks outside of quotation marks."""

import csv
import gzip
import io
from collections.abc import Callable

import pyarrow.csv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onepass.errors import SourceError
from onepass.stream import csv as delimited
from onepass.stream import csv as records
from onepass.stream import read
from onepass.stream.csv import Records
from raising import raises

NULLS = pyarrow.csv.ConvertOptions().null_values
FIELDS = st.text(st.sampled_from('ab",\n\r;\t é'), min_size=0, max_size=6)


@given(
    rows=st.lists(st.lists(FIELDS, min_size=2, max_size=3), min_size=1, max_size=8),
    size=st.integers(1, 40),
)
def test_chunks_contain_whole_rows(rows: list[list[str]], size: int) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    text = file.getvalue().encode()
    chunks = [chunk for chunk, _ in Records(",", "a.csv").chunks(io.BytesIO(text), size, size)]
    assert b"".join(chunks) in {text, text + b"\n"}  # a line break may end the last row twice
    split = [row for chunk in chunks for row in csv.reader(io.StringIO(chunk.decode(), newline=""))]
    assert [row for row in split if row] == rows


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"", 0),
        (b"a,b", 0),
        (b"a,b\n1", 4),
        (b"a,b\r\n1,2\r\n3", 10),
        (b"a\r1\r2", 4),
        (b'a,"b\n1,2\n', 0),
        (b'x,y\na,"b\n1,2\n', 4),
        (b'a,"b""\n"\n1', 9),
        (b'a,5" pipe\n1,2\n3', 14),  # a mark within a field is a mark
        (b'"a"x,b\n"', 7),  # and what follows a closing mark belongs to the field
        (b'a,""\n,"\n', 5),
    ],
)
def test_end_of_the_last_whole_row(text: bytes, end: int) -> None:
    assert Records(",", "a.csv").end(text) == end


def rows_end(text: str) -> int:
    """Where the last whole row ends, character by character."""
    end, field, state = 0, True, "plain"  # whether a field begins; plain, quoted or closing
    for i, mark in enumerate(text):
        if state == "quoted":
            state = "closing" if mark == '"' else "quoted"
            continue
        if mark == '"' and (field or state == "closing"):
            state, field = "quoted", False
            continue
        state, field = "plain", mark in ",\r\n"
        if mark in "\r\n":
            end = i + 1
    return end


@given(st.text(st.sampled_from('a",\n\r'), max_size=14))
def test_end_of_rows_equals_a_character_automaton(text: str) -> None:
    assert Records(",", "a.csv").end(text.encode()) == rows_end(text)


@given(
    rows=st.lists(st.lists(FIELDS, min_size=2, max_size=2), min_size=1, max_size=6),
    cut=st.integers(0, 200),
    leave=st.booleans(),
)
@example(rows=[["a", "b"], ["c", "d"]], cut=12, leave=True)  # ends within the second row
@example(rows=[["a", "b"], ["c", "d"]], cut=12, leave=False)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_truncated_text_is_read_refused_or_left_for_later(
    rows: list[list[str]],
    cut: int,
    leave: bool,  # noqa: FBT001
) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    text = file.getvalue()[:cut]
    given = [*csv.reader(io.StringIO(text[: rows_end(text)], newline=""))]
    ended, open_mark = rows_end(text) == len(text), rows_end(text + "\n") < len(text) + 1
    if not (leave or open_mark or ended):
        given = [*csv.reader(io.StringIO(text, newline=""))]
    types = {"a": "text", "b": "text"}
    stream = read(
        io.BytesIO(b"0,0\n" + text.encode()), header=["a", "b"], types=types, bad_rows="skip",
        leave_unterminated=0 if leave else None,
    )  # fmt: skip
    found: list[list[str]] = []
    refused = ""
    try:
        for block in stream:
            found += [[a or "", b or ""] for a, b in zip(block.X["a"], block.X["b"], strict=True)]
    except SourceError as error:
        refused = str(error)
    assert ("must close its quotation marks" in refused) == (open_mark and not leave)
    if not refused:
        given = [row for row in given if len(row) == 2]
        assert found[1:] == [["" if v in NULLS else v for v in row] for row in given]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (b'a,b\n1,2\n3,"4\n5,6\n7,8\n', "Add the closing mark"),
        (b'a,b\n1,2\n3,"4\n5,6\n7,8', "Add the closing mark"),
        (b'a,"b\n1,2\n', "Add the closing mark"),
    ],
)
@pytest.mark.parametrize("size", [1, 4 << 20])
def test_unclosed_quotation_mark_at_the_end_is_refused(
    text: bytes, remedy: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "_SAMPLE", size)
    with raises(SourceError, remedy=remedy):
        list(read(io.BytesIO(text)))


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'"a\nb",c\n1,2\n', "a\nb"), (b'"a",c\n1,2\n', "a"), (b'sep=;\n"a\nb";c\n1;2\n', "a\nb"),
        (b'{"a":1,"c":2}\n', "a"),
    ],
)  # fmt: skip
def test_byte_order_mark_is_skipped(
    text: bytes, name: str, packed: Callable[[bytes], bytes]
) -> None:
    (rows,) = read(io.BytesIO(packed(b"\xef\xbb\xbf" + text)))
    assert rows.X.row(0) == {name: 1.0, "c": 2.0}


def test_end_of_rows_with_tab_as_delimiter() -> None:
    assert Records("\t", "a.tsv").end(b'a\t"b\n"\n1\t"') == 7
    assert Records("\t", "a.tsv").end(b'a,"b\n"') == 5


def test_quoted_line_breaks_may_cross_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_SAMPLE", 100)
    monkeypatch.setattr(delimited, "_CHUNK", 32)
    values = [f'say "{i}",\nthen {i}' for i in range(50)]
    file = io.StringIO()
    csv.writer(file).writerows([["text", "y"], *([value, i] for i, value in enumerate(values))])
    file.seek(0)
    (rows,) = read(file, target="y")
    assert rows.X["text"].tolist() == values
    assert rows.y.tolist() == list(range(50))


def test_rows_above_the_length_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_SAMPLE", 100)
    monkeypatch.setattr(delimited, "_CHUNK", 32)
    monkeypatch.setattr(records, "_LONGEST", 1000)
    text = "a,y\n" + "1,2\n" * 50 + '1,"2\n' + "1,2\n" * 1000
    with pytest.raises(SourceError, match=r"rows of at most 16 MiB.*Close the quotation mark"):
        list(read(io.StringIO(text)))
    with pytest.raises(SourceError, match="rows of at most 16 MiB"):
        list(read(io.StringIO("a" * 2000)))

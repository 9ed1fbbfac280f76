"""Rows of delimited text end where a line breaks outside of quotation marks."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepass.errors import SourceError
from onepass.stream import csv as delimited
from onepass.stream import csv as records
from onepass.stream import read
from onepass.stream.csv import Records

FIELDS = st.text(st.sampled_from('ab",\n\r;\t é'), min_size=0, max_size=6)


@given(
    rows=st.lists(st.lists(FIELDS, min_size=2, max_size=3), min_size=1, max_size=8),
    size=st.integers(1, 40),
)
def test_chunks_are_whole_rows(rows: list[list[str]], size: int) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    text = file.getvalue().encode()
    chunks = list(Records(",", "a.csv").chunks(io.BytesIO(text), size, size))
    assert b"".join(chunks) == text
    split = [row for chunk in chunks for row in csv.reader(io.StringIO(chunk.decode(), newline=""))]
    assert split == rows


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
def test_end(text: bytes, end: int) -> None:
    assert Records(",", "a.csv").end(text) == end


def test_other_delimiters() -> None:
    assert Records("\t", "a.tsv").end(b'a\t"b\n"\n1\t"') == 7
    assert Records("\t", "a.tsv").end(b'a,"b\n"') == 5


def test_values_with_line_breaks_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_SAMPLE", 100)
    monkeypatch.setattr(delimited, "_CHUNK", 32)
    values = [f'say "{i}",\nthen {i}' for i in range(50)]
    file = io.StringIO()
    csv.writer(file).writerows([["text", "y"], *([value, i] for i, value in enumerate(values))])
    file.seek(0)
    (rows,) = read(file, target="y")
    assert rows.X["text"].tolist() == values
    assert rows.y.tolist() == list(range(50))


def test_mark_that_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_SAMPLE", 100)
    monkeypatch.setattr(delimited, "_CHUNK", 32)
    monkeypatch.setattr(records, "_LONGEST", 1000)
    text = "a,y\n" + "1,2\n" * 50 + '1,"2\n' + "1,2\n" * 1000
    with pytest.raises(SourceError, match=r"rows of some mebibytes at most.*not closed"):
        list(read(io.StringIO(text)))
    with pytest.raises(SourceError, match="rows of some mebibytes at most"):
        list(read(io.StringIO("a" * 2000)))

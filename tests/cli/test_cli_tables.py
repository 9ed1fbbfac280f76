"""Input tables of the command line: pipes, remedies, growing files, labels."""

import gzip
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather

import onepass as op
from onepass.cli import main
from onepass.serialization import archive
from onepass.stream import csv as delimited
from onepass.stream import jsonlines
from raising import raises

RUN = "run {} --target y --save m.onepass --checkpoint 0 --block 500 -q"
N, BAD = 1200, 1100  # number of rows, and the invalid row


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder; parse files a few rows at a time."""
    monkeypatch.chdir(tmp_path)
    for source, sample in ((delimited, 400), (jsonlines, 1000)):
        monkeypatch.setattr(source, "_SAMPLE", sample)
        monkeypatch.setattr(source, "_CHUNK", 200)
    return tmp_path


def output(capsys: pytest.CaptureFixture[str], words: str, code: int = 0) -> tuple[str, str]:
    """What a command writes to standard output and standard error."""
    capsys.readouterr()
    assert main(words.split()) == code
    found = capsys.readouterr()
    return found.out, found.err


def csv(i: int) -> bytes:
    return f"{i % 7},{'abc'[i % 3]},{i % 7 * 2 + i % 3}\n".encode()


def jsonl(i: int) -> bytes:
    return b'{"x":%d,"by":"%s","y":%d}\n' % (i % 7, b"abc"[i % 3 : i % 3 + 1], i % 7 * 2 + i % 3)


def write_table(name: str, bad: bytes) -> None:
    """Write a file with one invalid row far from the beginning."""
    line = csv if name.endswith("csv") else jsonl
    rows = [bad if i == BAD else line(i) for i in range(N)]
    Path(name).write_bytes(b"".join([b"x,by,y\n", *rows] if line is csv else rows))


# -- remedies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bad", "options", "remedies"),
    [
        ("a.csv", b"?,a,1\n", "", ["--na ?", "--bad-rows skip"]),
        ("a.csv", b"1,a,?\n", "", ["--na ?", "--bad-rows skip"]),
        ("a.csv", b"1,a\n", "", ["--bad-rows skip"]),
        ("a.csv", b"1,\xe4,1\n", "", ["--bad-rows skip"]),
        ("a.csv", b"inf,a,1\n", "", ["--bad-rows skip"]),
        ("a.csv", b",a,1\n", "--missing error", ["--missing skip", "--missing impute"]),
        ("a.jsonl", b'{"x":"?","by":"a","y":1}\n', "", ["--bad-rows skip"]),
        ("a.jsonl", b'{"x":1,"by":"a","y":1\n', "", ["--bad-rows skip"]),
        ("a.jsonl", b'{"x":1,"by":"a","z":[1],"y":1}\n', "", ["--drop z", "--bad-rows skip"]),
        ("a.jsonl", b'{"x":1e999,"by":"a","y":1}\n', "", ["--bad-rows skip"]),
    ],
)
@pytest.mark.filterwarnings("default::onepass.errors.RowsRefusedWarning")
def test_suggested_remedies_work_with_resume(
    name: str,
    bad: bytes,
    options: str,
    remedies: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_table(name, bad)
    for remedy in remedies:
        _, error = output(capsys, f"{RUN.format(name)} --restart {options}", 1)
        assert error.count("\n") == 1
        assert remedy.split()[0] in error
        assert remedy.split()[1] in error
        out, warned = output(capsys, f"{RUN.format(name)} --resume {remedy}")
        assert "resumed after" in " ".join(out.split())
        if remedy == "--bad-rows skip":
            assert re.search(rf"1 bad row was skipped: {name}: (row {BAD}|line {BAD + 1})", warned)
        resumed = archive.contents("m.onepass").sha256
        output(capsys, f"{RUN.format(name)} --restart {remedy}")
        assert archive.contents("m.onepass").sha256 == resumed


def test_resume_refuses_other_options(capsys: pytest.CaptureFixture[str]) -> None:
    write_table("a.csv", b"?,a,1\n")
    output(capsys, RUN.format("a.csv"), 1)
    for options, word in (
        ("--drop x --na ?", "`drop` was"),
        ("--type x=text --bad-rows skip", "its column 'x' had type number and has type text"),
        ("--missing skip --na ?", "missing"),
    ):
        assert word in output(capsys, f"{RUN.format('a.csv')} --resume {options}", 1)[1]
    output(capsys, f"{RUN.format('a.csv')} --resume --na ?,-")
    assert "the set of read options was" in output(capsys, f"{RUN.format('a.csv')} --resume", 1)[1]


# -- files that grow -------------------------------------------------------------------------------


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    line=st.sampled_from([csv, jsonl]),
    cuts=st.lists(st.integers(501, 1500), min_size=1, max_size=2).map(sorted),
    end=st.sampled_from([b"\n", b""]),
)
@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")
def test_incomplete_last_rows_of_growing_files_are_not_learned(
    line: Any, cuts: list[int], end: bytes
) -> None:
    name = f"log.{line.__name__}"
    text = (b"x,by,y\n" if line is csv else b"") + b"".join(map(line, range(120)))
    for path in Path().glob("m.onepass*"):
        path.unlink()
    run = f"run {name} --target y --save m.onepass -q --task regression"
    for cut in cuts:
        Path(name).write_bytes(text[:cut])
        assert main(f"{run} --resume".split()) == 0
    Path(name).write_bytes(text)
    assert main(f"{run} --resume".split()) == 0
    X = [{"x": float(x), "by": by} for x in range(7) for by in "abc"]
    resumed = op.load("m.onepass")
    Path(name).write_bytes(text.rstrip() + end)
    assert main(f"{run} --restart".split()) == 0
    whole, sha256 = op.load("m.onepass"), archive.contents("m.onepass").sha256
    assert resumed.rows_seen_ == whole.rows_seen_ == 120
    assert np.allclose(resumed.predict(X), whole.predict(X), rtol=1e-9, atol=1e-9)
    assert main(f"{run} --resume".split()) == 0  # its last line was learned, and so is read
    assert archive.contents("m.onepass").sha256 == sha256


@pytest.mark.filterwarnings("default::onepass.errors.RowsRefusedWarning")
def test_incomplete_last_line_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("log.csv").write_bytes(b"x,by,y\n" + b"".join(map(csv, range(50))) + b"5,a,5")
    out, error = output(capsys, f"{RUN.format('log.csv')} --resume")
    assert "50 rows learned" in out
    assert error.count("log.csv: row 50 (counting from 0) was left") == 1
    with Path("log.csv").open("ab") as log:
        log.write(b"00\n")
    assert "51 rows learned" in output(capsys, f"{RUN.format('log.csv')} --resume")[0]
    assert op.load("m.onepass").rows_seen_ == 51


# -- pipes -----------------------------------------------------------------------------------------


def piped(name: str, content: bytes) -> threading.Thread:
    """Write something into a named pipe, once."""
    Path(name).unlink(missing_ok=True)
    os.mkfifo(name)
    writer = threading.Thread(target=Path(name).write_bytes, args=(content,), daemon=True)
    writer.start()
    return writer


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("p.csv", ""), ("p.jsonl", ""), ("p.parquet", ""), ("p.arrow", ""), ("p.csv.gz", ""),
        ("p", "--format csv"), ("p", "--format jsonl"), ("p.dat", "--format parquet"), ("p", ""),
    ],
)  # fmt: skip
def test_named_pipe_gives_the_model_of_the_file(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.csv").write_bytes(b"x,by,y\n" + b"".join(map(csv, range(1000))))
    Path("a.csv.gz").write_bytes(gzip.compress(Path("a.csv").read_bytes()))
    Path("a.jsonl").write_bytes(b"".join(map(jsonl, range(1000))))
    rows = [json.loads(jsonl(i)) for i in range(1000)]
    table = pa.Table.from_pylist(rows).set_column(0, "x", [[float(row["x"]) for row in rows]])
    pq.write_table(table, "a.parquet")
    feather.write_feather(table, "a.arrow")
    kind = option.partition(" ")[2].removeprefix("format ") or name.partition(".")[2] or "csv"
    kind = kind.rpartition(" ")[2]
    content = Path(f"a.{kind}").read_bytes()
    output(capsys, "run a.csv --target y --save file.onepass --block 500 -q")
    for words in (
        f"run {name} --target y --save pipe.onepass --block 500 -q {option}",
        f"predict file.onepass {name} --drop y {option} --out pipe.csv",
        f"run a.csv {name} --target y --block 500 -q {option}",
    ):
        if words.startswith("run a.csv") and not name.endswith((".csv", "gz")):
            continue
        writer = piped(name, content)
        output(capsys, words)
        writer.join(10)
        assert not writer.is_alive()
    both = [archive.contents(f"{each}.onepass").sha256 for each in ("file", "pipe")]
    assert both[0] == both[1]
    output(capsys, "predict file.onepass a.csv --drop y --out file.csv")
    assert Path("pipe.csv").read_text() == Path("file.csv").read_text()


def test_named_pipe_cannot_be_read_twice() -> None:
    content = b"x,by,y\n" + b"".join(map(csv, range(1000)))
    writer = piped("p.csv", content)
    stream = op.stream.read("p.csv", target="y")
    assert not stream.repeatable
    assert stream.task == "regression"
    assert sum(map(len, stream)) == 1000
    writer.join(10)
    with pytest.raises(op.errors.SourceError, match=r"p\.csv must be iterated only once"):
        list(stream)


def test_file_descriptor_path_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"x,by,y\n" + b"".join(map(csv, range(50))), b"".join(map(jsonl, range(50)))):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        out, _ = output(capsys, f"run /dev/fd/{reading} --target y -q")
        os.close(reading)
        assert "50 rows learned" in out


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        *(("csv", pair.split()) for pair in (
            "True False", "true false", "TRUE FALSE", "0 1", "3 12", "yes no", "T F"
        )),
        ("tsv", ["yes", "no"]),
        *((kind, ["true", "false"]) for kind in ("jsonl", "parquet", "arrow")),
        *((kind, ["0", "1"]) for kind in ("jsonl", "parquet", "arrow")),
    ],
)  # fmt: skip
def test_predicted_labels_keep_their_spelling(
    kind: str, labels: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(i % 10, labels[i % 10 > 4]) for i in range(60)]
    name = f"a.{kind}"
    values = {"true": True, "false": False, "0": 0, "1": 1}
    if kind in {"csv", "tsv"}:
        mark = "," if kind == "csv" else "\t"
        Path(name).write_text("".join(f"{x}{mark}{y}\n" for x, y in [("x", "y"), *rows]))
    elif kind == "jsonl":
        lines = [json.dumps({"x": x, "y": values[y]}) for x, y in rows]
        Path(name).write_text("\n".join(lines) + "\n")
    else:
        table = pa.table({"x": [float(x) for x, _ in rows], "y": [values[y] for _, y in rows]})
        (pq.write_table if kind == "parquet" else feather.write_feather)(table, name)
    output(capsys, f"run {name} --target y --task classification --save m.onepass -q")
    out, _ = output(capsys, f"predict m.onepass {name} --drop y -q")
    assert set(out.split()) == {"prediction", *labels}
    assert out.split()[-10:] == [labels[x > 4] for x in range(10)]


def test_boolean_targets_are_numbers_if_requested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.csv").write_text("x,y\n" + "1,True\n2,False\n" * 30)
    assert "regression" in output(capsys, "run a.csv --target y --task regression -q")[0]
    output(capsys, "run a.csv --target y --type y=bool --save m.onepass -q")
    assert set(output(capsys, "predict m.onepass a.csv --drop y -q")[0].split()) == {
        "prediction",
        "0",
        "1",
    }


# -- forms of files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "end", "code"),
    [
        (";", "\n", "utf-8"), (",", "\r\n", "utf-8"), ("|", "\n", "utf-8-sig"),
        (":", "\n", "utf-8"), ("\t", "\r\n", "utf-8-sig"),
    ],
)  # fmt: skip
def test_sep_line_of_excel_sets_the_delimiter(end: str, mark: str, code: str) -> None:
    lines = [f"sep={mark}", f"a{mark}y", *[f"{i}{mark}{2 * i}" for i in range(100)]]
    Path("a.csv").write_bytes((end.join(lines) + end).encode(code))
    for options in ({}, {"delimiter": mark}):
        stream = op.stream.read("a.csv", target="y", **options)
        blocks = list(stream) + list(stream)
        assert [y for rows in blocks for y in rows.y] == [2.0 * i for i in range(100)] * 2
        assert blocks[0].X.names == ["a"]
    (rows,) = op.stream.read("a.csv", target="y", start=90)
    assert rows.X["a"].tolist() == list(range(90, 100))


@pytest.mark.parametrize("name", ["csv", "csv.gz", "tsv", "jsonl", "jsonl.gz"])
@pytest.mark.parametrize("empty", [(1,), (0, 1, 3)])
def test_empty_files_among_several_are_skipped(name: str, empty: tuple[int, ...]) -> None:
    kind, _, packed = name.partition(".")
    line, mark = (jsonl, b"") if kind == "jsonl" else (csv, b"x,by,y\n")
    for i in range(4):
        text = b"" if i in empty else mark + b"".join(map(line, range(i, i + 30)))
        text = text.replace(b",", b"\t") if kind == "tsv" else text
        Path(f"{i}.{name}").write_bytes(gzip.compress(text) if packed and text else text)
    expected = [k % 7 for i in range(4) if i not in empty for k in range(i, i + 30)]
    for source in (f"*.{name}", [f"{i}.{name}" for i in range(4)], "."):
        blocks = list(op.stream.read(source, target="y"))
        assert [x for rows in blocks for x in rows.X["x"]] == expected
    for i in range(4):
        Path(f"{i}.{name}").write_bytes(b"")
    with raises(op.errors.SourceError, got="an empty file"):
        list(op.stream.read(f"*.{name}", target="y"))


# -- one model per key -----------------------------------------------------------------------------


def test_one_model_per_key(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i % 5},{i % 7},{'ab'[i % 2]},{i % 7 * (i % 5)}" for i in range(400)]
    Path("a.csv").write_text("\n".join(["site,x,kind,y", *lines]) + "\n")
    Path("b.csv").write_text("kind,x,site\na,3,4\nb,2,1\n")
    output(capsys, "run a.csv --target y --by site --save m.onepass -q")
    found, _ = output(capsys, "inspect m.onepass --json")
    assert json.loads(found) | {"class": "Keyed", "keys": 5, "rows_seen": 400} == json.loads(found)
    predicted, _ = output(capsys, "predict m.onepass b.csv --keep site -q")
    numbers = [round(float(line.split(",")[1])) for line in predicted.split()[1:]]
    assert numbers == [12, 2]
    output(capsys, "merge m.onepass m.onepass --save two.onepass -q")
    assert op.load("two.onepass").rows_seen_ == 800
    _, error = output(capsys, "run a.csv --target y --by where -q", code=2)
    assert "--by" in error

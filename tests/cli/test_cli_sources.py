"""Sources of the command line, and the policy for missing values."""

import csv
import gzip
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

from onepass.cli import main

ROWS = [(i, ("sea", "air")[i % 2], i % 7, 2 * (i % 7) + i % 2) for i in range(200)]
TEXT = "id,by,km,price\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS)
OBJECTS = "".join(
    json.dumps(dict(zip(("id", "by", "km", "price"), row, strict=True))) + "\n" for row in ROWS
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_onepass(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(words)) == code
    output = capsys.readouterr()
    return output.err if code else output.out


def learned(capsys: pytest.CaptureFixture[str], source: str, *options: str) -> list[str]:
    """The predictions of a model that has learned a source."""
    Path("plain.csv").write_text(TEXT)
    run_onepass(
        capsys, "run", source, "--target", "price", "--drop", "id", "-q", "--save", "m.onepass",
        *options,
    )  # fmt: skip
    out = run_onepass(capsys, "predict", "m.onepass", "plain.csv", "--keep", "id")
    return [row["prediction"] for row in csv.DictReader(io.StringIO(out))]


def test_models_of_all_source_formats_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("parts").mkdir()
    half = TEXT.index("\n100,") + 1
    Path("parts/p-9.csv").write_text(TEXT[:half])
    Path("parts/p-10.csv").write_text(TEXT.partition("\n")[0] + "\n" + TEXT[half:])
    Path("a.csv").write_text(TEXT)
    Path("a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    Path("semicolons.csv").write_text(TEXT.replace(",", ";"))
    Path("bare.csv").write_text(TEXT.partition("\n")[2])
    Path("a.ndjson").write_text(OBJECTS)
    Path("log.txt").write_text(OBJECTS)
    table = pc.read_csv("a.csv")
    pq.write_table(table, "a.parquet")
    pf.write_feather(table, "a.feather")
    with pa.OSFile("a.arrows", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    expected = learned(capsys, "a.csv")
    for source, *options in (
        ["a.csv.gz"], ["a.parquet"], ["a.feather"], ["a.arrows"], ["a.ndjson"], ["parts"],
        ["parts/p-*.csv"], ["semicolons.csv", "--delimiter", ";"],
        ["bare.csv", "--header", "id,by,km,price"], ["log.txt", "--format", "jsonl"],
    ):  # fmt: skip
        assert learned(capsys, source, *options) == expected, source
    halves = ["parts/p-9.csv", "parts/p-10.csv"]
    assert learned(capsys, *halves) == expected
    out = run_onepass(capsys, "predict", "m.onepass", *halves, "--keep", "id")
    assert [row["prediction"] for row in csv.DictReader(io.StringIO(out))] == expected
    by_columns = learned(capsys, "a.csv", "--columns", "by,km", "--drop", "")
    assert by_columns == expected


@pytest.mark.parametrize("name", ["a.ndjson", "a.parquet", "a.feather", "a.csv.gz"])
def test_format_of_standard_input_is_detected(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.csv").write_text(TEXT)
    Path("a.ndjson").write_text(OBJECTS)
    Path("a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    pq.write_table(pc.read_csv("a.csv"), "a.parquet")
    pf.write_feather(pc.read_csv("a.csv"), "a.feather")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(name).read_bytes())))
    out = run_onepass(capsys, "run", "-", "--target", "price", "-q")
    assert "200 rows" in " ".join(out.split())


GAPS = "id,by,km,price\n0,sea,1,2\n1,,2,3\n2,air,,4\n3,air,3,\n4,sea,3,6\n"


@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")
def test_skipped_rows_are_counted_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.csv").write_text(GAPS + "5,sea\n6,air,1,2\n7,,1,2\n")
    for block, delay in (("1", "0"), ("3", "0"), ("100", "2")):
        options = ["--target", "price", "--missing", "skip", "--bad-rows", "skip", "--block"]
        assert main(["run", "bad.csv", *options, block, "--delay", delay]) == 0
        output = capsys.readouterr()
        assert "3 rows learned in one pass, 5 skipped" in " ".join(output.out.split())
        reasons = "1 without a target, 3 with a missing feature, 1 that cannot be read."
        assert f"Rows skipped: {reasons}" in output.err


def test_missing_option_of_run_and_predict(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gaps.csv").write_text(GAPS)
    run = ["run", "gaps.csv", "--target", "price", "--drop", "id", "-q", "--save", "m.onepass"]
    predict = ["predict", "m.onepass", "gaps.csv", "--keep", "id"]
    assert "2 rows learned in one pass, 3 skipped" in " ".join(
        run_onepass(capsys, *run, "--missing", "skip").split()
    )
    rows = list(csv.DictReader(io.StringIO(run_onepass(capsys, *predict))))
    assert [row["id"] for row in rows if not row["prediction"]] == ["1", "2"]
    wrong = run_onepass(capsys, *run, "--missing", "error", code=1)
    assert "gaps.csv: row 1 (counting from 0), column 'by' must have a value" in wrong
    assert "4 rows learned" in " ".join(run_onepass(capsys, *run).split())
    rows = list(csv.DictReader(io.StringIO(run_onepass(capsys, *predict))))
    assert all(row["prediction"] for row in rows)
    Path("whole.csv").write_text("id,by,km,price\n0,sea,1,2\n4,air,3,6\n")
    run_onepass(capsys, "run", "whole.csv", *run[2:], "--missing", "error")
    assert "row 1 (counting from 0), column 'by'" in run_onepass(capsys, *predict, code=1)


def test_invalid_source_options_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text(TEXT)
    for words, output, code in (
        ("run *.tsv --target price", "the pattern *.tsv must match at least one file", 1),
        ("run a.csv --target price --format parquet", "must be a complete Parquet file", 1),
        ("run a.csv --target price --delimiter ;;", "--delimiter must be one ASCII character", 2),
        ("run flights --delimiter ;", "--delimiter must be omitted unless", 2),
    ):
        assert output in run_onepass(capsys, *words.split(), code=code)
    assert "--bogus" in run_onepass(capsys, "run", "a.csv", "a.csv", "--bogus", "1", code=2)
    assert "the first argument must be a model" in run_onepass(
        capsys, "predict", "a.jsonl", "a.csv", code=2
    )
    assert "--missing" in run_onepass(capsys, "run", "a.csv", "--missing", "drop", code=2)


def test_files_of_a_pattern_or_folder_are_not_overwritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("logs").mkdir()
    for name in ("a.csv", "b.csv"):
        Path("logs", name).write_text(TEXT)
    before = sorted(Path("logs").iterdir())
    run = ("run", "--target", "price", "-q")
    output = run_onepass(capsys, *run, "logs/*.csv", "--save", "logs/b.csv", code=2)
    assert "must not name a source" in output
    places = (("--save", "logs/b.csv"), ("--save", "logs/m.onepass"), ("--report", "logs/out"))
    for option, place in places:
        output = run_onepass(capsys, *run, "logs", option, place, code=2)
        assert "must be outside the source folder" in output
    run_onepass(capsys, *run, "logs", "--save", "m.onepass")
    output = run_onepass(
        capsys, "predict", "m.onepass", "logs/*.csv", "--out", "logs/a.csv", code=2
    )
    assert "must not name a source" in output
    assert sorted(Path("logs").iterdir()) == before
    assert Path("logs/a.csv").read_text() == Path("logs/b.csv").read_text() == TEXT
    for _ in range(2):  # what a folder's reading passes over is no source
        run_onepass(capsys, *run, "logs", "--save", "logs/_m.onepass", "--report", "logs/.out")


def test_nested_files_and_names_with_brackets_are_not_overwritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a/b").mkdir(parents=True)
    for name in ("a/b/x.csv", "[1].csv", "1.csv"):
        Path(name).write_text(TEXT)
    for source, place in (("a/**/*.csv", "a/b/x.csv"), ("[1].csv", "[1].csv")):
        output = run_onepass(capsys, "run", source, "--target", "price", "--save", place, code=2)
        assert "must not name a source" in output
        assert Path(place).read_text() == TEXT


def test_table_without_rows_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"km": pa.array([], pa.float64()), "price": pa.array([])}), "a.parquet")
    assert "must contain rows, got none" in run_onepass(
        capsys, "run", "a.parquet", "--target", "price", code=1
    )

"""The commands: output, files, exit codes and error messages."""

import csv
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import onepass as op
from onepass import learners, models
from onepass.cli import main, run

ONEPASS = [sys.executable, "-c", "import sys; from onepass.cli import main; sys.exit(main())"]
HEADER = "id,by,km,at,price"


def line(i: int) -> str:
    by, km = ("sea", "air", "rail")[i % 3], i % 7
    return f"{i},{by},{km},2024-01-{1 + i % 28:02}T08:00:00,{2.0 * km + i % 3}"


@pytest.fixture
def trips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a table, whose price is a function of by and km."""
    monkeypatch.chdir(tmp_path)
    Path("trips.csv").write_text("\n".join([HEADER, *map(line, range(300))]) + "\n")
    return tmp_path


@pytest.fixture
def model(trips: Path) -> Path:
    does("run trips.csv --target price --drop id --model rls --save m.onepass")
    return trips / "m.onepass"


def does(words: str) -> None:
    """Run a command that must succeed."""
    assert main(words.split()) == 0


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def fails(capsys: pytest.CaptureFixture[str], words: str, code: int = 1) -> str:
    """Run a command that must fail; return its standard error. Standard output is empty."""
    capsys.readouterr()
    assert main(words.split()) == code
    output = capsys.readouterr()
    assert not output.out
    assert "Traceback" not in output.err
    return output.err


def shell(words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  our own command
        [*ONEPASS, *words.split()], capture_output=True, text=True, check=False, **options
    )


# -- run ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("trips")
def test_run_prints_models_and_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    does("run trips.csv --target price --model rls,sgd --drop id")
    output = capsys.readouterr()
    shown = [words[0] for row in output.out.splitlines() if (words := row.split())]
    assert {"rls", "sgd", "last", "running"} <= set(shown)
    assert "300 rows" in output.out
    assert "Task: regression. For classification: --task classification" in output.err


@pytest.mark.usefixtures("trips")
def test_quiet_run_writes_nothing_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    does("run trips.csv --target price --drop id -q --save m.onepass --report out")
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("trips")
def test_run_report_equals_prequential_report(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run trips.csv --target price --drop id --metrics rmse,mae --window 50 --report a/b"
    does(words)
    report = op.evaluate.Report.from_json("a/b/report.json")
    stream = op.stream.read("trips.csv", target="price", drop=["id"])
    again = op.evaluate.prequential(
        models.pipelines(["mixture"], "regression"), stream, ["rmse", "mae"], window=50
    )
    assert report.overall == again.overall
    assert report.recent == again.recent
    assert {path.name for path in Path("a/b").iterdir()} == {
        "report.json", "report.md", "curve.csv", "curve.png",
    }  # fmt: skip
    assert "a/b/curve.png" in capsys.readouterr().err


@pytest.mark.usefixtures("trips")
def test_run_without_matplotlib_writes_the_report_without_a_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    does("run trips.csv --target price --report out")
    assert {path.name for path in Path("out").iterdir()} == {
        "report.json",
        "report.md",
        "curve.csv",
    }
    assert "onepass[plot]" in capsys.readouterr().err


@pytest.mark.parametrize("block", [1, 7, 300])
@pytest.mark.usefixtures("trips")
def test_scores_do_not_depend_on_the_block_size(block: int) -> None:
    does(f"run trips.csv --target price --block {block} -q --report out")
    predictions = op.evaluate.Report.from_json("out/report.json").scores["mixture"].overall
    stream = op.stream.read("trips.csv", target="price")
    whole = op.evaluate.prequential(models.pipelines(["mixture"], "regression"), stream)
    assert predictions == pytest.approx(whole.scores["mixture"].overall, abs=1e-6)


def test_single_model_is_saved_to_the_given_file(model: Path) -> None:
    assert op.load(model).rows_seen_ == 300


def test_numbered_rows_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.csv"
    pd.DataFrame({"x": np.arange(50) % 7, "y": np.arange(50) % 5 / 2}).to_csv(file)  # with an index
    does(f"run {file} --target y --model rls")
    assert "Column '' increases in each row. If it numbers" in capsys.readouterr().err
    assert main(["run", str(file), "--target", "y", "--model", "rls", "--drop", '""']) == 0
    assert "increases in each row" not in capsys.readouterr().err


def test_several_dates_and_many_categories_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SLOW", 0.0)
    file, n = tmp_path / "r.csv", 3000
    at = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n) // 7, "h")
    left = at + pd.to_timedelta(np.arange(n) % 5, "h")
    words = [f"k{i % 90}" for i in range(n)]
    few = [f"k{i % 60}" for i in range(n)]
    pd.DataFrame({"at": at, "to": left, "w": words, "v": few, "y": np.arange(n) % 5}).to_csv(file)
    does(f"run {file} --target y --model rls --block 1000")
    error = capsys.readouterr().err
    assert "Columns 'at', 'to' are dates" in error
    assert "150 of 163 features, most of them of 'w' (90), 'v' (60)" in error
    assert "--drop w, or --set encode__max_categories=10" in error
    option = error.split("between them: --set ")[1].split("'")[1]
    assert main(["run", str(file), "--target", "y", "--model", "rls", "--set", option]) == 0
    assert "'v' (60)" in capsys.readouterr().err


def test_a_guessed_task_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "counts.csv"
    lines = [f"{i % 5},{i % 2 if i < 3000 else i % 6}" for i in range(5000)]
    file.write_text("\n".join(["x,y", *lines]) + "\n")
    for block, code in (("", 2), ("--block 7", 1)):  # before or after rows are learned
        error = fails(capsys, f"run {file} --target y --model rls {block}", code=code)
        assert "row 3002 (counting from 0): the target must be 0 or 1" in error
        assert "got 2. Set the task: --task regression" in error
    for task in ("regression", "classification"):
        does(f"run {file} --target y --model rls --task {task} -q")


def test_predict_with_a_bare_learner_and_recall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    X, file = rng.normal(size=(60, 2)), tmp_path / "x.csv"
    pd.DataFrame(X, columns=["x0", "x1"]).to_csv(file, index=False)
    op.save(op.RLSRegressor().fit(X, X[:, 0]), tmp_path / "bare.onepass")
    does(f"predict {tmp_path}/bare.onepass {file} --out {tmp_path}/p.csv")
    late = np.argsort(X[:, 0] > 0, kind="stable")
    model = models.pipelines(["mixture"], "classification")["mixture"]
    frame = pd.DataFrame(np.repeat(X[late], 9, axis=0), columns=["x0", "x1"])
    op.save(
        model.fit(frame, np.repeat(np.where(X[late, 0] > 0, "b", "a"), 9)), tmp_path / "m.onepass"
    )
    capsys.readouterr()
    does(f"predict {tmp_path}/m.onepass {file} --recall --out {tmp_path}/q.csv")
    recalled = pd.read_csv(tmp_path / "q.csv")["prediction"]
    assert np.mean(recalled == np.where(X[:, 0] > 0, "b", "a")) > 0.9
    for words, message in {
        f"predict {tmp_path}/bare.onepass {file} --recall": "unless the model is a mixture",
        f"predict {tmp_path}/m.onepass {file} --recall --proba": "Leave one of them out",
    }.items():
        assert message in fails(capsys, words)


@pytest.mark.usefixtures("trips")
def test_several_models_are_saved_to_separate_files(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "run trips.csv --target price --model rls,sgd --set sgd.step_size=0.5 --save new/m.onepass"
    )
    does(words)
    names = ["m-rls.onepass", "m-sgd.onepass", "m.onepass.run"]
    assert sorted(path.name for path in Path("new").iterdir()) == names
    assert op.load("new/m-sgd.onepass").learner.step_size == 0.5
    assert "Saved sgd: new/m-sgd.onepass" in capsys.readouterr().err


def test_existing_model_file_is_replaced(model: Path) -> None:
    model.write_text("something else")
    does("run trips.csv --target by -q --save m.onepass")
    assert op.load(model).classes_.tolist() == ["air", "rail", "sea"]


@pytest.mark.parametrize(
    ("target", "more", "task"),
    [
        ("price", "", "regression"),
        ("by", "", "classification"),
        ("km", "", "regression"),
        ("km", "--task classification", "classification"),
        ("km", "--type km=text", "classification"),
    ],
)
@pytest.mark.usefixtures("trips")
def test_task_is_inferred_from_the_target(target: str, more: str, task: str) -> None:
    does(f"run trips.csv --target {target} {more} -q --report out")
    assert op.evaluate.Report.from_json("out/report.json").task == task


@pytest.mark.usefixtures("trips")
def test_boolean_target_is_classified() -> None:
    Path("flags.csv").write_text("x,y\n" + "".join(f"{i},{i % 2 == 0}\n" for i in range(40)))
    does("run flags.csv --target y -q --report out")
    assert op.evaluate.Report.from_json("out/report.json").task == "classification"


@pytest.mark.usefixtures("trips")
def test_several_targets_give_one_prediction_column_each() -> None:
    does("run trips.csv --target price,km --drop id -q --save m.onepass")
    does("predict m.onepass trips.csv -q --out out.csv")
    assert list(rows(Path("out.csv").read_text())[0]) == ["prediction0", "prediction1"]


@pytest.mark.parametrize("name", models.names())
@pytest.mark.usefixtures("trips")
def test_run_accepts_all_learners(name: str) -> None:
    task = "regression" if name in models.names("regression") else "classification"
    extra = "--set orfit.noise=1" if name == "orfit" else ""
    target = "price" if task == "regression" else "by"
    does(f"run trips.csv --target {target} --model {name} {extra} -q")


def test_preset_names_cover_all_learners() -> None:
    listed = {
        models.learner_class(name, task).__name__
        for task in ("regression", "classification")
        for name in models.names(task)
    }
    assert listed == {*learners.__all__, "MixtureClassifier", "MixtureRegressor"}


def test_data_path_of_flights(capsys: pytest.CaptureFixture[str]) -> None:
    stream = op.stream.read("flights")
    assert (stream.target, stream.task) == ("arr_delay", "regression")
    does("data path flights")
    assert Path(capsys.readouterr().out.strip(), "flights.parquet").exists()


@pytest.mark.usefixtures("trips")
def test_wide_table_is_not_truncated_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    metrics = "mae,rmse,r2,mean_loss,cumulative_loss"
    drift = "adwin,kswin,pagehinkley"
    does(f"run trips.csv --target price --drop id --metrics {metrics} --drift {drift} -q")
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert any(
        "Cumulative squared loss" in line and "pagehinkley alarms" in line and "KiB" in line
        for line in shown.splitlines()
    )
    assert not [line for line in shown.splitlines() if line != line.rstrip()]


# -- predict --------------------------------------------------------------------------------------


def test_predict_command_equals_predict_method(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    does("predict m.onepass trips.csv --keep id")
    predictions = rows(capsys.readouterr().out)
    table = next(iter(op.stream.read("trips.csv"))).X
    assert [row["id"] for row in predictions] == [str(i) for i in range(300)]
    wanted = op.load(model).predict(table)
    np.testing.assert_array_equal([float(row["prediction"]) for row in predictions], wanted)


@pytest.mark.usefixtures("model")
def test_predict_accepts_reordered_missing_and_unknown_columns() -> None:
    Path("new.csv").write_text(
        "new,km,id,by\n"
        "a,3,1,sea\n"  # another order, an extra column, and no `at`
        "b,,2,air\n"  # a missing number
        "c,3,3,\n"  # a missing category
        "d,3,4,submarine\n"  # a new one
        ",,5,\n"
    )
    does("predict m.onepass new.csv --keep id,new --out deep/out.csv")
    predictions = rows(Path("deep/out.csv").read_text())
    values = [float(row["prediction"]) for row in predictions]
    assert [row["new"] for row in predictions] == ["a", "b", "c", "d", ""]
    assert np.isfinite(values).all()
    assert values[0] == pytest.approx(2 * 3 + 0, abs=0.05)
    assert values[2] == values[3]  # a new category is none


@pytest.mark.usefixtures("model")
def test_predict_reports_missing_and_unknown_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = Path("trips.csv").read_text()
    Path("other.csv").write_text(text.replace("km", "Km", 1))
    capsys.readouterr()
    does("predict m.onepass other.csv --keep id --drop price")
    output = capsys.readouterr()
    assert len(rows(output.out)) == 300
    assert output.err == (
        "Column 'km' is not in the source and treated as missing. Did you mean 'Km'? "
        "Ignored, as the model was trained without them: 'Km'.\n"
    )
    does("predict m.onepass other.csv -q")
    does("predict m.onepass trips.csv --drop id,price")
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("model")
def test_predictions_do_not_depend_on_targets_in_the_table() -> None:
    text = Path("trips.csv").read_text().splitlines()
    Path("new.csv").write_text(
        "\n".join([text[0], *(f"{t.rpartition(',')[0]}," for t in text[1:])])
    )
    for source in ("trips.csv", "new.csv"):
        does(f"predict m.onepass {source} -q --out {source}.out.csv")
    assert Path("new.csv.out.csv").read_text() == Path("trips.csv.out.csv").read_text()


@pytest.mark.parametrize("name", ["out.parquet", "out.tsv", "out.csv.gz"])
@pytest.mark.usefixtures("model")
def test_output_format_of_predict_follows_the_suffix(name: str) -> None:
    does(f"predict m.onepass trips.csv --keep id,by,at --out {name} -q")
    does("predict m.onepass trips.csv --out out.csv -q")
    (block,) = op.stream.read(name, block=300)
    (plain,) = op.stream.read("out.csv", block=300)
    assert block.X.names == ["id", "by", "at", "prediction"]
    np.testing.assert_array_equal(block.X["prediction"], plain.X["prediction"])
    assert block.X["at"].dtype.kind == "M"
    assert block.X["by"][:3].tolist() == ["sea", "air", "rail"]


def test_predicted_labels_are_those_of_the_training_table(trips: Path) -> None:
    does("run trips.csv --target by -q --save m.onepass")
    pq.write_table(pa.table({"km": [1.0, 2.0], "id": [7, 8]}), trips / "new.parquet")
    does("predict m.onepass new.parquet --keep id -q --out out.csv")
    predictions = rows(Path("out.csv").read_text())
    assert [row["id"] for row in predictions] == ["7", "8"]
    assert {row["prediction"] for row in predictions} <= {"sea", "air", "rail"}


def test_predict_writes_probabilities(trips: Path, capsys: pytest.CaptureFixture[str]) -> None:
    does("run trips.csv --target by --metrics accuracy,log_loss -q --save m.onepass")
    table = pa.table({"km": [1.0, 2.0], "id": [7, 8]})
    pq.write_table(table, trips / "new.parquet")
    does("predict m.onepass new.parquet --proba -q --out out.csv")
    found = rows(Path("out.csv").read_text())
    names = ["probability_air", "probability_rail", "probability_sea"]
    assert list(found[0]) == ["prediction", *names]
    shares = np.array([[float(row[name]) for name in names] for row in found])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    best = [names[k].removeprefix("probability_") for k in shares.argmax(axis=1)]
    assert best == [row["prediction"] for row in found]
    does("run trips.csv --target price -q --save r.onepass")
    assert "Only classifiers have them" in fails(capsys, "predict r.onepass trips.csv --proba")


@pytest.mark.usefixtures("trips")
def test_predict_uses_the_column_types_of_the_model() -> None:
    does("run trips.csv --target price --drop id --type km=text -q --save m.onepass")
    does("predict m.onepass trips.csv -q --out plain.csv")
    does("predict m.onepass trips.csv --type km=text -q --out typed.csv")
    assert Path("plain.csv").read_text() == Path("typed.csv").read_text()


@pytest.mark.usefixtures("model")
def test_predict_locates_a_value_of_another_type(capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.csv").write_text(f"{HEADER}\n{line(0)}\n{line(1).replace(',1,', ',?,')}\n")
    output = fails(capsys, "predict m.onepass new.csv --out out.csv")
    assert "row 1 (counting from 0), column 'km' must be a number" in output
    assert "--na '?'" in output
    assert not Path("out.csv").exists()
    does("predict m.onepass new.csv --na ? -q --out out.csv")
    assert len(rows(Path("out.csv").read_text())) == 2


@pytest.mark.usefixtures("trips")
@pytest.mark.filterwarnings("default::onepass.errors.MixedColumnWarning")
def test_run_warns_about_mixed_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.csv").write_text(Path("trips.csv").read_text().replace("3,sea,3,", "3,sea,?,", 1))
    does("run odd.csv --target price")
    assert "MixedColumnWarning: odd.csv: column 'km'" in capsys.readouterr().err
    does("run odd.csv --target price --na ?,-")
    assert "Warning" not in capsys.readouterr().err
    assert "--na '?'" in fails(capsys, "run odd.csv --target km")


def test_names_with_a_comma_are_quoted_as_in_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{3 * i % 7},{i % 7},{i % 5}" for i in range(60)]
    Path("t.csv").write_text("\n".join(['"price, total",km,n', *lines]) + "\n")
    assert main(["run", "t.csv", "--target", '"price, total"', "--drop", "n", "-q"]) == 0
    assert "regression of price, total" in capsys.readouterr().out
    assert main(["run", "t.csv", "--target", '"price, total",n', "-q", "--save", "m.onepass"]) == 0
    assert op.load("m.onepass").learner.n_outputs_ == 2


# -- inspect, data, reproduce ----------------------------------------------------------------------


def test_inspect_prints_the_description_of_a_model(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from onepass.serialization.models import describe

    capsys.readouterr()
    assert main(["inspect", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("coefficients").keys() >= {"km"}
    assert found.pop("effective_rows") > 0.0
    assert "mixes eight factors" in found.pop("note")
    assert found == describe(model)
    assert main(["inspect", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "RLSRegressor(ridge=1e-12" in shown
    assert describe(model)["sha256"] in shown


def test_inspect_json_is_not_wrapped(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    capsys.readouterr()
    does(f"inspect {model} --json")
    found = json.loads(capsys.readouterr().out)
    assert found["class"] == "Pipeline"
    learner = found["parameters"]["steps"][-1]
    assert (learner["class"], learner["parameters"]["ridge"]) == ("RLSRegressor", 1e-12)
    assert found["columns"] == {"by": "text", "km": "number", "at": "date"}


@pytest.mark.parametrize(
    "words",
    [
        "run trips.csv --target price --save ./trips.csv",
        "run curve.csv --target price --report .",
        "predict m.onepass trips.csv --out link.csv",
    ],
)
@pytest.mark.usefixtures("model")
def test_commands_refuse_to_overwrite_a_source(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("trips.csv").read_text()
    Path("curve.csv").write_text(text)
    Path("link.csv").hardlink_to("trips.csv")
    output = fails(capsys, words, code=2)
    assert "must not name a source" in output
    assert Path("trips.csv").read_text() == Path("curve.csv").read_text() == text


def test_data_list_names_all_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    does("data list")
    shown = capsys.readouterr().out
    assert all(one.name in shown for one in op.stream.datasets())


def test_reproduce_lists_all_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    from onepass_experiments import ALIASES, EXPERIMENTS

    does("reproduce")
    output = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in output] == [*EXPERIMENTS, *ALIASES]
    assert "Alias of orfit-fig6" in next(row for row in output if "orfit-2022-fig2" in row)


def test_reproduce_runs_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import onepass_experiments
    from onepass.stream import Images

    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, size=(130, 28, 28), dtype=np.uint8)
    twos = np.full(130, 2, dtype=np.uint8)
    images = Images(pictures, twos, pictures[:5], twos[:5])
    figure6 = functools.partial(onepass_experiments.EXPERIMENTS["orfit-fig6"], images, runs=1)
    monkeypatch.setitem(onepass_experiments.EXPERIMENTS, "orfit-fig6", figure6)
    shown = []
    for name in ("orfit-fig6", "orfit-2022-fig2"):
        assert main(["reproduce", name, "--draws", "1", "--out", str(tmp_path / name)]) == 0
        shown.append(capsys.readouterr().out)
        written = sorted(path.name for path in (tmp_path / name).iterdir())
        assert written == [f"orfit-fig6.{suffix}" for suffix in ("csv", "json", "md", "png")]
    assert shown[0] == shown[1]
    assert "ORFit, rule of 2022 as printed" in shown[0]
    assert "range over draws" in shown[0]


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run flihgts --target y", "SourceError.*Did you mean 'flights'"),
        ("run nothing.csv --target y", "SourceError.*does not exist"),
        ("predict none.onepass trips.csv", "CheckpointError"),
        ("predict m.onepass other.csv", "ColumnError.*only new columns"),
        ("inspect trips.csv", "CheckpointError"),
    ],
)
@pytest.mark.usefixtures("model")
def test_errors_are_one_message(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.csv").write_text("a,b\n1,2\n")
    output = fails(capsys, words)
    assert re.search(message, output)
    assert not list(Path().glob(".onepass-*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run trips.csv --target pric", "--target must name a column.*Did you mean 'price'"),
        ("run trips.csv --target price --drop idd", "--drop .*'idd'.*Did you mean 'id'"),
        (
            "run trips.csv --target price --model rsl",
            "run: a model .* one of mixture, random-features, forest, .*rls, sgd, got",
        ),
        ("run trips.csv --target price --model perceptron", "which is for classification"),
        ("run trips.csv --target price --model rls,rls", "each model must be named once"),
        ("run trips.csv --target price --set rls.forgeting=1", "Did you mean 'forgetting'"),
        ("run trips.csv --target price --set rsl.forgetting=1", "Did you mean 'rls'"),
        ("run trips.csv --target price -q --set rls.forgetting=2", "in \\(0, 1\\], got 2"),
        ("run trips.csv --target price --set rls__forgetting=2", "run: --set rls__forgetting=2: "),
        (
            "run trips.csv --target price --set rls__ridge=a",
            "Choose another: --set rls__ridge=VALUE",
        ),
        ("run trips.csv --target price --set rls.forgetting=windw:100:", "got 'windw:100:'. Did"),
        ("run trips.csv --target price --set encode.max_categories=no", "run: --set encode.max_c"),
        (
            "run trips.csv --target price --metrics mea",
            "run: --metrics: a metric of .* mae, rmse, r2.*Did you mean 'mae'",
        ),
        (
            "run trips.csv --target price -q --block 0",
            "--block: the value must be a whole number >= 1",
        ),
        ("run trips.csv --target price --type km=integer", "--type must map .*'number'"),
        ("run trips.csv --target price --save .", "--save must be a file"),
        ("run trips.csv --target price --report trips.csv", "--report must be a folder"),
        (
            "predict trips.csv m.onepass",
            "argument must be a model.*onepass predict --help",
        ),
        ("predict m.onepass trips.csv --keep idd", "--keep .*Did you mean 'id'"),
        ("predict m.onepass trips.csv --out out.txt", "--out: out.txt must end in .csv"),
        ("data path nothing", "must be one of flights"),
        ("data fetch nothing", "must be one of flights"),
        ("run trips.csv", "requires --target"),
        ("run --target price", "SOURCE"),
        ("run trips.csv --tagret price", "Did you mean --target"),
        ("run trips.csv --target price --block many", "--block"),
        ("run trips.csv --target price --checkpoint 5", "--checkpoint requires --save"),
        ("run trips.csv --target price --delay 1.5", "must be a whole number >= 0, got '1.5'"),
        ("run trips.csv --target price --window 10.9", "must be a whole number >= 1, got '10.9'"),
        ("run trips.csv --target price --block 3.7", "must be a whole number >= 1, got '3.7'"),
        ("run trips.csv --target price --restart", "--restart requires --save"),
        ("run trips.csv --target price --resume", "--resume requires --save"),
        ("run trips.csv --target price --save m --resume --restart", "got both"),
        (
            "run trips.csv --target price --set rls.forgetting=bounded:half_life=1h",
            "--time must be given, as the learner forgets by time",
        ),
        ("run trips.csv --target price --set ridge", "NAME=VALUE"),
        ("run trips.csv --target price --task guess", "--task"),
        ("reproduce orfit-fig", "Did you mean 'orfit-fig"),
        ("nothing", "nothing"),
        ("data nothing", "nothing"),
        (
            "run trips.csv --target price --window 0",
            "--window: the value must be a whole number >= 1",
        ),
        (
            "run trips.csv --target price --delay -1",
            "--delay: the value must be a whole number >= 0",
        ),
        ("run trips.csv --target price --delay 9 --max-waiting 8", "must be at most"),
        ("run trips.csv --target price --max-waiting 9", "--max-waiting requires --delay or"),
        (
            "run trips.csv --target price --delay-until km",
            "--delay-until requires a stream with times",
        ),
        ("run trips.csv --target price --delay 3 --delay-until km", "excludes --delay"),
        ("run trips.csv --target price --save m --checkpoint nan", "a number of seconds >= 0"),
        ("run trips.csv --target price --save m --checkpoint -1", "a number of seconds >= 0"),
        ("run trips.csv --target price --delimiter abc", "run: --delimiter must be one ASCII"),
        (
            "run trips.csv --target price --task classification --metrics mae",
            "run: --metrics: a metric of classification",
        ),
        ("run trips.csv --target price --drift ddm", "run: ddm must be used with classifiers"),
        ("run trips.csv --target price --drift adwn", "Did you mean 'adwin'"),
        ("run trips.csv --target price --save trips.csv", "must not name a source"),
        ("reproduce orfit-fig6 --draws 0", "--draws: the value must be a whole number >= 1"),
    ],
)
@pytest.mark.usefixtures("model")
def test_wrong_usage_is_reported(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = fails(capsys, words, code=2)
    assert re.search(message, output), output
    assert re.search("^onepass: ", output, re.MULTILINE)
    assert re.search(r" See onepass (\w+ )*--help\.$", output.strip())


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("run", "onepass run"),
        ("--debug run", "onepass run"),
        ("data fetch none", "onepass data fetch"),
        ("data none", "onepass data"),
        ("none", "onepass"),
    ],
)
def test_wrong_usage_names_the_help_of_the_command(
    words: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err.strip().endswith(f" See {command} --help.")


@pytest.mark.usefixtures("trips")
def test_time_option_enables_forgetting_by_time() -> None:
    hours = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00:00,{i}" for i in range(99)]
    Path("hours.csv").write_text("\n".join(["at,price", *hours]) + "\n")
    does("run hours.csv --target price -q --time at --set rls.forgetting=bounded:half_life=1h")
    does("run trips.csv --target price --drop by,at -q --set rls.initial_coef=[0,2]")


@pytest.mark.usefixtures("trips")
def test_debug_prints_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "trips.csv", "--target", "pric", "--debug"]) == 2
    output = capsys.readouterr().err
    assert "Traceback" in output
    assert "ColumnError" in output


@pytest.mark.usefixtures("trips")
def test_unexpected_exceptions_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("onepass.stream.read", broken)
    with pytest.raises(ZeroDivisionError):
        main(["run", "trips.csv", "--target", "price"])


@pytest.mark.usefixtures("trips")
def test_error_during_a_run_leaves_the_saved_model_unchanged(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model.read_bytes()
    text = [HEADER, *map(line, range(300)), "300,sea,inf,2024-01-01T08:00:00,1"]
    Path("bad.csv").write_text("\n".join(text) + "\n")
    assert "row" in fails(capsys, "run bad.csv --target price -q --save m.onepass --block 100")
    assert model.read_bytes() == before


# -- a process of its own -------------------------------------------------------------------------


def test_help_is_printed_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage: onepass COMMAND" in capsys.readouterr().out


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    does("--version")
    assert capsys.readouterr().out.startswith(f"{version('onepass')}, loops: ")


def test_run_and_predict_read_standard_input(
    trips: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (trips / "trips.csv").read_text()
    done = shell("run - --target price --drop id --save m.onepass", input=text, cwd=trips)
    assert done.returncode == 0, done.stderr
    assert "300 rows learned" in done.stdout
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capsys.readouterr()
    does("predict m.onepass - --drop id,price")
    predictions = capsys.readouterr()
    assert len(predictions.out.splitlines()) == 301
    assert predictions.err == ""


def test_closed_output_pipe_ends_the_command_silently(model: Path) -> None:
    long = "\n".join([HEADER, *(line(i) for i in range(20_000))]) + "\n"
    (model.parent / "long.csv").write_text(long)
    with subprocess.Popen(  # noqa: S603  our own command
        [*ONEPASS, "predict", "m.onepass", "long.csv", "-q"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=model.parent, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "prediction\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_interrupt_during_startup_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("onepass.cli.app.main", pressed)
    assert "onepass: interrupted." in fails(capsys, "--version", code=130)


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to another process there")
@pytest.mark.usefixtures("interruptible")
def test_interrupted_run_saves_the_model(trips: Path) -> None:
    padding = "x" * 2000
    text = "".join(f"{padding},{i % 7},{2 * (i % 7)}\n" for i in range(3500))  # 7 MB: the first
    with subprocess.Popen(  # noqa: S603  our own command    # 4 MiB are read before row 0 is given
        [*ONEPASS, "run", "-", "--target", "y", "--drop", "note", "--save", "m.onepass"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=trips, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write("note,x,y\n" + text)
        process.stdin.flush()  # returns when all but the pipe's own buffer was read
        process.send_signal(signal.SIGINT)
        shown, output = process.communicate()  # more would come: the pipe was open
    assert process.returncode == 130, output
    assert "interrupted" in shown
    assert "Interrupted after" in output
    assert "Traceback" not in output
    assert 0 < op.load(trips / "m.onepass").rows_seen_ <= 3500


def test_forecasts_with_intervals_are_those_of_the_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.zeros(600)
    for i in range(1, 600):
        y[i] = 20.0 + 0.8 * (y[i - 1] - 20.0) + rng.normal()
    frame = pd.DataFrame({"n": np.arange(600) % 7, "load": y})
    frame[:560].to_csv(tmp_path / "past.csv", index=False)
    frame[560:].assign(load=[*y[560:570], *[np.nan] * 30]).to_csv(
        tmp_path / "next.csv", index=False
    )
    model, out = tmp_path / "m.onepass", tmp_path / "out.csv"
    words = f"--target load --lags 1,7 --horizon 12 --interval 0.8 --save {model}"
    assert main(["run", str(tmp_path / "past.csv"), *words.split()]) == 0
    words = f"{model} {tmp_path / 'next.csv'} --interval 0.8 --out {out}"
    assert main(["predict", *words.split()]) == 0
    written, fitted = pd.read_csv(out), op.load(model)
    known = np.where(np.arange(40) < 10, y[560:], np.nan)
    rows = frame[["n"]][560:]
    np.testing.assert_allclose(written["prediction"], fitted.forecast(rows, known), rtol=1e-6)
    limits = fitted.forecast_interval(rows, known)
    np.testing.assert_allclose(written[["lower", "upper"]], limits, rtol=1e-6)
    assert main(["predict", str(model), str(tmp_path / "next.csv"), "--interval", "0.9"]) != 0

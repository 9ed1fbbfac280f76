"""The command merge: results, files and error messages."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_cli import HEADER, does, fails, line, rows

import onepass as op

pytestmark = pytest.mark.usefixtures("parts")


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a table, three parts of it and a model of each."""
    monkeypatch.chdir(tmp_path)
    cuts = {"all": (0, 300), "a": (0, 1), "b": (1, 90), "c": (90, 300)}
    for name, (first, last) in cuts.items():
        table = [HEADER, *(line(i) for i in range(first, last))]
        Path(f"{name}.csv").write_text("\n".join(table) + "\n")
        does(
            f"run {name}.csv --target price --drop id --model rls -q --save {name}.onepass "
            "--set rls.forgetting=1.0 --set rls.prior=0"
        )


def test_merged_models_equal_one_model_of_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    does("merge a.onepass b.onepass c.onepass --save out/whole.onepass")
    assert "300 rows of 3 models: out/whole.onepass" in capsys.readouterr().err
    does("predict out/whole.onepass all.csv -q --out out.csv")
    does("predict all.onepass all.csv -q --out wanted.csv")
    predictions, wanted = (
        [float(row["prediction"]) for row in rows(Path(name).read_text())]
        for name in ("out.csv", "wanted.csv")
    )
    np.testing.assert_allclose(predictions, wanted, atol=1e-9)
    capsys.readouterr()
    does("inspect out/whole.onepass --json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["rows_seen"] == 300
    assert shown["columns"] == {"by": "text", "km": "number", "at": "date"}
    assert "standard_error" in shown["coefficients"]["km"]


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
def test_concurrent_merge_equals_the_library() -> None:
    for name in "bc":
        does(
            f"run {name}.csv --target price --drop id --model rls -q --save {name}.onepass "
            "--set rls__forgetting=exponential:0.9"
        )
    does("merge b.onepass c.onepass --save after.onepass -q")
    does("merge b.onepass c.onepass --save beside.onepass --concurrent -q")
    after, beside = op.load("after.onepass"), op.load("beside.onepass")
    again = op.load("b.onepass").merge(op.load("c.onepass"), concurrent=True)
    np.testing.assert_array_equal(beside.learner_.coef_, again.learner_.coef_)
    assert not np.allclose(beside.learner_.coef_, after.learner_.coef_)


def test_approximate_merges_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    dicts = [{"km": float(i % 7), "by": str(i % 3)} for i in range(9)]
    for name in "bc":
        pipeline = op.Pipeline(op.features.Encode(), op.ORFitRegressor(4, 1.0))
        op.save(pipeline.partial_fit(dicts, np.arange(9.0)), f"{name}.onepass")
    does("merge b.onepass c.onepass --save both.onepass")
    assert "18 rows of 2 models, approximate: both.onepass" in capsys.readouterr().err


def test_merge_refuses_different_models_without_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    does("run b.csv --target price --drop id --model sgd -q --save sgd.onepass")
    fading = "--model rls --set rls.forgetting=0.9 -q --save fading.onepass"
    does(f"run b.csv --target price --drop id {fading}")
    op.save(op.memory.Principal(3), "spec.onepass")
    for words, why in {
        "a.onepass sgd.onepass": "sgd.onepass with a.onepass: Pipeline.merge: both must have the",
        "sgd.onepass sgd.onepass": "stores only its weights",
        "fading.onepass fading.onepass": "forgetting='exponential:0.999'",
        "spec.onepass a.onepass": "spec.onepass must contain a model, got a Principal",
        "a.onepass nothing.onepass": "nothing.onepass",
        "a.onepass b.csv": "b.csv",
    }.items():
        assert why in fails(capsys, f"merge {words} --save out.onepass")
    assert not Path("out.onepass").exists()


def test_merge_refuses_to_overwrite_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("a.onepass").read_bytes()
    words = "merge a.onepass b.onepass --save ./a.onepass"
    assert "must not name a source" in fails(capsys, words, code=2)
    assert Path("a.onepass").read_bytes() == before


@pytest.mark.parametrize("words", ["merge a.onepass --save x", "merge a.onepass b.onepass"])
def test_merge_refuses_missing_arguments(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, words, code=2)

"""Text that UTF-8 cannot encode is refused by all readers."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.cli import main
from onepass.errors import OnepassError, first_unencodable
from onepass.serialization.models import dumps
from onepass.validation.table import Table

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
SURROGATES = st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF)
MAYBE = st.text(st.one_of(st.characters(codec="utf-8"), SURROGATES), min_size=1, max_size=5)


def pipeline() -> Any:
    return op.Pipeline(op.features.Encode(), op.RLSRegressor())


def fit(rows: Any) -> Any:
    return pipeline().partial_fit(rows, np.arange(float(len(rows))))


def read(source: Any, **options: Any) -> Any:
    model = pipeline()
    for rows in op.stream.read(source, target="y", **options):
        model.partial_fit(rows.X, rows.y)
    return model


def read_lines(rows: list[dict[str, Any]]) -> Any:
    return read(io.BytesIO("\n".join(map(json.dumps, rows)).encode()), format="jsonl")


def read_csv(rows: list[dict[str, Any]]) -> Any:
    return read(io.StringIO(pd.DataFrame(rows).to_csv(index=False)))


def learn_rows(rows: list[dict[str, Any]]) -> Any:
    model = pipeline()
    for row in rows:
        model.learn_one({k: v for k, v in row.items() if k != "y"}, row["y"])
    return model


VALUES: list[Callable[[list[str]], Any]] = [
    lambda texts: read([{"a": text, "y": 1.0} for text in texts]),
    lambda texts: read(pd.DataFrame({"a": pd.Series(texts, dtype=object), "y": 1.0})),
    lambda texts: read_lines([{"a": text, "y": 1.0} for text in texts]),
    lambda texts: read_lines([{"by": {"a": text}, "y": 1.0} for text in texts]),
    lambda texts: learn_rows([{"a": text, "y": 1.0} for text in texts]),
    lambda texts: fit([{"a": text} for text in texts]),
    lambda texts: fit(np.array(texts, dtype=object)[:, None]),
    lambda texts: fit(np.array(texts)[:, None]),
    lambda texts: fit(pd.DataFrame({"a": pd.Series(texts, dtype=object)})),
    lambda texts: fit(Table({"a": np.array(texts, dtype=object)}, len(texts))),
]
NAMES: list[Callable[[list[str]], Any]] = [
    lambda texts: read([{text: 1.0, "y": 1.0} for text in texts]),
    lambda texts: read_lines([{text: 1.0, "y": 1.0} for text in texts]),
    lambda texts: read_lines([{"by": {text: 1.0}, "y": 1.0} for text in texts]),
    lambda texts: learn_rows([{**dict.fromkeys(texts, 1.0), "y": 1.0}]),
    lambda texts: op.RLSRegressor().partial_fit(
        pd.DataFrame([[1.0] * len(set(texts))], columns=pd.Index(sorted(set(texts)), dtype=object)),
        [1.0],
    ),
]
LABELS: list[Callable[[list[str]], Any]] = [
    *[
        lambda texts, kind=kind: kind().partial_fit(np.eye(len(texts)), texts)
        for kind in (op.RLSClassifier, op.NearestClassMean, op.ARTIPCAClassifier)
    ],
    lambda texts: op.SGDClassifier().partial_fit(np.eye(len(texts)), np.array(texts, dtype=object)),
    lambda texts: op.RLSClassifier(classes=texts).partial_fit(np.eye(2), [texts[0]] * 2),
    lambda texts: op.RLSClassifier().partial_fit(
        np.concatenate([rows.X["x0"] for rows in op.stream.read((np.eye(len(texts)), texts))])[
            :, None
        ],
        texts,
    ),
]


WAYS = [*VALUES, *NAMES, *LABELS]


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.lists(MAYBE, min_size=2, max_size=4, unique=True), st.sampled_from(WAYS))
def test_text_is_refused_or_can_be_saved(texts: list[str], way: Any) -> None:
    try:
        model = way(texts)
    except OnepassError:
        return
    assert dumps(model, "here")
    assert model.nbytes > 0
    if way in LABELS:
        assert first_unencodable(texts) is None


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=60, deadline=None, print_blob=True)
@given(st.lists(TEXT, max_size=3), SURROGATES, st.sampled_from(WAYS))
def test_error_names_lone_surrogate(texts: list[str], odd: str, way: Any) -> None:
    with pytest.raises(OnepassError, match="surrogate"):
        way([*texts, f"a{odd}"])


def test_polars_and_csv_accept_valid_text_only() -> None:
    assert read_csv([{"a": "é🚗", "y": 1.0}]).nbytes > 0
    assert read(pl.DataFrame({"a": ["é🚗"], "y": [1.0]})).nbytes > 0
    with pytest.raises(OnepassError, match=r"row 0 .*column 'a' must be UTF-8"):
        read(io.StringIO("a,y\n\ud83d,1\n"))


@pytest.mark.parametrize("row", [{"a": "\ud83d", "y": 1}, {"\ud83d": "b", "y": 1}])
def test_run_with_unencodable_text_fails_before_learning(
    row: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = tmp_path / "sur.jsonl", tmp_path / "s.onepass"
    path.write_text("\n".join(map(json.dumps, [{"a": "b", "y": 2}, row] * 3)) + "\n")
    assert main(["run", str(path), "--target", "y", "--save", str(model)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("SourceError: op.stream.read: sur.jsonl: line 2 must be one JSON")
    assert error.count("\n") == 1
    assert not model.exists()

"""Errors: fields, copies, and callers that change fields in place of texts."""

import copy
import inspect
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import onepass as op
from onepass import errors
from onepass.errors import (
    CheckpointError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
    SourceError,
    calling,
    public,
)

KINDS = [
    kind
    for kind in (getattr(errors, name) for name in errors.__all__)
    if isinstance(kind, type) and issubclass(kind, OnepassError)
]
MORE: dict[str, dict[str, Any]] = {
    "ServiceError": {"status": 404},
    "BusyError": {"seconds": 1.0},
    "CommitTimeoutError": {"seconds": 1.0},
    "MethodNotAllowedError": {"allowed": "GET"},
    "StoreError": {"full": True},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_can_be_copied_and_pickled(kind: Any) -> None:
    error = kind("`X` must be b", "W.x", got="c", remedy="D.", row=3, **MORE.get(kind.__name__, {}))
    pickled = pickle.loads(pickle.dumps(error))  # noqa: S301  our own
    for each in (copy.copy(error), copy.deepcopy(error), pickled):
        assert type(each) is kind
        assert vars(each) == vars(error)
        assert str(each) == "W.x: `X` must be b, got c in row 3. D."
        assert each.argument == "X"


def test_a_copy_with_other_fields_leaves_the_error_unchanged() -> None:
    error = NotFiniteError("`X` must be finite", "A.fit", got="nan", row=2, column="km")
    error.add_note("note")
    other = error.at(where="B.fit", row=7, source="b.csv: row 9")
    assert str(error) == "A.fit: `X` must be finite, got nan in row 2, column 'km'"
    assert str(other).startswith("B.fit: `X` must be finite, got nan in row 7, column 'km' (Row 7")
    assert not hasattr(other, "__notes__")
    with pytest.raises(TypeError, match="no field 'rows'"):
        error.at(rows=3)


def test_only_whole_names_in_backquotes_are_renamed() -> None:
    error = ParameterError("`key` must be text", "op.x", got="'a`b_c'", remedy="See `key`.")
    renamed = error.renamed(lambda name: f"--{name}")
    assert str(renamed) == "op.x: --key must be text, got 'a`b_c'. See --key."


@pytest.mark.parametrize("name", ["load in row 99", "load in row 1", "a`b", "`X`"])
def test_names_of_columns_are_not_read_as_messages(name: str) -> None:
    frame = pd.DataFrame({"k": ["a", "b"] * 4, name: [1.0, 2, 3, np.inf, 5, 6, 7, 8]})
    model = op.Keyed(op.Pipeline(op.features.Encode(), op.RLSRegressor()), by="k")
    with pytest.raises(NotFiniteError) as caught:
        model.partial_fit(frame, np.arange(8.0))
    assert (caught.value.row, caught.value.column) == (3, name)
    assert f"in row 3, column {name!r}" in str(caught.value)


def test_rows_of_keys_are_located(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("k,x,y\na,1,2\n,3,4\nb,5,6\n")
    keyed = op.Keyed(op.Pipeline(op.features.Encode(), op.RLSRegressor()), by="k")
    stream = op.stream.read(path, target="y", types={"k": "text"})
    with pytest.raises(errors.TypeMismatchError, match=r"in row 1\. .*a\.csv: row 1"):
        op.evaluate.prequential(keyed, stream)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("Keyed.partial_fit: the model of the key 'b'", "POST learn: the model of the key 'b'"),
        ("op.durable", "POST learn"),
        ("Sales.v2", "Sales.v2"),
        ("flow", "flow"),
    ],
)
def test_calls_in_python_are_replaced_by_requests(where: str, expected: str) -> None:
    pytest.importorskip("starlette")
    from onepass.service.http.responses import ErrorResponses

    logging.getLogger("onepass.service").setLevel(logging.CRITICAL)
    response = ErrorResponses(Path("/srv"))(
        ParameterError("`key` must be text", where), "1", "POST learn"
    )
    found = bytes(response.body).decode()
    assert f'"{expected}: `' in found
    assert ("Idempotency-Key" in found) == expected.startswith("POST")


def test_service_without_its_extra_names_it() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from onepass.cli import main\n"
        "sys.exit(main(['serve', 'rls', '--data', 'd']))"
    )
    found = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode
    assert "pip install 'onepass[serve]'" in found.stderr
    assert "Traceback" not in found.stderr


class Called:
    @public
    def __init__(self, *, good: bool = True) -> None:
        if not good:
            raise ParameterError("`good` must be true")

    @public
    def predict(self, where: str = "") -> None:
        raise ShapeError("`X` must have rows", where)

    @public
    def fit(self) -> None:
        Later().predict()

    @classmethod
    @public
    def load(cls) -> None:
        raise CheckpointError("`path` must exist")


class Later(Called):
    pass


@calling("op.read")
def read() -> None:
    raise SourceError("`source` must exist")


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: Called(good=False), "Called"),
        (Called().predict, "Called.predict"),
        (Called().fit, "Later.predict"),  # the inner call
        (Later.load, "Later.load"),
        (lambda: Later().predict("elsewhere"), "elsewhere"),
        (read, "op.read"),
    ],
)
def test_a_public_call_names_itself_in_errors(call: Callable[[], object], where: str) -> None:
    with pytest.raises(OnepassError) as found:
        call()
    assert found.value.where == where


def test_a_public_method_keeps_its_signature() -> None:
    assert list(inspect.signature(Called.predict).parameters) == ["self", "where"]


WRONG = op.RLSRegressor(ridge=-1.0)
ROWS, TARGETS = np.zeros((4, 3)), np.zeros(4)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: op.Conformal(WRONG).fit(ROWS, TARGETS), "Conformal.fit: RLSRegressor"),
        (
            lambda: op.Conformal(op.Pipeline(op.features.Scale(), WRONG)).fit(ROWS, TARGETS),
            "Conformal.fit: RLSRegressor",
        ),
        (
            lambda: op.Keyed(op.SGDRegressor(step_size=-1.0), by=0).fit(ROWS, TARGETS),
            "Keyed.fit: the model of the key 0: SGDRegressor",
        ),
        (lambda: op.Conformal(WRONG, alpha=2.0).learn_one(ROWS[0], 1.0), "Conformal.learn_one"),
        (lambda: op.stream.dataset("flight"), "op.stream.dataset"),
        (lambda: op.RLSRegressor().merge(op.SGDRegressor()), "RLSRegressor.merge"),
        (lambda: op.memory.SquareRoot(-1.0), "SquareRoot"),
    ],
)
def test_errors_name_the_call_and_the_model(call: Callable[[], object], where: str) -> None:
    with pytest.raises(OnepassError) as refusal:
        call()
    assert refusal.value.where == where

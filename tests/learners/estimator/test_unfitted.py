"""`rows_seen_` before the first row: absent, with an error that says so."""

import copy
import pickle

import pytest

from cases import PIPELINES, PUBLIC, Case, parametrize
from onepass.errors import NotFittedError
from onepass.features import Encode, Scale


@parametrize([*PUBLIC, *PIPELINES, Case(Scale()), Case(Encode())])
def test_rows_seen_is_absent_before_the_first_row(case: Case) -> None:
    for model in (case(), copy.copy(case()), pickle.loads(pickle.dumps(case()))):  # noqa: S301
        assert not hasattr(model, "rows_seen_")
        with pytest.raises(NotFittedError, match=r"this \w+ is not fitted yet.* Call"):
            _ = model.rows_seen_
        with pytest.raises(AttributeError, match="no attribute 'rows_sen'"):
            _ = model.rows_sen

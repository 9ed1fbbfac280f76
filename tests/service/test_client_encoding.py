"""Encoding of rows by the client equals decoding by the service."""

import datetime as dt

import numpy as np
import pytest

pytest.importorskip("msgspec")

from onepass.service.client import encode_tensors
from onepass.service.protocol import v2
from onepass.service.requests import read_rows


def test_missing_values_survive_encoding() -> None:
    rows = [
        {"km": 1.0, "kind": "é", "word": "a", "at": dt.datetime(2026, 11, 22, 1, 2, 3, 4, dt.UTC)},
        {"km": None, "kind": "", "word": None, "at": None},
    ]
    sent = read_rows(rows, ["x", ""])
    body, length = encode_tensors(sent, {})
    found = v2.read(body, header=str(length), learning=True)
    assert found.rows.X.names == ["km", "kind", "word", "at"]
    for name in found.rows.X.names:
        np.testing.assert_array_equal(found.rows.X[name], sent.X[name])
        assert found.rows.X[name].dtype == sent.X[name].dtype
    assert found.rows.y is not None
    assert found.rows.y.tolist() == ["x", ""]

"""Invocations: MLflow's scoring protocol, JSON in four forms; :mod:`~.csvtext` has the fifth.

======================= ==========================================================================
the body has            which is
======================= ==========================================================================
``dataframe_split``     ``{"columns": ["speed", …], "data": [[3, …], …]}``; without columns, or
                        with whole numbers as pandas counts them, rows without names
``dataframe_records``   ``[{"speed": 3, …}, …]``; what a row lacks is missing
``instances``           rows ``[[3, …], …]`` or ``[3, …]`` of numbers; records; or columns
``inputs``              the same
======================= ==========================================================================

Columns are ``{"speed": [3, …], …}``, and the only one may be a matrix, ``{"X": [[3, …], …]}``.
Whatever else stands in the body beside ``params`` is passed over, as MLflow does. Numbers, truth
values and text are what JSON says they are; null is missing.
"""

from collections.abc import Mapping

import msgspec

from onepass.errors import Array
from onepass.service.wire.forms import Forms
from onepass.service.wire.jsontext import decoded, encoded, short
from onepass.service.wire.limits import Limits, refused
from onepass.service.wire.rows import Asked, Reply, asked

__all__ = ["read", "write"]

_NO_LIMITS = Limits()
_LISTS = ("dataframe_records", "instances", "inputs")


class _Split(msgspec.Struct):
    data: msgspec.Raw
    columns: msgspec.Raw = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    dataframe_split: _Split | None = None
    dataframe_records: msgspec.Raw = msgspec.Raw(b"")
    instances: msgspec.Raw = msgspec.Raw(b"")
    inputs: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"null")


_BODY = msgspec.json.Decoder(_Body)
_PARAMS = msgspec.json.Decoder(dict[str, bool | int | float | str | None] | None)


def read(body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False) -> Asked:
    """What a request asks whose body is JSON.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool, default False
        Whether the columns y, sample_weight and time are what these say, and no features.

    Raises
    ------
    RequestError
        If it is no such request, or too large.

    Examples
    --------
    >>> read(b'{"dataframe_records": [{"speed": 3}, {"speed": null}]}').X["speed"]
    array([ 3., nan])
    >>> read(b'{"inputs": [[1, 2], [3, 4]]}').X
    array([[1., 2.],
           [3., 4.]])
    """
    limits.hold_body(body)
    found = decoded(_BODY, body)
    lists = {key: text for key in _LISTS if (text := bytes(getattr(found, key)))}
    keys = [*lists, *([] if found.dataframe_split is None else ["dataframe_split"])]
    if len(keys) != 1:
        must = "have one of `dataframe_split`, `dataframe_records`, `instances` and `inputs`"
        raise refused("", must, " and ".join(keys) or "none", "Send the rows under one of them")
    (key,) = keys
    forms = Forms(key, limits, exact=learning)
    if found.dataframe_split is not None:
        named = forms.split(bytes(found.dataframe_split.columns), bytes(found.dataframe_split.data))
    elif key == "dataframe_records":
        named = forms.records(lists[key])
    else:
        named = forms.any(lists[key])
    rows = asked(named, forms.place, learning=learning)
    rows.parameters = decoded(_PARAMS, short(found.params, "params"), "params") or {}
    return rows


def write(answers: Mapping[str, Array]) -> Reply:
    """What is sent back.

    Parameters
    ----------
    answers : mapping of str to ndarray
        Its ``y`` are the predictions. nan and infinity are null.

    Raises
    ------
    LabelError
        If a text among the answers is none that UTF-8 can write.

    Examples
    --------
    >>> import numpy as np
    >>> write({"y": np.array([0.5, 1])}).body
    b'{"predictions":[0.5,1.0]}'
    """
    return Reply(encoded({"predictions": answers["y"].tolist()}))

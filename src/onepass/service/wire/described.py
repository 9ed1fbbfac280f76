"""Described: what a server and its models say of themselves, and of what went wrong.

As the Open Inference Protocol has it, at ``/v2``, ``/v2/models/NAME``, and in every answer that is
an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onepass.service.wire.rows import Reply

__all__ = ["failed", "model", "server"]

_KINDS = {"number": "FP64", "truth": "BOOL", "text": "BYTES", "date": "BYTES"}


def server(version: str, extensions: Sequence[str] = ("binary_tensor_data",)) -> Reply:
    """What the server says of itself.

    Parameters
    ----------
    version : str
        Of onepass.
    extensions : sequence of str
        Of the protocol, as far as the server has them.
    """
    return _reply({"name": "onepass", "version": version, "extensions": list(extensions)})


def model(
    name: str,
    *,
    versions: Sequence[str],
    learner: str,
    features: int | Mapping[str, str] | None = None,
    answers: str = "FP64",
    outputs: int = 1,
    classes: int | None = None,
    probabilities: bool = False,
) -> Reply:
    """What a model says of itself.

    Parameters
    ----------
    name : str
    versions : sequence of str
        Those that can be asked.
    learner : str
        The class of its learner.
    features : int, mapping of str to str, or None
        How many columns rows have that have no names; or the columns' names, and for each whether
        it holds a "number", "truth", "text" or "date"; None before any was seen.
    answers : {"FP64", "INT64", "UINT64", "BOOL", "BYTES"}, default "FP64"
        The datatype of its answers.
    outputs : int, default 1
        How many answers a row has.
    classes : int, optional
        How many classes it knows, if it is a classifier.
    probabilities : bool, default False
        Whether it tells the classes' probabilities.

    Examples
    --------
    >>> reply = model("flow", versions=["7"], learner="RLSRegressor", features=3)
    >>> msgspec.json.decode(reply.body)["inputs"]
    [{'name': 'X', 'datatype': 'FP64', 'shape': [-1, 3]}]
    """
    told = [_tensor("y", answers, [-1] if outputs == 1 else [-1, outputs])]
    if classes is not None:
        if probabilities:
            told.append(_tensor("probabilities", "FP64", [-1, classes]))
        told.append(_tensor("classes", answers, [classes]))
    return _reply(
        {
            "name": name,
            "versions": list(versions),
            "platform": f"onepass_{learner}",
            "inputs": _inputs(features),
            "outputs": told,
        }
    )


def failed(message: str) -> Reply:
    """An error, in words.

    Parameters
    ----------
    message : str
    """
    return _reply({"error": message.encode(errors="backslashreplace").decode()})


def _inputs(features: int | Mapping[str, str] | None) -> list[dict[str, Any]]:
    if isinstance(features, Mapping):
        return [_column(name, kind) for name, kind in features.items()]
    return [_tensor("X", "FP64", [-1, -1 if features is None else features])]


def _column(name: str, kind: str) -> dict[str, Any]:
    found = _tensor(name, _KINDS[kind], [-1])
    return found | {"parameters": {"content_type": "datetime"}} if kind == "date" else found


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def _reply(told: dict[str, Any]) -> Reply:
    return Reply(msgspec.json.encode(told))

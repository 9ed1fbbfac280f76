"""Metadata: what a learner takes and gives, as the protocol describes it."""

from typing import Any

from sklearn.base import is_classifier

from onepass.service.protocol.rows import Reply
from onepass.service.protocol.v2 import model

__all__ = ["of_model"]

_ANSWERS = {"i": "INT64", "u": "UINT64", "b": "BOOL", "f": "FP64"}


def of_model(name: str, version: int, learner: Any) -> Reply:
    """A learner's metadata.

    Parameters
    ----------
    name : str
    version : int
        The present one, which is the only one that answers.
    learner : learner or Pipeline
    """
    final = getattr(learner, "learner", learner)
    classes = getattr(final, "classes_", None)
    kind = "f" if classes is None else classes.dtype.kind
    return model(
        name,
        versions=[str(version)],
        learner=type(learner).__name__,
        features=_features(learner),
        answers=_ANSWERS.get(kind, "BYTES"),
        outputs=int(getattr(final, "n_outputs_", 1)) if classes is None else 1,
        classes=(0 if classes is None else len(classes)) if is_classifier(final) else None,
        probabilities=hasattr(learner, "predict_proba"),
    )


def _features(learner: Any) -> Any:
    """Columns by their names and kinds, or how many there are; None before any was seen."""
    kinds = getattr(learner, "kinds_", None)
    if kinds:
        return kinds
    names = getattr(learner, "feature_names_in_", None)
    if names is not None:
        return {str(each): "number" for each in names}
    try:
        return int(learner.n_features_in_)
    except AttributeError:
        return None

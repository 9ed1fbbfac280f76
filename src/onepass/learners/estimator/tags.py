"""Estimator tags of onepass, in addition to those of scikit-learn."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from sklearn.utils import Tags

from onepass.errors import ParameterError


@dataclass
class OnepassTags(Tags):  # type: ignore[misc]
    """Tags of learners, transformers and pipelines, as ``sklearn.utils.get_tags`` returns them."""

    merging: str = "refused"
    """Result of ``merge`` with the current parameters: ``exact``, ``approximate``, ``refused``."""
    uses_time: bool = False
    """Whether learning requires the time of each row."""
    missing_targets: bool = False
    """Whether rows whose target is missing, NaN, are learned as such."""


def with_onepass_tags(tags: Any, estimator: Any) -> OnepassTags:
    """Return the tags of an estimator, extended by those of onepass.

    Parameters
    ----------
    tags : Tags
    estimator : estimator
        Its parameters may be out of range, which is an error only when learning begins.
    """
    every = OnepassTags(**{field.name: getattr(tags, field.name) for field in fields(tags)})
    with suppress(ParameterError):
        every.merging, every.uses_time = estimator._merging, estimator._uses_time  # noqa: SLF001
        every.missing_targets = getattr(estimator, "_learns_gaps", False)
    return every

"""Federated learning in one round: each site sends a summary of its rows, without the rows.

A summary is the model that a site has learned from its own rows, as one safetensors file. Models
whose state is a sum over rows merge exactly, so that the combined model equals one that has learned
the rows of all sites, however they are divided. For least squares it is the result of the absolute
aggregation (AA) law of [1], which combines the weights of two sites by their matrices C_i + γI, and
of its regularization intermediary (RI) process, which removes all γI at the end. Here triangles are
merged without inverses, and the ridge counts once.

Sums can reveal rows: those of fewer rows than features determine them up to a rotation. Therefore
:func:`private` adds noise. For rows scaled to ‖x‖ ≤ 1 and ‖y‖ ≤ 1, with u = (1, x), one row adds

    u uᵀ (upper triangle),    u yᵀ,    y_j² for each output j                               (1)

to the sums S(D) over the rows D of a site, a vector of squared length
(‖u‖⁴ + Σ u_j⁴) / 2 + ‖u‖² ‖y‖² + Σ y_j⁴ ≤ 3 + 2 + 1 = 6. So √6 is the sensitivity: the largest
change of S in the Euclidean norm if one row is added or removed. With independent normal noise of
standard deviation √6 σ on each number, M(D) = S(D) + noise is (ε, δ)-differentially private:

    P[M(D) in A]  ≤  e^ε P[M(D′) in A] + δ                                                  (2)

for each set A and all D, D′ of which one has one row more. The analytic Gaussian mechanism [2]
finds the smallest σ(ε, δ) for which this holds; [3] adds such noise to a Gram matrix. What is
computed from M(D) alone, such as the projection of the Gram matrix, weights and merged models,
satisfies (2) as well.

[1] R. He, K. Tong, D. Fang, H. Sun, H. Li, T. Chen, Z. Zeng, H. Zhuang, "AFL: A single-round
    analytic approach for federated learning with pre-trained models", CVPR 2025; arXiv 2405.16240.
[2] B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy: analytical
    calibration and optimal denoising", ICML 2018; algorithm 1.
[3] C. Dwork, K. Talwar, A. Thakurta, L. Zhang, "Analyze Gauss: optimal bounds for
    privacy-preserving principal component analysis", STOC 2014.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from onepass import validation
from onepass.errors import (
    LabelError,
    MergeError,
    NumericalError,
    ParameterError,
    calling,
    import_extra,
)
from onepass.features.pipeline import Pipeline
from onepass.learners.rls import LeastSquares
from onepass.memory.vector import Slot
from onepass.serialization import archive, models
from onepass.types import Floats

__all__ = ["combine", "private", "summary"]

_OTHER = "which is not such a model; use RLS, class means or linear discriminants"
_SENSITIVITY = math.sqrt(6.0)  # of (1)


def summary(model: Any) -> bytes:
    """Return what a site sends: the state of its model, with sums over rows but no rows.

    Accepted are ``RLSRegressor`` and ``RLSClassifier`` without a window or prior,
    ``NearestClassMean``, ``StreamingLDA`` and ``StreamingQDA``, and pipelines of these with
    ``Encode``, ``Impute``, random features and frozen networks.

    Parameters
    ----------
    model : learner or Pipeline
        A fitted model. It is not changed.

    Returns
    -------
    summary : bytes
        A file of ``op.save``. What it reveals: the page on federated learning.

    Raises
    ------
    MergeError
        If the state contains single rows, or cannot be merged exactly.
    CheckpointError
        If the model contains an object that cannot be stored.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> sites = [op.RLSRegressor().fit(X[i::3], X[i::3].sum(axis=1)) for i in range(3)]
    >>> model = combine(summary(site) for site in sites)
    >>> model.rows_seen_, model.coef_.round(6).tolist()
    (300, [1.0, 1.0, 1.0, 1.0])
    """
    sent = copy.deepcopy(model)
    parts = [sent]
    if isinstance(sent, Pipeline) and hasattr(sent, "learner_"):
        sent.steps = clone(sent).steps  # they may have learned other rows
        parts = [*sent.features_, sent.learner_]
    for part in parts:
        if reason := getattr(part, "_stored_rows", _OTHER):
            raise MergeError(
                "the state of a site must consist of sums over rows, got "
                f"{type(part).__name__}, {reason}.",
                "federated.summary",
            )
        if hasattr(part, "_remove_rows"):
            part._remove_rows()  # noqa: SLF001
    return models.dumps(sent, "federated.summary")


def combine(summaries: Iterable[bytes], **replacements: object) -> Any:
    """Merge the summaries of sites, in the given order.

    The same summaries in the same order give the same bits; another order changes rounding only,
    and with forgetting nothing else either, since the sites count as concurrent.

    Parameters
    ----------
    summaries : iterable of bytes
        At least one, from any source: a file is checked, and runs no code.
    **replacements : callable or network
        What a file does not contain, as in ``op.load``.

    Returns
    -------
    model : learner or Pipeline
        Equal, to rounding, to a model that has learned the rows of all sites.

    Raises
    ------
    ParameterError
        If there is no summary, or the same summary twice.
    CheckpointError
        If a summary is damaged.
    MergeError
        If the models of two sites are incompatible.
    """
    model, seen = None, dict[bytes, int]()
    for i, data in enumerate(summaries):
        where = f"federated.combine: summary {i}"
        data = bytes(memoryview(data))  # noqa: PLW2901
        if (first := seen.setdefault(data, i)) != i:
            raise ParameterError(
                f"each site must occur once, got the bytes of summary {first} again. "
                "Pass one summary for each site.",
                where,
            )
        part = models.from_contents(archive.loads(data, where), where, replacements)
        try:
            model = part if model is None else model.merge(part, concurrent=True)
        except MergeError as error:
            raise error.at(where=f"{where}: {error.where}") from error
    if model is None:
        raise ParameterError(
            "`summaries` must contain at least one, got none. Pass the bytes that "
            "`summary` returned at each site.",
            "federated.combine",
        )
    return model


@calling("federated.private")
def private(
    model: Any,
    blocks: Iterable[tuple[Any, Any]],
    *,
    epsilon: float,
    delta: float,
    row_norm: float,
    target_norm: float | None = None,
    seed: int | None = None,
) -> Any:
    """Learn the rows of a site from sums with noise: an (ε, δ)-differentially private model.

    Each single row is protected, with its features and target, against everybody who sees the
    returned model or what is computed from it: adding or removing the row increases the probability
    of any set of results at most by the factor e^ε, plus δ. Not protected are the names and the
    number of the columns and outputs, the classes and the parameters of this call. The server and
    the other sites need not be trusted, since each site adds its own noise.

    Rows longer than ``row_norm`` and targets longer than ``target_norm`` are scaled down to these
    lengths, which bounds what one row adds to the sums. The noisy Gram matrix is projected to the
    nearest positive semidefinite matrix. A ridge limits the effect of directions that contain only
    noise; :doc:`federated` has a rule for it.

    The guarantee is that of one call. If each row is at one site, then the guarantee of all
    summaries together is also (ε, δ), for any number of sites. If n calls learn the same row, at
    one site or several, they are together (nε, nδ)-differentially private. If a person has n rows,
    the guarantee for the person is (nε, n exp((n - 1) ε) δ). :doc:`federated` has smaller bounds.

    Parameters
    ----------
    model : RLSRegressor or RLSClassifier
        Parameters, without forgetting or ``prior``. A classifier needs its ``classes``.
    blocks : iterable of (X, y)
        All rows of the site, in blocks.
    epsilon : float
        ε > 0.
    delta : float
        δ in (0, 0.5], by which probabilities may exceed the factor e^ε. Choose it well below
        1 / number of rows: with probability δ, a row could be published.
    row_norm : float
        Bound > 0 of the lengths of rows, in their units; chosen without looking at the rows.
    target_norm : float
        The same for targets, only for a regressor: the targets of a classifier have length 1.
    seed : int, optional
        Seed of the noise, for tests; by default the system's randomness. It must be as secret as
        the rows, and used once: two calls with the same seed have the same noise, which cancels.

    Returns
    -------
    model : RLSRegressor or RLSClassifier
        A fitted copy, for :func:`summary`. Its ``rows_seen_`` has noise, too.

    Raises
    ------
    ParameterError
        If a parameter is out of range, there are no rows, or the model has another kind of state.
    NumericalError
        If the noise exceeds the number of rows.
    MissingExtraError
        If dp-accounting is not installed.
    """
    accounting = import_extra("dp_accounting", extra="privacy")
    sums = isinstance(model, LeastSquares) and not model._prior  # noqa: SLF001
    classifier = sums and is_classifier(model)
    if not (sums and model.forgetting == 1.0 and getattr(model, "classes", ()) is not None):
        raise ParameterError(
            "`model` must be an RLSRegressor, or an RLSClassifier with `classes`, "
            f"without forgetting or prior, got {model!r}. Transform the rows before, by "
            "functions that do not depend on them."
        )
    epsilon = validation.in_range(epsilon, "epsilon", above=0.0)
    delta = validation.in_range(delta, "delta", above=0.0, high=0.5)
    row_norm = validation.in_range(row_norm, "row_norm", above=0.0)
    if classifier and target_norm is not None:
        raise ParameterError(
            "`target_norm` must be omitted for a classifier, whose targets have length "
            f"1, got {target_norm!r}. Omit it."
        )
    reach = 1.0
    if not classifier:
        reach = validation.in_range(target_norm, "target_norm", above=0.0)
    if seed is not None:
        seed = validation.whole(seed, "seed", low=0)
    fresh, names = clone(model), validation.class_names(getattr(model, "classes", None))
    gram = cross = squares = np.zeros(())
    for X, y in blocks:
        rows, columns = validation.matrix(X, **fresh._shape())  # noqa: SLF001
        fresh._set_features(rows.shape[1], columns)  # noqa: SLF001
        targets, _ = fresh._receive_targets(y, len(rows), None)  # noqa: SLF001
        if classifier and len(fresh.classes_) > len(names):
            raise LabelError(
                "`y` must contain only the labels in `classes`, got others. Pass all "
                "labels that can occur, at every site the same."
            )
        U = np.hstack((np.ones((len(rows), 1)), _clipped(rows, row_norm)))
        Y = _clipped(targets, reach)
        gram, cross = gram + U.T @ U, cross + U.T @ Y
        squares = squares + np.einsum("ij,ij->j", Y, Y)
    if not hasattr(fresh, "rows_seen_"):
        raise ParameterError("`blocks` must contain at least one row, got none.")
    with np.errstate(divide="ignore"):  # of logarithms of tails
        sigma = _SENSITIVITY * accounting.get_sigma_gaussian(epsilon, delta)
    rng = np.random.default_rng(seed)
    noise = np.triu(rng.normal(0.0, sigma, gram.shape))
    gram = gram + noise + np.triu(noise, 1).T
    cross = cross + rng.normal(0.0, sigma, cross.shape)
    squares = squares + rng.normal(0.0, sigma, squares.shape)
    U, Y, weight = _rows_of(gram, cross, squares)
    ones = np.full(len(U), weight)
    fresh._learn(U * row_norm, Y * reach, ones, None)  # noqa: SLF001
    fresh.rows_seen_ = max(1, round(weight * len(U)))
    fresh.state_[Slot.ROWS] = fresh.rows_seen_
    return fresh


def _clipped(rows: Floats, bound: float) -> Floats:
    """Rows in units of the bound; longer ones are scaled to length 1."""
    rows = rows / np.abs(rows).max(axis=1, initial=bound, keepdims=True)  # squares do not overflow
    clipped: Floats = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    return clipped


def _rows_of(gram: Floats, cross: Floats, squares: Floats) -> tuple[Floats, Floats, float]:
    """Rows of equal weight with these sums (1): their features, targets and weight."""
    values, vectors = np.linalg.eigh(gram)
    roots = np.sqrt(np.maximum(values, 0.0))
    U = roots[:, None] * vectors.T
    Y = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0.0)[:, None] * vectors.T
    Y = Y @ cross
    rest = np.sqrt(np.maximum(squares - np.einsum("ij,ij->j", Y, Y), 0.0))
    U, Y = np.vstack((U, np.zeros(len(U)))), np.vstack((Y, rest))
    length, k = float(np.linalg.norm(U[:, 0])), len(U)
    if gram[0, 0] <= 0.0 or length == 0.0:
        raise NumericalError(
            f"the number of rows must exceed its noise, got {gram[0, 0]:.3g} as their "
            "sum. Use more rows or a larger epsilon."
        )
    turn = U[:, 0] / length - 1.0 / math.sqrt(k)  # reflect the column of ones to equal entries
    turn /= np.linalg.norm(turn) or 1.0
    U, Y = (A - 2.0 * np.outer(turn, turn @ A) for A in (U, Y))
    unit = length / math.sqrt(k)
    return U[:, 1:] / unit, Y / unit, unit**2

"""Features of a pretrained network, whose weights are fixed.

A network with fixed weights is a fixed function of a row, like random units; the last hidden layer
of a network trained on other images is a far better one. An exact learner after it, such as
recursive least squares, learns classes and tasks in one pass without forgetting [1, 2].

Rows of streams are flat; they are reshaped to the input of the network. Model files do not contain
the network, but its SHA-256 digest and its output for a row of noise. The output shows whether the
network is deterministic; both show whether the network passed on loading is the same.

[1] M. D. McDonnell, D. Gong, A. Parvaneh, E. Abbasnejad, A. van den Hengel, "RanPAC: Random
    projections and pre-trained models for continual learning", NeurIPS 2023.
[2] H. Zhuang, Z. Weng, H. Wei, R. Xie, K.-A. Toh, Z. Lin, "ACIL: Analytic class-incremental
    learning with absolute memorization and privacy protection", NeurIPS 2022.
"""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import (
    MergeError,
    ModuleError,
    NumericalError,
    OnepassError,
    ParameterError,
    ShapeError,
    public,
)
from onepass.estimators import BaseEstimator
from onepass.features.random_features import Frozen
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.table import TableLike


class OpenNetwork(NamedTuple):
    """A network that is ready for evaluation."""

    forward: Callable[[Array], Any]
    """Function from an array (n, *shape) to an array of n rows."""
    digest: str
    """SHA-256 of its weights or its file."""
    shape: tuple[int | None, ...] | None = None
    """The declared shape of a row; None for variable sizes."""
    rows: int | None = None
    """The fixed number of rows of a batch, if there is one."""
    integer_dtype: np.dtype[Any] | None = None
    """The integer dtype of the input, if the network accepts only integers."""


def _input_shape(given: object, declared: Sequence[int | None] | None, d: int) -> tuple[int, ...]:
    """Return the shape of a row of d numbers.

    Parameters
    ----------
    given : sequence of int, optional
        The shape passed by the user, or the shape of the first rows.
    declared : sequence of int or None, optional
        The shape declared by the network, None for variable sizes.
    d : int
        Number of values of a row.

    Returns
    -------
    tuple of int
        ``given``, with as many leading axes of length 1 as ``declared`` has; else ``declared`` with
        its variable size inferred from d; else ``(d,)``.

    Raises
    ------
    ParameterError, ShapeError
        If these are incompatible.

    Examples
    --------
    >>> _input_shape(None, (1, None, 28), 784)
    (1, 28, 28)
    """
    if given is not None:
        shape = _align_axes(_sizes(given), declared)
        if declared is not None and not _fits(shape, declared):
            raise ParameterError(
                "`shape` must be a shape that the network accepts, "
                f"{_format_shape(declared)}, got {shape}. Omit it, or pass such a shape."
            )
    elif declared is None:
        shape = (d,)
    else:
        shape = _fill_open_size(declared, d)
    if math.prod(shape) != d:
        raise ShapeError(
            f"rows must have {math.prod(shape)} numbers for shape {shape}, got {d} "
            "columns. Pass rows of that width, or set another `shape`."
        )
    return shape


def _check_shape(got: Sequence[int], known: Sequence[int] | None) -> None:
    """Reject rows of another shape; leading axes of length 1 are ignored."""
    if known is None or _strip_axes(got) == _strip_axes(known):
        return
    raise ShapeError(
        f"rows must have shape {tuple(known)}, as the first rows or as `shape`, got "
        f"{tuple(got)}. Reorder the axes, or create a new transformer."
    )


def _sizes(given: object) -> tuple[int, ...]:
    if not isinstance(given, (tuple, list)) or not given:
        raise ParameterError(
            f"`shape` must be a tuple of sizes, such as (3, 32, 32), got {given!r}. "
            "Pass such a tuple."
        )
    return tuple(validation.whole(k, "shape", low=1) for k in given)


def _fits(shape: Sequence[int], declared: Sequence[int | None]) -> bool:
    return len(shape) == len(declared) and all(
        open_ is None or k == open_ for k, open_ in zip(shape, declared, strict=True)
    )


def _align_axes(shape: tuple[int, ...], declared: Sequence[int | None] | None) -> tuple[int, ...]:
    """Return a shape with as many leading axes of length 1 as the network has."""
    if declared is None or len(declared) == len(shape):
        return shape
    bare = _strip_axes(shape)
    return (1,) * (len(declared) - len(bare)) + bare


def _fill_open_size(declared: Sequence[int | None], d: int) -> tuple[int, ...]:
    """Return the declared shape, with one variable size inferred from d."""
    if sum(k is None for k in declared) > 1:
        raise ParameterError(
            "`shape` must be set for a network with several variable sizes, "
            f"{_format_shape(declared)}, got none for {d} columns. Pass `shape`, such "
            "as (3, 32, 32)."
        )
    rest = max(1, math.prod(k for k in declared if k is not None))
    return tuple(max(1, d // rest) if k is None else k for k in declared)


def _strip_axes(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(int(k) for k in shape)
    while len(sizes) > 1 and sizes[0] == 1:
        sizes = sizes[1:]
    return sizes


def _format_shape(declared: Sequence[int | None]) -> str:
    sizes = ", ".join("any" if k is None else str(k) for k in declared)
    return f"({sizes}{',' if len(declared) == 1 else ''})"


_ALIKE = 0.03  # relative to the largest output; devices and half precision differ by less


def _nearly_equal(one: Floats, two: Floats) -> bool:
    """Return whether two outputs are equal up to rounding, on any device.

    Parameters
    ----------
    one, two : ndarray of shape (k,)

    Examples
    --------
    >>> sum([_nearly_equal(np.array([1.0, 2.0]), np.array([1.001, 2.0]))])
    1
    """
    if one.shape != two.shape:
        return False
    a, b = (np.nan_to_num(each.astype(np.float64)) for each in (one, two))
    size = max(float(np.abs(each).max(initial=0.0)) for each in (a, b))
    return float(np.abs(a - b).max(initial=0.0)) <= _ALIKE * size


_SMALL = {"u1", "i1", "f2"}  # dtypes that float32 represents exactly


class FrozenNetwork(Frozen):
    """Base class of pretrained networks as transformers; networks are not trained or saved.

    A subclass defines ``_key``, ``_open`` and ``_digest``, and the parameters ``shape`` and
    ``batch_size``. The opened network is not part of the learned state: copies and files exclude
    it.
    """

    _draws: ClassVar[tuple[str, ...]] = ("digest_", "shape_", "trial_")
    _what: ClassVar[str] = "module"

    shape: tuple[int, ...] | None
    batch_size: int
    digest_: str
    shape_: tuple[int, ...]
    trial_: Floats
    _opened: tuple[tuple[Hashable, ...], OpenNetwork]

    # -- hooks for the network --------------------------------------------------------------------

    @abstractmethod
    def _key(self) -> tuple[Hashable, ...]:
        """Return a key that changes whenever the network may have changed; must be cheap."""

    @abstractmethod
    def _open(self) -> OpenNetwork:
        """Open the network."""

    @abstractmethod
    def _digest(self) -> str:
        """Return the SHA-256 of the current network, in hexadecimal."""

    # -- output ------------------------------------------------------------------------

    @property
    def n_features_out_(self) -> int:
        """Number of outputs for a row; 0 before the first evaluation."""
        return len(getattr(self, "trial_", ()))

    @public
    def transform(self, X: TableLike) -> Floats:
        """Return the outputs of the network for the rows; no row needs to have been learned.

        After a table with named columns was learned, columns are matched by name.

        Parameters
        ----------
        X : array-like of shape (n, d), or (n, *shape)

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        if hasattr(self, "n_features_in_"):
            return super().transform(X)
        self._network()  # opened once, not by each copy
        fresh = clone(self)
        checked_rows = fresh._check_rows(X, learning=True)  # noqa: SLF001
        outputs: Floats = fresh._learn_rows(checked_rows, None)[0]  # noqa: SLF001
        return outputs

    def _check_rows(self, X: TableLike, *, learning: bool) -> Floats:
        """Return rows, of any shape that the network accepts, as a finite matrix."""
        form = np.shape(X)[1:] if hasattr(X, "shape") else ()
        if len(form) > 1:
            known = getattr(self, "shape_", self.shape)
            _check_shape(form, known)
            if known is None and learning:
                self.shape_ = tuple(int(k) for k in form)
            array = np.asarray(X)
            X = array.reshape(len(array), math.prod(form))
        dtype = getattr(X, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.str[1:] in _SMALL:
            X = np.asarray(X, dtype=np.float32)
        return super()._check_rows(X, learning=learning)

    def _check_row(self, x: ArrayLike | Mapping[str, object], *, learning: bool) -> Floats:
        """Return one row as a matrix of one row."""
        if hasattr(x, "shape") and len(np.shape(x)) > 1:
            return self._check_rows(np.asarray(x)[None], learning=learning)
        return super()._check_row(x, learning=learning)

    def _merge_conflict(self, other: Any) -> str:
        """Return a reason if the networks differ."""
        if not (hasattr(self, "digest_") and hasattr(other, "digest_")):
            return ""
        if (self.digest_, self.shape_) == (other.digest_, other.shape_) and _nearly_equal(
            self.trial_, other.trial_
        ):
            return ""
        return f"its {self._what} is different. Use the same in both"

    # -- hooks of the learned state --------------------------------------------------------------

    def _start(self, d: int) -> None:
        network = self._network()
        given = self.shape if self.shape is not None else getattr(self, "shape_", None)
        self.shape_ = _input_shape(given, network.shape, d)
        self.trial_ = self._trial_outputs(network)
        self.digest_ = network.digest

    def _widen(self, d: int) -> None:
        raise ShapeError(
            f"rows must have {self.n_features_in_} numbers, as in the first block, got "
            f"{d}. Inputs of a network cannot be added: create a new transformer."
        )

    def _merge_block(self, other: Self, at: Array, known: int) -> Array:
        del known
        reason = self._merge_conflict(other)
        if reason or not np.array_equal(at, np.arange(self.n_features_in_)):
            raise MergeError(
                "both must transform a row in the same way, but "
                f"{reason or 'the order of columns differs. Use the same order in both'}."
            )
        return np.arange(self.n_features_out_)

    def _transform_block(self, X: Floats) -> Floats:
        network, rows = self._network(), X.reshape(len(X), *self.shape_)
        step = network.rows or int(self.batch_size)
        parts = [self._forward(network, rows[i : i + step]) for i in range(0, len(rows), step)]
        Z: Floats = np.concatenate([np.empty((0, len(self.trial_)), self.trial_.dtype), *parts])
        finite = np.isfinite(Z)
        if not finite.all():
            i, j = np.argwhere(~finite)[0].tolist()
            raise NumericalError(
                f"feature {self._prefix}{j} must be finite",
                got=f"{Z[i, j]} of a row with numbers up to {np.abs(X[i]).max():.3g}",
                remedy="Drop the row, or scale its numbers as in the training of the "
                f"{self._what}.",
                row=i,
            )
        return Z

    def _forward(self, network: OpenNetwork, rows: Array) -> Floats:
        """Return outputs (n, k) of n >= 1 rows (n, *shape), at most as many as the network accepts.

        Raises
        ------
        ModuleError, ShapeError
            If the network raises, or returns another result.
        """
        part, n = f"the {self._what}", len(rows)
        if network.rows is not None and n < network.rows:
            rows = np.concatenate((rows, np.zeros((network.rows - n, *rows.shape[1:]), rows.dtype)))
        try:
            outputs = network.forward(rows)
        except OnepassError:
            raise
        except Exception as error:  # a user's network may raise anything
            raise ModuleError(
                f"{part} must accept rows of shape {rows.shape[1:]}, got {type(error).__name__}: "
                f"{str(error).strip()[:300]}. Pass rows of the shape and range that it accepts; "
                "for flat rows, pass shape=..."
            ) from error
        width = self.n_features_out_ or None
        Z: Floats = (
            outputs.reshape(len(outputs), -1)[:n] if outputs.ndim and outputs.size else outputs
        )
        if (
            Z.ndim != 2
            or not Z.size
            or len(outputs) != len(rows)
            or width not in {None, Z.shape[1]}
        ):
            raise ShapeError(
                f"{part} must return {width or 'one or more'} numbers for each of {len(rows)} "
                f"rows, got an output of shape {outputs.shape}. The first axis must count rows."
            )
        return Z

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features have the dtype of the network
        return tags

    # -- copies --------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_opened", None)
        return state

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the representation of an estimator, with only the class name of the network."""
        shown = copy.copy(self)
        for name in self._outside:
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, os.PathLike)):
                setattr(shown, name, _Placeholder(type(value).__name__))
        return str(BaseEstimator.__repr__(shown, N_CHAR_MAX))

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the same network."""
        copied = type(self)(**self.get_params(deep=False))
        for name in ("_opened", "_sklearn_output_config"):
            if name in vars(self):
                copied.__dict__[name] = copy.copy(getattr(self, name))
        return copied

    # -- identity of the network -------------------------------------------------------------------

    def _network(self) -> OpenNetwork:
        """Return the network; open it at first use, and again if it may have changed."""
        key = self._key()
        cached = vars(self).get("_opened")
        if cached is not None and cached[0] == key:
            opened: OpenNetwork = cached[1]
            return opened
        network = self._open()
        if hasattr(self, "digest_"):
            if network.digest != self.digest_:
                raise ParameterError(self._digest_error(network.digest))
            if not _nearly_equal(self.trial_, self._trial_outputs(network)):
                raise ParameterError(
                    f"the {self._what} must return the same outputs as when learning began, got "
                    "other outputs with the same digest. Create it with the same layers and "
                    "settings; for an ONNX file, keep its weight files in the same folder."
                )
        self._opened = key, network
        return network

    def _trial_outputs(self, network: OpenNetwork) -> Floats:
        """Return the outputs for a row of noise; check that they are reproducible.

        Raises
        ------
        ParameterError
            If the row has other outputs in a second evaluation, or together with another row.
        """
        noise = np.random.default_rng(0).random((2, *self.shape_), dtype=np.float32)
        if network.integer_dtype is not None:
            noise = np.round(noise)  # 0 and 1 are valid for most indices
        several = (network.rows or int(self.batch_size)) > 1
        alone: Floats = self._forward(network, noise[:1])[0]
        again = self._forward(network, noise[:1])[0]
        together = self._forward(network, noise)[0] if several else alone
        for other, when in ((again, "evaluated again"), (together, "evaluated with another row")):
            if not _nearly_equal(alone, other):
                raise ParameterError(
                    "the outputs for a row must be reproducible and independent of other rows, got "
                    f"other outputs when {when}. Disable random layers and batch statistics; with "
                    "batch statistics, batch_size=1 evaluates each row by itself."
                )
        return alone

    def _digest_error(self, got: str) -> str:
        return (
            f"the {self._what} must be the one used when learning began, with digest "
            f"{self.digest_[:12]}, got digest {got[:12]}. Pass the original network: the learned "
            "state depends on its features."
        )

    @property
    def _unlike(self) -> str:
        """How the network passed on loading differs from the saved one; empty if it does not."""
        if not hasattr(self, "digest_"):
            return ""
        try:
            digest = self._digest()
        except OnepassError as error:
            return str(error)
        return "" if digest == self.digest_ else self._digest_error(digest)

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file are consistent."""
        if not hasattr(self, "n_features_in_"):
            return True
        digest, shape, trial = (getattr(self, name, None) for name in self._draws)
        return (
            type(digest) is str
            and type(shape) is tuple
            and all(type(k) is int and k > 0 for k in shape)
            and math.prod(shape) == self.n_features_in_
            and isinstance(trial, np.ndarray)
            and trial.dtype.kind == "f"
            and trial.ndim == 1
        )


class _Placeholder(NamedTuple):
    """The class name of an object in place of its representation."""

    name: str

    def __repr__(self) -> str:
        return f"{self.name}(...)"

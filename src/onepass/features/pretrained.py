"""Features of a pretrained network, whose weights are fixed.

A network with fixed weights is a fixed function of a row, as random units are; the layer before
the last one of a network trained on other images is a far richer one. An exact learner behind it,
such as recursive least squares, learns classes and tasks in one pass without forgetting [1, 2].

Streams give rows as flat numbers; they are reshaped to the input of the network. Model files do not
contain the network, but its SHA-256 digest and its output for a row of noise. The latter shows
whether the network is deterministic, and both whether the network given on loading is the same.

[1] M. D. McDonnell, D. Gong, A. Parvaneh, E. Abbasnejad, A. van den Hengel, "RanPAC: Random
    projections and pre-trained models for continual learning", NeurIPS 2023.
[2] H. Zhuang, Z. Weng, H. Wei, R. Xie, K.-A. Toh, Z. Lin, "ACIL: Analytic class-incremental
    learning with absolute memorization and privacy protection", NeurIPS 2022.
"""

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from onepass import validation
from onepass.errors import (
    MergeError,
    ModuleError,
    NumericalError,
    OnepassError,
    ParameterError,
    ShapeError,
)
from onepass.features.random_features import Frozen
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.table import TableLike

__all__ = ["FrozenNetwork", "Opened"]


class Opened(NamedTuple):
    """A network that is ready to be asked."""

    ask: Callable[[Array], Any]
    """Outputs, an array of n rows, of an array (n, *shape)."""
    digest: str
    """SHA-256 of its weights or its file."""
    shape: tuple[int | None, ...] | None = None
    """The shape of a row, as far as it says one; None where a size may be any."""
    rows: int | None = None
    """The number of rows that it takes at once, if no other."""
    whole: np.dtype[Any] | None = None
    """The dtype of the whole numbers that it takes, if no others."""


def _formed(told: object, said: Sequence[int | None] | None, d: int, where: str) -> tuple[int, ...]:
    """The shape of a row of d numbers.

    Parameters
    ----------
    told : sequence of int, optional
        What the user said, or the shape in which the first rows came.
    said : sequence of int or None, optional
        What the network says of itself, None where a size may be any.
    d : int
        Numbers of a row.
    where : str
        Who asks, for messages.

    Returns
    -------
    tuple of int
        ``told`` if given, with as many leading axes of length 1 as ``said`` has; else ``said`` if
        but one size is open; else ``(d,)``.

    Raises
    ------
    ParameterError, ShapeError
        If these do not go together.

    Examples
    --------
    >>> _formed(None, (1, None, 28), 784, "ONNXFeatures")
    (1, 28, 28)
    """
    if told is not None:
        shape = _lined(_sizes(told, where), said)
        if said is not None and not _fits(shape, said):
            raise ParameterError(
                f"{where}: `shape` must be one that the network takes, {_shown(said)}, got "
                f"{shape}. Construct it without `shape`, or with one that fits."
            )
    elif said is None:
        shape = (d,)
    else:
        shape = _closed(said, d, where)
    if math.prod(shape) != d:
        raise ShapeError(
            f"{where}: rows must have {math.prod(shape)} numbers, as shape {shape} has, got {d} "
            "columns. Give rows of that width, or construct it with another `shape`."
        )
    return shape


def _check_shape(came: Sequence[int], known: Sequence[int] | None, where: str) -> None:
    """Refuse pictures of another shape than known; leading axes of length 1 are nothing."""
    if known is None or _bare(came) == _bare(known):
        return
    raise ShapeError(
        f"{where}: rows must have shape {tuple(known)}, as before or as `shape` says, got "
        f"{tuple(came)}. Bring the axes into that order, or start a new feature."
    )


def _sizes(told: object, where: str) -> tuple[int, ...]:
    if not isinstance(told, (tuple, list)) or not told:
        raise ParameterError(
            f"{where}: `shape` must be a tuple of sizes, such as (3, 32, 32), got {told!r}. "
            "Construct it with one."
        )
    return tuple(validation.whole(k, "shape", where, low=1) for k in told)


def _fits(shape: Sequence[int], said: Sequence[int | None]) -> bool:
    return len(shape) == len(said) and all(
        open_ is None or k == open_ for k, open_ in zip(shape, said, strict=True)
    )


def _lined(shape: tuple[int, ...], said: Sequence[int | None] | None) -> tuple[int, ...]:
    """A shape with the leading axes of length 1 that the network has."""
    if said is None or len(said) == len(shape):
        return shape
    bare = _bare(shape)
    return (1,) * (len(said) - len(bare)) + bare


def _closed(said: Sequence[int | None], d: int, where: str) -> tuple[int, ...]:
    """What the network says, one open size being what is left of d."""
    if sum(k is None for k in said) > 1:
        raise ParameterError(
            f"{where}: `shape` must be given for a network whose rows may have many, {_shown(said)}"
            f", got none for {d} columns. Construct it with `shape`, such as (3, 32, 32)."
        )
    rest = max(1, math.prod(k for k in said if k is not None))
    return tuple(max(1, d // rest) if k is None else k for k in said)


def _bare(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(int(k) for k in shape)
    while len(sizes) > 1 and sizes[0] == 1:
        sizes = sizes[1:]
    return sizes


def _shown(said: Sequence[int | None]) -> str:
    sizes = ", ".join("any" if k is None else str(k) for k in said)
    return f"({sizes}{',' if len(said) == 1 else ''})"


_ALIKE = 0.03  # of the largest output: more than devices and half precision differ


def _alike(one: Floats, two: Floats) -> bool:
    """Whether two outputs are the same but for rounding, on whatever device.

    Parameters
    ----------
    one, two : ndarray of shape (k,)

    Examples
    --------
    >>> sum([_alike(np.array([1.0, 2.0]), np.array([1.001, 2.0]))])
    1
    """
    if one.shape != two.shape:
        return False
    a, b = (np.nan_to_num(each.astype(np.float64)) for each in (one, two))
    size = max(float(np.abs(each).max(initial=0.0)) for each in (a, b))
    return float(np.abs(a - b).max(initial=0.0)) <= _ALIKE * size


_SMALL = {"u1", "i1", "f2"}  # dtypes that float32 holds to the last bit


class FrozenNetwork(Frozen):
    """A feature that asks a network; it never learns, and no file holds it.

    A new one brings ``_key``, ``_open`` and ``_digest``, and the parameters ``shape`` and
    ``batch_size``. What is opened is kept beside what is learned: it is in no copy and no file.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("digest_", "shape_", "trial_")
    _what: ClassVar[str] = "module"

    _who: ClassVar[str]
    shape: tuple[int, ...] | None
    batch_size: int
    digest_: str
    shape_: tuple[int, ...]
    trial_: Floats
    _opened: tuple[tuple[Hashable, ...], Opened]

    # -- hooks of what asks --------------------------------------------------------------------

    @abstractmethod
    def _key(self) -> tuple[Hashable, ...]:
        """What changes whenever the network may have; cheap."""

    @abstractmethod
    def _open(self) -> Opened:
        """The network, ready to be asked."""

    @abstractmethod
    def _digest(self) -> str:
        """SHA-256 of the network as it is now, as a hexadecimal number."""

    # -- what comes out ------------------------------------------------------------------------

    @property
    def n_features_out_(self) -> int:
        """The numbers that the network gives for a row; 0 before it was asked."""
        return len(getattr(self, "trial_", ()))

    def transform(self, X: TableLike) -> Floats:
        """The network's outputs for the rows, also before anything was learned.

        Once a table with named columns was learned, columns are taken in its order.

        Parameters
        ----------
        X : array-like of shape (n, d), or (n, *shape)

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        if hasattr(self, "n_features_in_"):
            return super().transform(X)
        self._network()  # so that it is opened once, not by each copy
        fresh = clone(self)
        read = fresh.read_rows(X, f"{self._who}.transform", learning=True)
        outputs: Floats = fresh.take(read, None)[0]
        return outputs

    def read_rows(self, X: TableLike, where: str, *, learning: bool) -> Floats:
        """Rows, of whatever shape the network takes, as a finite matrix."""
        form = np.shape(X)[1:] if hasattr(X, "shape") else ()
        if len(form) > 1:
            known = getattr(self, "shape_", self.shape)
            _check_shape(form, known, where)
            if known is None and learning:
                self.shape_ = tuple(int(k) for k in form)
            array = np.asarray(X)
            X = array.reshape(len(array), math.prod(form))
        dtype = getattr(X, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.str[1:] in _SMALL:
            X = np.asarray(X, dtype=np.float32)
        return super().read_rows(X, where, learning=learning)

    def read_row(
        self, x: ArrayLike | Mapping[str, object], where: str, *, learning: bool
    ) -> Floats:
        """One row as a matrix of one row."""
        if hasattr(x, "shape") and len(np.shape(x)) > 1:
            return self.read_rows(np.asarray(x)[None], where, learning=learning)
        return super().read_row(x, where, learning=learning)

    def differs(self, other: Self) -> str:
        """Where another network was asked."""
        if not (hasattr(self, "digest_") and hasattr(other, "digest_")):
            return ""
        if (self.digest_, self.shape_) == (other.digest_, other.shape_) and _alike(
            self.trial_, other.trial_
        ):
            return ""
        return f"its {self._what} is another. Give both the same"

    # -- hooks of what is learned --------------------------------------------------------------

    def _start(self, d: int) -> None:
        validation.whole(self.batch_size, "batch_size", self._who, low=1)
        network = self._network()
        told = self.shape if self.shape is not None else getattr(self, "shape_", None)
        self.shape_ = _formed(told, network.shape, d, self._who)
        self.trial_ = self._tried(network)
        self.digest_ = network.digest

    def _widen(self, d: int) -> None:
        raise ShapeError(
            f"{self._who}.grow: rows must have {self.n_features_in_} numbers, as in the first "
            f"block, got {d}. What goes into a network does not grow; start a new feature."
        )

    def _join(self, other: Self, at: Array, known: int) -> Array:
        del known
        reason = self.differs(other)
        if reason or not np.array_equal(at, np.arange(self.n_features_in_)):
            raise MergeError(
                f"{self._who}.merge: both must give a row the same features, but "
                f"{reason or 'columns came in another order. Give both the same'}."
            )
        return np.arange(self.n_features_out_)

    def _seen(self, X: Floats) -> Floats:
        network, rows = self._network(), X.reshape(len(X), *self.shape_)
        step = network.rows or int(self.batch_size)
        parts = [self._asked(network, rows[i : i + step]) for i in range(0, len(rows), step)]
        Z: Floats = np.concatenate([np.empty((0, len(self.trial_)), self.trial_.dtype), *parts])
        finite = np.isfinite(Z)
        if not finite.all():
            i, j = np.argwhere(~finite)[0].tolist()
            raise NumericalError(
                f"{self._who}: features must be finite, got {Z[i, j]} in row {i}, feature "
                f"{self._letter}{j}, of a row with numbers up to {np.abs(X[i]).max():.3g}. Leave "
                f"the row out, or give numbers of the size that the {self._what} was trained with."
            )
        return Z

    def _asked(self, network: Opened, rows: Array) -> Floats:
        """Outputs (n, k) of n >= 1 rows (n, *shape), no more than the network takes at once.

        Raises
        ------
        ModuleError, ShapeError
            If it raises, or gives anything else.
        """
        where, n = f"{self._who}: the {self._what}", len(rows)
        if network.rows is not None and n < network.rows:
            rows = np.concatenate((rows, np.zeros((network.rows - n, *rows.shape[1:]), rows.dtype)))
        try:
            said = network.ask(rows)
        except OnepassError:
            raise
        except Exception as wrong:  # whatever a user's network makes of rows
            raise ModuleError(
                f"{where} must answer rows of shape {rows.shape[1:]}, got "
                f"{type(wrong).__name__} from it: {str(wrong).strip()[:300]}. Give rows of the "
                "shape and size that it takes; where they come flat, say it: shape=..."
            ) from wrong
        width = self.n_features_out_ or None
        Z: Floats = said.reshape(len(said), -1)[:n] if said.ndim and said.size else said
        if Z.ndim != 2 or not Z.size or len(said) != len(rows) or width not in {None, Z.shape[1]}:
            raise ShapeError(
                f"{where} must give {width or 'one or more'} numbers for each of {len(rows)} rows, "
                f"got an output of shape {said.shape}. Let it answer each row, with the rows along "
                "the first axis."
            )
        return Z

    # -- copies --------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_opened", None)
        return state

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """As any estimator, without the pages that a network fills."""
        shown = copy.copy(self)
        for name in self.outside:
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, os.PathLike)):
                setattr(shown, name, _Shown(type(value).__name__))
        return str(BaseEstimator.__repr__(shown, N_CHAR_MAX))

    def __sklearn_clone__(self) -> Self:
        """One that has learned nothing and asks the very same network, which nobody changes."""
        twin = type(self)(**self.get_params(deep=False))
        if "_opened" in vars(self):
            twin.__dict__["_opened"] = self._opened
        return twin

    # -- the same network ----------------------------------------------------------------------

    def _network(self) -> Opened:
        """What is asked, opened when first needed, and again when it may have changed."""
        key = self._key()
        held = vars(self).get("_opened")
        if held is not None and held[0] == key:
            opened: Opened = held[1]
            return opened
        network = self._open()
        if hasattr(self, "digest_"):
            if network.digest != self.digest_:
                raise ParameterError(f"{self._who}: {self._unlike_digest(network.digest)}")
            if not _alike(self.trial_, self._tried(network)):
                raise ParameterError(
                    f"{self._who}: the {self._what} must answer as it did when learning began, "
                    "got other outputs from one of the same digest. Build it as it was built "
                    "then, of the same layers and settings; a file of ONNX beside the weights that "
                    "lay beside it."
                )
        self._opened = key, network
        return network

    def _tried(self, network: Opened) -> Floats:
        """Its outputs for a row of noise, which are the same for all time.

        Raises
        ------
        ParameterError
            If the row has other outputs when it is asked again, or when another is beside it.
        """
        noise = np.random.default_rng(0).random((2, *self.shape_), dtype=np.float32)
        if network.whole is not None:
            noise = np.round(noise)  # 0 or 1, which most indices may be
        several = (network.rows or int(self.batch_size)) > 1
        alone: Floats = self._asked(network, noise[:1])[0]
        again = self._asked(network, noise[:1])[0]
        beside = self._asked(network, noise)[0] if several else alone
        for other, when in ((again, "it is asked once more"), (beside, "another row is beside it")):
            if not _alike(alone, other):
                raise ParameterError(
                    f"{self._who}: a network must say the same of a row each time, whatever other "
                    f"rows are asked with it, got another answer when {when}. Let it draw no lots "
                    "and take no statistics of a batch; for the latter, batch_size=1 asks each row "
                    "alone."
                )
        return alone

    def _unlike_digest(self, came: str) -> str:
        return (
            f"the {self._what} must be the one that was there when learning began, of digest "
            f"{self.digest_[:12]}, got one of digest {came[:12]}. Hand in the network as it was: "
            "what was learned is about its features."
        )

    @property
    def _unlike(self) -> str:
        """In what the network that was handed in again is not the one of before; empty if not."""
        if not hasattr(self, "digest_"):
            return ""
        try:
            digest = self._digest()
        except OnepassError as wrong:
            return str(wrong)
        return "" if digest == self.digest_ else self._unlike_digest(digest)

    @property
    def _sound(self) -> bool:
        """Whether what a file says fits together; what has another type does not."""
        if not hasattr(self, "n_features_in_"):
            return True
        digest, shape, trial = (getattr(self, name, None) for name in self._drawn)
        return (
            type(digest) is str
            and type(shape) is tuple
            and all(type(k) is int and k > 0 for k in shape)
            and math.prod(shape) == self.n_features_in_
            and isinstance(trial, np.ndarray)
            and trial.dtype.kind == "f"
            and trial.ndim == 1
        )


class _Shown(NamedTuple):
    """Something by the name of its class."""

    name: str

    def __repr__(self) -> str:
        return f"{self.name}(...)"

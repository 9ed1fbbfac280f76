"""A torch module as a function f(x; w) of one flat vector of the weights that learn.

For rows x_1 … x_n with c outputs each, and w ∈ ℝᵖ the concatenated weights that learn:

    f(x; w) ∈ ℝⁿˣᶜ       and       J[i·c + k, :] = ∂ f_k(x_i; w) / ∂w        J ∈ ℝⁿᶜˣᵖ

so that G = Jᵀ (p, n·c) is the matrix of gradients in equation (7) of the extended ORFit paper, with
the c outputs of a row in consecutive columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from onepass import linalg
from onepass.nn.batch import Batch, RowsLike, batch
from onepass.nn.function import (
    Function,
    ReentrantLock,
    refuse_batch_statistics,
    refuse_max_norm,
    synchronized,
    warn_training_mode,
)
from onepass.nn.jacobian import Derivative
from onepass.nn.probe import Probe, linear_in_weights
from onepass.nn.selection import select


class Network:
    """A torch module as a function f(x; w) of one flat vector w of the weights that learn.

    The module is evaluated in evaluation mode, whatever its training flag: batch normalisation uses
    its running statistics, dropout is off. Flags, frozen parameters, ``grad``, ``requires_grad``
    and buffers do not change; changes of buffers or attributes by ``forward`` are undone. Only
    ``set_weights`` changes parameters, and only those that learn.

    A module must be deterministic and treat rows independently. Both are tested on the first rows.

    Parameters
    ----------
    module : torch.nn.Module
        On one device; the parameters that learn must have one real dtype, such as half precision.
    learns : {"all", "last"}, str or sequence of str, default "all"
        ``"all"``: every parameter that requires grad. ``"last"``: those of the last layer that has
        parameters, which must produce the outputs. Otherwise names or patterns of parameters or
        layers: ``"head"``, ``"*.bias"``. Parameters that do not require grad are frozen. Shared
        parameters count once.
    last : str, optional
        Name of the argument that selects the last layer. Default: ``"learns"`` if it is "last".

    Attributes
    ----------
    module : torch.nn.Module
    columns : mapping of str to list of str
        Column names of the tables that were learned, by path in the input.
    names : tuple of str
        The parameters that learn, in the order of w.
    shapes : tuple of tuple of int
    slices : mapping of str to slice
        Position of each parameter in w.
    layers : mapping of str to tuple of slice
        Positions of the weights of each layer in w; ``""`` is the module itself.
    p : int
        Number of weights that learn.

    Raises
    ------
    ParameterError
        If no parameter is selected, a name is unknown, or (with the first rows) the module mixes
        rows or is random.
    TypeMismatchError
        If ``module`` is not a module, or its weights are not real numbers of one dtype.

    Warns
    -----
    ModuleModeWarning
        With the first rows, if the module is in training mode and has dropout or batch
        normalisation.

    Examples
    --------
    >>> import torch
    >>> net = Network(torch.nn.Linear(2, 1, bias=False))
    >>> net.set_weights(torch.tensor([1.0, 3.0]))
    >>> outputs, J = net.jacobian([[2.0, 5.0], [1.0, 0.0]])
    >>> J.tolist()
    [[2.0, 5.0], [1.0, 0.0]]
    >>> net.outputs([[2.0, 5.0]]).item()
    17.0
    """

    function_class: ClassVar[type[Function]] = Function

    def __init__(
        self,
        module: torch.nn.Module,
        learns: str | Sequence[str] = "all",
        *,
        last: str | None = None,
    ) -> None:
        self._selection = select(module, learns)
        refuse_batch_statistics(module)
        refuse_max_norm(module)
        self.module = module
        self.columns: Mapping[str, list[str]] = {}
        self.names = self._selection.names
        self.shapes = self._selection.shapes
        self.p = self._selection.p
        self._function = self.function_class(module, self._selection)
        self._derivative = Derivative(self._function)
        self._probe = Probe(self._function, last="learns" if learns == "last" else last)
        self._warned = False
        self.lock = ReentrantLock()

    @property
    def slices(self) -> Mapping[str, slice]:
        """Position of each parameter in w."""
        return self._selection.slices

    @property
    def layers(self) -> Mapping[str, tuple[slice, ...]]:
        """Positions of the weights of each layer in w."""
        return self._selection.layers

    @property
    def parameters(self) -> tuple[torch.nn.Parameter, ...]:
        """The parameters that learn."""
        return self._selection.parameters

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights that learn."""
        return self._selection.parameters[0].dtype

    @property
    def device(self) -> torch.device:
        """The device of the module."""
        return self._selection.parameters[0].device

    @property
    def like(self) -> Tensor:
        """An empty tensor in the working precision, float32 for half precision, on the device."""
        return linalg.widened(torch.empty(0, dtype=self.dtype, device=self.device))

    # -- weights ----------------------------------------------------------------------------------

    def weights(self) -> Tensor:
        """Return a detached copy of w, of shape (p,)."""
        return torch.cat([each.detach().reshape(-1) for each in self._selection.parameters])

    @synchronized
    def set_weights(self, w: Tensor) -> None:
        """Write w (p,) into the module's parameters, in place."""
        parts = w.detach().split(self._selection.sizes)
        with torch.no_grad():
            for each, part in zip(self._selection.parameters, parts, strict=True):
                each.copy_(part.view(each.shape))

    # -- rows -------------------------------------------------------------------------------------

    @synchronized
    def prepare(self, x: RowsLike) -> Batch:
        """Validate and convert rows; every method accepts the result.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows: the first axis of each tensor. A tuple or list contains positional arguments of
            ``forward``, a dict keyword arguments. Real numbers are converted to the module's dtype;
            integers and booleans only if the module does not accept them. Named columns of tables
            are selected by name. Arrays are moved to the module's device.

        Returns
        -------
        rows : Batch
            ``len(rows)``, ``rows[i]`` (a block of one row), ``rows[i:j]``, iteration over rows.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If x does not consist of rows of finite numbers on the module's device.
        ColumnError
            If a table lacks columns that were learned, or has additional columns.
        ParameterError
            If the module mixes rows, is random, writes into its parameters, or its parameters were
            replaced.
        """
        if isinstance(x, Batch):
            return x
        self._function.read_module()
        with torch.inference_mode(mode=False):  # tensors of inference mode have no derivative
            rows = batch(x, self._function.input_dtype, self.device, self.columns)
        if not self._warned:
            self._warned = True
            warn_training_mode(self.module, stacklevel=3)
        return self._probe(rows)

    # -- the function -----------------------------------------------------------------------------

    @synchronized
    def outputs(self, x: RowsLike) -> Tensor:
        """Return the outputs f(x; w) of shape (n, c), without a graph.

        Parameters
        ----------
        x : rows, as for ``prepare``
            n rows. Outputs of shape (n,) become (n, 1); axes after the first are flattened.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows are invalid, the module fails on their shapes or dtypes, or does not return
            one tensor with n rows.
        """
        return self._function.outputs(self.prepare(x))

    @synchronized
    def is_linear(self, x: RowsLike) -> bool | None:
        """Return whether f is linear in w on these rows: see ``probe.linear_in_weights``.

        None if the rows are not informative, such as rows of zeros.
        """
        return linear_in_weights(self._function, self.prepare(x))

    @synchronized
    def jacobian(
        self, x: RowsLike, out: Tensor | None = None, c: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs f(x; w) (n, c) and the contiguous Jacobian J (n·c, p) at this w.

        Parameters
        ----------
        x : rows, as for ``prepare``
        out : Tensor, optional
            Contiguous buffer of the dtype of w with at least n·c rows of p; J is its first n·c
            rows. Reusing it avoids allocations.
        c : int, optional
            Required number of outputs per row; default: that of the first row, which takes one more
            forward pass.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            As for ``outputs``; or if a row has another number of outputs.
        """
        rows = self.prepare(x)
        with torch.inference_mode(mode=False):
            return self._derivative.jacobian(rows, out, c)

    @synchronized
    def gradient(self, x: RowsLike, v: Tensor | Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """Return the outputs f(x; w) (n, c) and Jᵀ vec(v) (p,), by one backward pass.

        Parameters
        ----------
        x : rows, as for ``prepare``
        v : Tensor of shape (n, c), or Callable
            A function of the detached outputs that returns such a tensor, such as minus the errors
            for the gradient of half the squared error.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            As for ``outputs``.
        """
        rows = self.prepare(x)
        with torch.inference_mode(mode=False):
            return self._derivative.gradient(rows, v)

    @synchronized
    def features(self, x: RowsLike) -> tuple[Tensor, Tensor | None]:
        """Return the outputs f(x; w) (n, c) and the features (n, p / c) that all outputs share.

        The features are None unless the weights that learn are those of one linear layer whose
        outputs are the module's.

        Parameters
        ----------
        x : rows, as for ``prepare``
        """
        rows = self.prepare(x)
        with torch.inference_mode(mode=False):
            return self._derivative.features(rows)

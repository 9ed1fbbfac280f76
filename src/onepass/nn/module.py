"""Module: any torch.nn.Module as a function f(x; w) of one flat vector of the weights that learn.

For rows x_1 … x_n and c outputs a row, with w ∈ ℝᵖ the weights that learn, side by side:

    f(x; w) ∈ ℝⁿˣᶜ       and       J[i·c + k, :] = ∂ f_k(x_i; w) / ∂w        J ∈ ℝⁿᶜˣᵖ

so that G = Jᵀ (p, n·c) is the matrix of gradients of the extended ORFit paper's equation (7), the
c outputs of a row being neighbours.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from onepass.nn.batch import Batch, RowsLike, batch
from onepass.nn.function import (
    Function,
    Turn,
    in_turn,
    refuse_batch_statistics,
    refuse_max_norm,
    warn_of_training,
)
from onepass.nn.jacobian import Derivative
from onepass.nn.probe import Probe, straight
from onepass.nn.selection import input_dtype, pieces, room, select
from onepass.types import ArrayLike
from onepass.validation import whole

__all__ = ["Network"]


class Network:
    """A torch module as a function f(x; w) of one flat vector w of those weights that learn.

    The module is asked as in evaluation mode, whatever its training flag: batch normalisation uses
    its running statistics, dropout is off. Learning row by row has no batch statistics. Flags,
    frozen parameters, ``grad``, ``requires_grad`` and buffers stay as they are; what a module
    writes into its buffers or attributes while it answers is undone. Only ``set_weights`` and
    ``move`` write, and only into the parameters that learn.

    A module must answer each row alone, and the same each time. Both are tried on the first rows.

    Parameters
    ----------
    module : torch.nn.Module
        On one device; the parameters that learn of one real dtype, half precision included.
    learns : {"all", "last"}, str or sequence of str, default "all"
        ``"all"``: every parameter that requires grad. ``"last"``: those of the last layer that has
        parameters, which must produce the outputs. Else names of parameters or layers, or patterns:
        ``"head"``, ``"*.bias"``. Parameters that do not require grad are frozen. Shared parameters
        count once.
    chunk : int, optional
        How many rows of J are computed at once, >= 1. Default: as many as keep scratch memory
        beside J within 64 MiB (256 MiB on an accelerator), and at least one.
    where : str, default "op.nn"
        What the user called, for messages.
    last : str, optional
        Name of the argument that selects the last layer. Default: ``"learns"`` if it is "last".

    Attributes
    ----------
    module : torch.nn.Module
    columns : mapping of str to list of str
        The names of the columns of tables that were learned, by place in the input.
    names : tuple of str
        The parameters that learn, in the order of w.
    shapes : tuple of tuple of int
    slices : mapping of str to slice
        Where each parameter lies in w.
    layers : mapping of str to tuple of slice
        Where the weights of each layer lie in w; ``""`` is the module itself.
    p : int
        Number of weights that learn.

    Raises
    ------
    ParameterError
        If nothing is left to learn, a name is unknown, parameters lie on several devices, or
        (with the first rows) if the module mixes rows or draws lots.
    TypeMismatchError
        If it is no module, or its weights are not real numbers of one dtype.

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
    >>> said, J = net.jacobian([[2.0, 5.0], [1.0, 0.0]])
    >>> J.tolist()
    [[2.0, 5.0], [1.0, 0.0]]
    >>> net.move(torch.tensor([0.5, 0.0]))
    >>> net.outputs([[2.0, 5.0]]).item()
    18.0
    """

    def __init__(
        self,
        module: torch.nn.Module,
        learns: str | Sequence[str] = "all",
        *,
        chunk: int | None = None,
        where: str = "op.nn",
        last: str | None = None,
    ) -> None:
        if chunk is not None:
            chunk = whole(chunk, "chunk", where, low=1)
        self._selection = select(module, learns, where)
        refuse_batch_statistics(module, where)
        refuse_max_norm(module, where)
        self.module = module
        self.columns: Mapping[str, list[str]] = {}
        self.names = self._selection.names
        self.shapes = self._selection.shapes
        self.p = self._selection.p
        self._where = where
        self._function = Function(module, self._selection, where)
        self._derivative = Derivative(self._function, chunk)
        self._probe = Probe(self._function, last="learns" if learns == "last" else last)
        self._warned = False
        self.turn = Turn()

    @property
    def slices(self) -> Mapping[str, slice]:
        """Where each parameter lies in w."""
        return self._selection.slices

    @property
    def layers(self) -> Mapping[str, tuple[slice, ...]]:
        """Where the weights of each layer lie in w."""
        return self._selection.layers

    @property
    def parameters(self) -> tuple[torch.nn.Parameter, ...]:
        """The module's own that learn."""
        return self._selection.parameters

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights that learn."""
        return self._selection.parameters[0].dtype

    @property
    def device(self) -> torch.device:
        """The device on which the module lies."""
        return self._selection.parameters[0].device

    # -- weights ----------------------------------------------------------------------------------

    def weights(self) -> Tensor:
        """A copy of w, of shape (p,), detached."""
        return torch.cat([each.detach().reshape(-1) for each in self._selection.parameters])

    @in_turn
    def set_weights(self, w: ArrayLike | Tensor) -> None:
        """Write w into the module's own parameters, in place.

        Parameters
        ----------
        w : Tensor or array of shape (p,)

        Raises
        ------
        ShapeError, TypeMismatchError
            If w is no vector of p real numbers on the module's device.
        """
        parts = pieces(w, "w", self._selection, self._where)
        with torch.no_grad():
            for each, part in zip(self._selection.parameters, parts, strict=True):
                each.copy_(part)

    @in_turn
    def move(self, step: ArrayLike | Tensor) -> None:
        """Add a step to w, in place.

        Parameters
        ----------
        step : Tensor or array of shape (p,)

        Raises
        ------
        ShapeError, TypeMismatchError
            If it is no vector of p real numbers on the module's device.
        """
        parts = pieces(step, "step", self._selection, self._where)
        with torch.no_grad():
            torch._foreach_add_(list(self._selection.parameters), parts)

    # -- rows -------------------------------------------------------------------------------------

    @in_turn
    def prepare(self, x: RowsLike, where: str | None = None) -> Batch:
        """Rows as the module takes them, looked over once; every method takes these as well.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows: the first axis of each tensor. A tuple or list holds positional arguments of
            ``forward``, a dict keyword arguments. Real numbers are converted to the module's dtype;
            whole numbers and truth values only where the module does not take them as they are.
            Named columns of tables are found by name. Arrays go to the module's device.
        where : str, optional
            What the user called, for messages.

        Returns
        -------
        rows : Batch
            ``len(rows)``, ``rows[i]`` (a block of one row), ``rows[i:j]``, iteration over rows.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If these are no rows of finite numbers on the module's device.
        ColumnError
            If a table lacks columns that were learned, or has others.
        ParameterError
            If the module mixes rows, draws lots, writes into its parameters, or had them replaced.
        """
        if isinstance(x, Batch):
            return x
        where = where or self._where
        self._function.read_module()
        with torch.inference_mode(mode=False):  # else these rows could have no derivative
            rows = batch(x, input_dtype(self.module), self.device, where, self.columns)
        if not self._warned:
            self._warned = True
            warn_of_training(self.module, where, stacklevel=3)
        return self._probe(rows, input_dtype(self.module))

    # -- the function -----------------------------------------------------------------------------

    @in_turn
    def outputs(self, x: RowsLike) -> Tensor:
        """f(x; w) of shape (n, c), without a derivative.

        Parameters
        ----------
        x : rows, as for ``prepare``
            Outputs of shape (n,) become (n, 1); all axes after the first become one.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows are refused, or the module fails on their shapes or dtypes, or gives no
            one tensor with n rows.
        """
        return self._function.outputs(self.prepare(x))

    @in_turn
    def look_up(self, x: RowsLike) -> None:
        """Refuse rows that ask for a place that a table of the module has not: ``ShapeError``."""
        self._function.look_up(self.prepare(x))

    @in_turn
    def is_linear(self, x: RowsLike) -> bool | None:
        """Whether f is linear in w, as far as it shows for these rows: see ``probe.straight``.

        None where f is the same for all w that were tried, as for rows of zeros.
        """
        return straight(self._function, self.prepare(x))

    @in_turn
    def jacobian(
        self, x: RowsLike, out: Tensor | None = None, c: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """f(x; w) of shape (n, c), and J of shape (n·c, p), contiguous, at the present w.

        Parameters
        ----------
        x : rows, as for ``prepare``
        out : Tensor, optional
            Contiguous memory for J, of the dtype of w and at least n·c rows of p; a learner that
            gives it each time spares the mapping of new memory. J is its first n·c rows.
        c : int, optional
            The outputs that a row must have.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            As ``outputs``; or if ``out`` or ``c`` does not fit.
        """
        rows = self.prepare(x)
        where = rows.where or self._where
        with torch.inference_mode(mode=False):
            return self._derivative.jacobian(
                rows, lambda height: room(height, out, self._selection, where, c and rows.n * c)
            )

    @in_turn
    def gradient(self, x: RowsLike, v: Tensor | Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """f(x; w) of shape (n, c), and Jᵀ vec(v) of shape (p,), by one backward pass.

        Parameters
        ----------
        x : rows, as for ``prepare``
        v : Tensor of shape (n, c), or Callable
            A function gets the outputs, without their graph, and gives such a tensor: minus the
            errors for the gradient of half the squared error.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            As ``outputs``; or if v has not the shape of the outputs.
        """
        rows = self.prepare(x)
        with torch.inference_mode(mode=False):
            return self._derivative.gradient(rows, v)

    @in_turn
    def features(self, x: RowsLike) -> tuple[Tensor, Tensor | None]:
        """f(x; w) of shape (n, c), and the features (n, p / c) that all outputs share.

        None in place of the features if the weights that learn are not those of one linear layer
        whose outputs are the module's.

        Parameters
        ----------
        x : rows, as for ``prepare``
        """
        rows = self.prepare(x)
        with torch.inference_mode(mode=False):
            return self._derivative.features(rows)

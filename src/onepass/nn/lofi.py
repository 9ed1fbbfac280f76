"""LO-FI: the extended Kalman filter with a precision that is diagonal plus low rank.

For long noisy streams: what is known of p weights is kept in p (m + 2) numbers, however many rows
come, as P⁻¹ = diag(Υ) + W Wᵀ with W (p × m). A row is taken in by P, as by any Kalman filter, its
gradient becomes a column of W, and the column that says least goes into the diagonal
(:mod:`onepass.nn.precision`). From row to row, by w ← w₀ + γ (w − w₀) + N(0, q I), P becomes
γ² P + q I, exactly. [1] lets weights decay towards 0; here it is towards the initial weights w₀,
where a network is a network. q = (1 − γ²) · prior is its steady state. Until m columns are full
nothing is left out, and the filter is the EKF.
Cost of a step: c backward passes, O(p (m + n c)²) time and O(p (m + n c)) memory.

[1] P. G. Chang, G. Durán-Martín, A. Shestopaloff, M. Jones, K. Murphy, "Low-rank extended Kalman
    filtering for online learning of neural networks from streaming data", CoLLAs 2023,
    arXiv 2305.19535; "diagonal LO-FI".
"""

from typing import Any, ClassVar

from onepass import validation
from onepass.errors import ParameterError
from onepass.nn.filtering import Taken
from onepass.nn.losses import LossName
from onepass.nn.precision import Precision
from onepass.nn.wandering import Wandering

__all__ = ["LoFi"]


class LoFi(Wandering):
    """Low-rank-plus-diagonal extended Kalman filter (LO-FI), for long noisy streams.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. It is asked as in evaluation mode.
    memory : int, default=10
        m >= 1, the columns of the low-rank part; what they cannot hold goes into the diagonal.
    noise : float, default=1.0
        R > 0, the variance of an answer, in squares of its unit; with "cross_entropy" 1 is the
        variance that a class has.
    process_noise : float, default=0.0
        q >= 0, the variance that each weight gains from row to row: above 0 the past counts less
        and less.
    prior : float, default=1.0
        Variance of each weight before the first row, > 0.
    decay : float, default=1.0
        γ in (0, 1]: by so much weights keep their distance to where they began. With
        ``process_noise = (1 − decay²) · prior`` what is known before a row stays as it is.
    loss : {"squared", "one_hot", "cross_entropy"}, default="squared"
        ``"squared"`` for numbers; for classes 0 … c − 1 ``"one_hot"``, regression of indicators, or
        ``"cross_entropy"`` by its Gauss–Newton form.
    learns : str or sequence of str, default="all"
        Which parameters learn: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether rows given together are linearised together, at the weights before all of them, and
        their time passes after them.
    chunk : int, optional
        How many rows of a Jacobian are computed at once; by default as many as fit 64 MiB.

    Attributes
    ----------
    network : Network
        The module as a function of one vector of weights.
    belief_ : Precision
        The precision of the weights for the next row.
    rows_seen_, rows_refused_ : int
        Rows given, and those left out because their errors or gradients were not finite.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is none of these.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> _ = torch.manual_seed(0)
    >>> net = op.nn.LoFi(torch.nn.Linear(20, 1).double(), memory=5, noise=0.01)
    >>> X = torch.randn(1000, 20).double()
    >>> y = X.sum(dim=1) + 0.1 * torch.randn(1000).double()
    >>> float((net.learn(X, y).predict(X) - y).square().mean().sqrt()) < 0.12
    True
    """

    arguments: ClassVar[tuple[str, ...]] = (
        *("memory", "noise", "process_noise", "prior", "decay"),
        *("loss", "learns", "block_update", "chunk"),
    )
    states: ClassVar[tuple[type, ...]] = (Precision,)

    def __init__(
        self,
        module: Any,
        memory: int = 10,
        noise: float = 1.0,
        process_noise: float = 0.0,
        prior: float = 1.0,
        decay: float = 1.0,
        *,
        loss: LossName = "squared",
        learns: Any = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        where = f"op.nn.{type(self).__name__}"
        self.memory = validation.whole(memory, "memory", where, low=1)
        if not validation.in_range(noise, "noise", where, low=0.0):
            raise ParameterError(
                f"{where}: `noise` must be above 0, since a row without noise is known with a "
                "precision that no number is, got 0. Use op.nn.EKF or op.nn.ORFit to fit exactly."
            )
        super().__init__(
            module,
            prior=prior,
            noise=noise,
            process_noise=process_noise,
            decay=decay,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )

    def _begin(self, c: int) -> Any:
        del c
        return Precision.start(self.network.p, self.memory, self.prior, self._like)

    def _measured(self, belief: Any, w: Any, e: Any, J: Any) -> Taken:
        return Taken(*belief.learned(w, J, e.reshape(-1), self.noise))

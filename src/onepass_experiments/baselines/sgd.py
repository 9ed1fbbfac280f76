"""SGD: stochastic gradient descent in one pass, one step per batch.

For a batch with mean loss L, velocity v, step size η and momentum μ:

    v ← μ v + ∇L(w),   w ← w − η v                                                           (1)

Cost: one forward and one backward pass per batch; memory for v, none without momentum.

H. Robbins, S. Monro, "A stochastic approximation method", 1951; L. Bottou, "Online learning and
stochastic approximations", 1998.
"""

from __future__ import annotations

from onepass_experiments.baselines.learner import Learner


class SGD(Learner):
    """Plain SGD, each batch once, without protection against forgetting.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, in its current mode. Parameters that require no gradient are unchanged.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        Loss, averaged over the batch: −log softmax, or half the squared error.
    step_size : float, optional
        η > 0. Default: 0.1 for cross entropy; required for the squared loss.
    momentum : float, default=0.0
        μ in [0, 1].

    Attributes
    ----------
    rows_seen_, visits_ : int
        Rows learned, and visits to rows; equal in one pass.
    rows_repeated_ : int
        Visits beyond the first.
    rows_stored_, max_rows_stored_ : int
        Rows stored now, and the maximum so far: 0.
    velocity_ : list of Tensor
        v, one tensor per parameter; empty without momentum.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> model = baselines.SGD(line, loss="squared", step_size=0.25)
    >>> model.learn([[2.0]], [6.0]).predict([[1.0]]).item()
    3.0
    """

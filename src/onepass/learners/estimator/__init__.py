"""Base classes of estimators, for arrays, dicts and data frames.

The protocol of online learning [1]: for each row the learner predicts, receives the target, and
learns from it. A subclass is a dataclass whose fields are its parameters, declares its learned
arrays (:mod:`onepass.declared`), implements these hooks, and inherits all public methods:

``_start(d, c)``              initialise the learned attributes, for d features and c outputs
``_learn(X, Y, s, class_mask)``  learn the rows **one after the other**; return the scores of each
                              row just before it was learned, shape (n, c)
``_scores(X)``                current scores of the rows, shape (n, c)
``_initial_prediction(row)``  prediction for a row before any row was learned (regressors only)
``_widen(d)``                 extend to d features; the new ones were zero in every row so far
``_add_outputs(at, c)``       extend to c outputs, the new ones in columns ``at`` (classifiers only)

The last two extend declared arrays with zeros; they are overridden if other values are needed. The
ranges of parameters are checked before rows are learned.

X (n, d), of any numeric dtype, and Y (n, c) are validated; s (n,) are the weights > 0 of the rows,
or None for ones; and class_mask (n, c) is True where a class was known before the row, or None if
all classes were known. ``rows_seen_`` counts these rows already. A parameter that determines both
``_start`` and ``_widen`` is stored by ``_start``, since it may change until then.

Optional hooks, described in :mod:`onepass.learners.estimator.learner`:

``_merging``, ``_merge``      whether and how learners are merged; without them, ``_unmergeable``
                              is the reason of the refusal
``_square``                   whether the state is quadratic in d, for a warning
``_prepare_single_rows``      sets ``_single``, which learns and predicts single rows

Learned attributes have names that end with an underscore. A hook never modifies an array that such
an attribute refers to: it assigns new arrays. So an error or an interrupt within a public method
restores the learner exactly as it was.

[1] "Online Learning", lecture notes: steps 0-5 and equation (1).
"""

from onepass.learners.estimator.classifier import Classifier
from onepass.learners.estimator.learner import Clusterer, Layout, Learner, Regressor

__all__ = ["Classifier", "Clusterer", "Layout", "Learner", "Regressor"]

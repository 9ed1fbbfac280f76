"""What all learners share: the verbs, over arrays, dicts and frames.

The protocol of online learning [1]: a row comes, the learner says its answer, the true answer is
revealed, the learner learns it. A learner brings a few hooks and gets every verb from here:

``_start(d, c)``            set what is learned to its beginning, for d features and c outputs
``_learn(X, Y, s, known)``  learn the rows **one after the other**; return what it would have said
                            of each just before learning it, shape (n, c)
``_scores(X)``              what it says of the rows now, shape (n, c)
``_unlearned(row)``         what it says of a row before it has learned any (`Classifier` has one)
``_widen(d)``               take new features, as if they had been zero in every row so far
``_add_outputs(at, c)``     take new outputs, at the columns ``at`` of now c (classifiers only)

X (n, d) and Y (n, c) have been checked; s (n,) are the weights of the rows, None for ones; and
known (n, c) says which classes were known at each row, None for regressors.

And, if it can be merged, what :mod:`onepass.learners.estimator.learner` asks for.

What is learned lives in attributes whose names end with an underscore. A hook never writes into an
array that such an attribute held when it was called: it makes new ones and assigns them. So an
error, or an interrupt, anywhere within a verb puts back the learner exactly as it was.

[1] "Online Learning", lecture notes: steps 0-5 and equation (1).
"""

from onepass.learners.estimator.classifier import Classifier
from onepass.learners.estimator.learner import Clusterer, Layout, Learner, Regressor
from onepass.serialization.state import learned, nbytes

__all__ = ["Classifier", "Clusterer", "Layout", "Learner", "Regressor", "learned", "nbytes"]

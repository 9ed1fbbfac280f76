"""The perceptron against Algorithm 1 of the notes and Novikoff's bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Perceptron as SklearnPerceptron

from onepass.errors import NumericalError, ParameterError
from onepass.learners.perceptron import Perceptron
from onepass.learners.sgd import SGDClassifier
from raising import raises

few_examples = settings(max_examples=25, deadline=None, derandomize=True)


def separable(n: int = 200, d: int = 4, seed: int = 0, gap: float = 0.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    u = rng.normal(size=d)
    u /= np.linalg.norm(u)
    X = X[np.abs(X @ u) >= gap]
    return X, np.where(X @ u >= 0, 1, -1)


def noisy(n: int = 200, d: int = 4, seed: int = 0) -> tuple[Any, Any]:
    X, y = separable(n, d, seed)
    return X, np.where(np.random.default_rng(seed + 1).random(n) < 0.1, -y, y)


def algorithm_1(X: Any, y: Any, eta: float, beta: Any) -> tuple[Any, list[int]]:
    """The notes, line by line."""
    predictions = []
    for x, target in zip(X, y, strict=True):
        predictions.append(1 if x @ beta >= 0 else -1)
        if predictions[-1] != target:
            beta = beta + eta * target * x
    return beta, predictions


@pytest.mark.parametrize("eta", [1.0, 0.3])
def test_perceptron_equals_algorithm_1(eta: float) -> None:
    X, y = noisy()
    model = Perceptron(eta, classes=[-1, 1])
    predictions = model.test_then_train(X, y)
    beta, expected = algorithm_1(X, y, eta, np.zeros(4))
    assert predictions.tolist() == expected
    np.testing.assert_allclose(model.coef_, beta[None], rtol=0, atol=1e-12)
    assert model.intercept_.tolist() == [0.0]
    assert model.mistakes_ == sum(np.array(expected) != y)
    assert model.rows_seen_ == 200


def test_random_start_equals_algorithm_1_from_random_beta() -> None:
    X, y = noisy()
    start = np.random.default_rng(7).standard_normal(4)
    model = Perceptron(initial="random", seed=7, classes=[-1, 1])
    assert model.predict_one(X[0]) == (1 if X[0] @ start >= 0 else -1)
    predictions = model.test_then_train(X, y)
    beta, expected = algorithm_1(X, y, 1.0, start)
    assert predictions.tolist() == expected
    np.testing.assert_allclose(model.coef_[0], beta, rtol=0, atol=1e-12)


def test_random_start_depends_on_seed_only() -> None:
    X, y = noisy(20)

    def started(seed: int | None, c: int = 2) -> Any:
        model = Perceptron(initial="random", seed=seed, classes=list(range(c)))
        return model.partial_fit(X[:0], y[:0], classes=range(c)).coef_

    assert (started(1) == started(1)).all()
    assert (started(None) == started(0)).all()
    assert (started(1) != started(2)).all()
    assert started(1, 3).shape == (3, 4)


def test_grown_features_have_same_random_start() -> None:
    X, y = noisy(60)
    X[:, 2:] = 0.0
    narrow = Perceptron(initial="random", seed=5, classes=[-1, 1]).partial_fit(X[:, :2], y).grow(4)
    wide = Perceptron(initial="random", seed=5, classes=[-1, 1]).partial_fit(X, y)
    np.testing.assert_allclose(narrow.coef_, wide.coef_, rtol=0, atol=1e-12)


def test_sign_of_zero_is_plus_one() -> None:
    x = np.array([1.0, 2.0])
    plus, minus = (Perceptron(classes=[-1, 1]).learn_one(x, y) for y in (1, -1))
    assert plus.mistakes_ == 0
    assert minus.mistakes_ == 1
    assert minus.coef_.tolist() == [[-1.0, -2.0]]
    assert Perceptron(classes=["a", "b"]).predict_one(x) == "b"


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [3, 12]])
def test_any_two_labels_equal_minus_and_plus_one(labels: list[Any]) -> None:
    X, y = noisy()
    named = np.array(labels)[(y + 1) // 2]
    a = Perceptron(classes=[-1, 1]).partial_fit(X, y)
    b = Perceptron(classes=labels).partial_fit(X, named)
    assert (a.coef_ == b.coef_).all()
    assert a.mistakes_ == b.mistakes_


@few_examples
@given(seed=st.integers(0, 2**31), gap=st.floats(0.1, 1.0), eta=st.floats(0.01, 100.0))
def test_mistakes_obey_convergence_theorem_of_novikoff(seed: int, gap: float, eta: float) -> None:
    X, y = separable(seed=seed, gap=gap)
    model = Perceptron(eta, classes=[-1, 1])
    for _ in range(5):  # the bound holds for any stream of these rows, however long
        model.partial_fit(X, y)
    assert model.mistakes_ <= (np.linalg.norm(X, axis=1).max() / gap) ** 2


def test_separable_rows_end_without_mistakes() -> None:
    X, y = separable(gap=0.5)
    model = Perceptron(classes=[-1, 1])
    for _ in range(50):
        model.partial_fit(X, y)
    before = model.mistakes_
    assert model.partial_fit(X, y).mistakes_ == before
    assert model.score(X, y) == 1.0


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_perceptron_equals_sgd_on_perceptron_loss(fit_intercept: bool) -> None:  # noqa: FBT001
    X, y = noisy()
    one = Perceptron(0.5, fit_intercept=fit_intercept, classes=[-1, 1])
    other = SGDClassifier(
        "perceptron", step="constant", step_size=0.5, fit_intercept=fit_intercept, classes=[-1, 1]
    )
    assert (one.test_then_train(X, y) == other.test_then_train(X, y)).all()
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_perceptron_equals_scikit_learn(fit_intercept: bool) -> None:  # noqa: FBT001
    X, y = noisy()
    first = int(np.argmax(y == -1))  # at score 0 scikit-learn learns both labels, the notes one
    X, y = X[first:], y[first:]
    peer = SklearnPerceptron(shuffle=False, fit_intercept=fit_intercept, eta0=0.7)
    peer.partial_fit(X, y, classes=[-1, 1])
    ours = Perceptron(0.7, fit_intercept=fit_intercept, classes=[-1, 1]).partial_fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, rtol=0, atol=1e-10)


def test_mistake_among_three_classes_moves_two_vectors() -> None:
    model = Perceptron(2.0, classes=[0, 1, 2])
    model.learn_one([1.0, 3.0], 0)  # predicted 2, the last of the tie
    assert model.coef_.tolist() == [[1.0, 3.0], [0.0, 0.0], [-1.0, -3.0]]
    model.learn_one([1.0, 3.0], 0)
    assert model.mistakes_ == 1


def test_first_row_without_given_classes_sets_label_only() -> None:
    model = Perceptron()
    assert model.predict_one([1.0, 2.0]) is None
    model.learn_one([1.0, 2.0], "a")
    assert model.mistakes_ == 1
    assert not model.weights_.any()
    model.learn_one([1.0, 2.0], "b")  # predicted a
    assert model.coef_.tolist() == [[1.0, 2.0]]


def test_third_class_splits_shared_weight_vector() -> None:
    X, y = noisy()
    two = Perceptron(classes=[-1, 1]).partial_fit(X, y)
    three = Perceptron(classes=[-1, 1]).partial_fit(X, y).partial_fit(X[:0], y[:0], classes=[0])
    beta = two.coef_[0]
    np.testing.assert_array_equal(three.coef_, [-beta / 2, np.zeros(4), beta / 2])


@few_examples
@given(
    seed=st.integers(0, 2**31),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    kinds=st.integers(1, 5),
    initial=st.sampled_from(["zeros", "random"]),
)
def test_block_boundaries_do_not_matter(
    seed: int, cuts: list[int], kinds: int, initial: str
) -> None:
    rng = np.random.default_rng(seed)
    X, y, s = rng.normal(size=(60, 3)), rng.integers(0, kinds, 60), rng.choice([0.0, 0.5, 2.0], 60)
    classes = [0, 9] if initial == "random" else None
    whole, cut = (Perceptron(initial=initial, classes=classes) for _ in range(2))
    predictions = whole.test_then_train(X, y, s)
    pieces = np.split(np.arange(60), sorted(cuts))
    parts = [cut.test_then_train(X[i], y[i], s[i]) for i in pieces if len(i)]
    assert np.concatenate(parts).tolist() == predictions.tolist()
    assert cut.mistakes_ == whole.mistakes_
    assert (cut.coef_ == whole.coef_).all()
    one = Perceptron(initial=initial, classes=classes)
    by_rows = []
    for x, label, weight in zip(X, y, s, strict=True):
        by_rows.append(one.predict_one(x))
        one.learn_one(x, label, weight)
    assert by_rows == predictions.tolist()


def test_mistakes_per_row_equal_prequential_error() -> None:
    X, y = noisy()
    model = Perceptron(classes=[-1, 1])
    predictions = model.test_then_train(X, y)
    assert model.mistakes_ / model.rows_seen_ == np.mean(predictions != y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"step_size": 0.0},
        {"step_size": float("nan")},
        {"initial": "ones"},
        {"initial": ["zeros"]},
        {"seed": 1},
        {"initial": "random", "seed": -1, "classes": [0, 1]},
        {"initial": "random", "seed": 1.5, "classes": [0, 1]},
        {"initial": "random"},
        {"initial": "random", "classes": [1]},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    X, y = noisy(10)
    model = Perceptron(**wrong)
    with pytest.raises(ParameterError, match=r"Perceptron\.\w+: `"):
        model.partial_fit(X, y)
    assert not hasattr(model, "weights_")


def test_overflowing_weights_are_refused_and_learner_unchanged() -> None:
    X, y = noisy(20)
    model = Perceptron(classes=[-1, 1]).partial_fit(X, y)
    before = model.coef_
    with raises(NumericalError, remedy="Scale"):
        model.partial_fit(X * 1e200, y)
    assert (model.coef_ == before).all()
    assert model.rows_seen_ == 20

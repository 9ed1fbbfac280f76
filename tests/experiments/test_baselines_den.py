"""DEN: each step computed by hand on small layers, and the complete method on digits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import onepass as op
from onepass.errors import (
    LabelError,
    NotFittedError,
    NumericalError,
    ParameterError,
    TypeMismatchError,
)
from onepass_experiments import baselines
from raising import raises

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from onepass_experiments.baselines.den import (  # noqa: E402  # noqa: E402
    FitOptions,
    Layers,
    all_weights,
    fit_layers,
    needed_units,
    new_unit_weights,
    path_weights,
    split,
)


def net(d: int = 3, hidden: tuple[int, ...] = (6, 5), c: int = 4) -> Any:
    torch.manual_seed(0)
    sizes = [d, *hidden]
    parts = [
        p for a, b in zip(sizes[:-1], hidden, strict=True) for p in (nn.Linear(a, b), nn.ReLU())
    ]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], c)).double()


def layers(*, heads: tuple[int, ...] = (1, 1, 2, 2)) -> Layers:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2), (3, 3), (4, 3)]
    weights = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    biases = [torch.randn(s[0], generator=generator, dtype=torch.float64) for s in shapes]
    stamps = (torch.tensor([1, 1, 2]), torch.tensor([1, 2, 1]))
    return Layers(tuple(weights), tuple(biases), stamps, torch.tensor(heads))


def rows(n: int = 10, classes: tuple[int, ...] = (2, 3)) -> Any:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(n, 2)))
    return x, torch.tensor(rng.choice(classes, n))


# -- layers ---------------------------------------------------------------------------------------


def test_class_is_predicted_by_the_units_of_its_task() -> None:
    some = layers(heads=(1, 2, 1, 0))
    x, _ = rows()
    old = some.without(tuple(s == 1 for s in some.stamps))
    outputs = some.class_outputs(x)
    torch.testing.assert_close(outputs[:, [0, 2]], old.forward(x)[:, [0, 2]])
    torch.testing.assert_close(outputs[:, 1], some.forward(x)[:, 1])
    assert bool((outputs[:, 3] == -torch.inf).all())


def test_new_units_do_not_change_predictions_of_earlier_classes() -> None:
    some = layers()
    x, _ = rows()
    with_new_units = some.with_new_units((2, 3), task=3, seed=0)
    assert [tuple(w.shape) for w in with_new_units.weights] == [(5, 2), (6, 5), (4, 6)]
    torch.testing.assert_close(with_new_units.class_outputs(x), some.class_outputs(x))
    smaller = with_new_units.without(tuple(s < 3 for s in with_new_units.stamps))
    for a, b in zip(smaller.weights, some.weights, strict=True):
        assert bool((a == b).all())


@pytest.mark.parametrize(
    ("paid", "moved"),
    [
        ({"sparsity": 0.5}, lambda u: u.sign() * (u.abs() - 0.05).clamp(min=0)),
        ({"shrinkage": 0.5}, lambda u: u / 1.05),
        ({}, lambda u: u),
    ],
)
def test_step_is_sgd_followed_by_the_proximal_operator(paid: dict[str, float], moved: Any) -> None:
    some, (x, y) = layers(), rows()
    free = all_weights(some, 2)
    found = fit_layers(
        some, (x, y), replace(free, **paid), task=2, step_size=0.1, epochs=1, batch=99,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    held = [w.clone().requires_grad_() for w in (*some.weights, *some.biases)]
    now = replace(some, weights=tuple(held[:3]), biases=tuple(held[3:]))
    loss = functional.cross_entropy(now.forward(x)[:, 2:], y - 2)
    gradients = torch.autograd.grad(loss, held)
    for i in range(2):
        torch.testing.assert_close(found.weights[i], moved(some.weights[i] - 0.1 * gradients[i]))
        torch.testing.assert_close(found.biases[i], some.biases[i] - 0.1 * gradients[i + 3])
    head = found.weights[2]
    torch.testing.assert_close(head[2:], moved(some.weights[2] - 0.1 * gradients[2])[2:])
    assert bool((head[:2] == some.weights[2][:2]).all())  # classes of the other task are unchanged


def test_group_and_drift_penalties() -> None:
    some, data = layers(), rows()
    settings: dict[str, Any] = {"task": 2, "step_size": 0.1, "epochs": 1, "batch": 99}
    none = FitOptions(
        tuple(torch.zeros_like(w, dtype=torch.bool) for w in some.weights),
        tuple(torch.zeros_like(b, dtype=torch.bool) for b in some.biases),
    )
    found = fit_layers(
        some, data, replace(none, group=3.0), rng=np.random.default_rng(0), **settings
    )
    norms = some.weights[0].norm(dim=1)
    wanted = some.weights[0][2] * max(0.0, 1 - 0.3 / float(norms[2]))
    torch.testing.assert_close(found.weights[0][2], wanted)  # the unit of task 2
    assert bool((found.weights[0][:2] == some.weights[0][:2]).all())
    anchors = tuple(torch.zeros_like(w) for w in some.weights[:-1])
    pulled = replace(none, drift=1e9, anchors=anchors)
    found = fit_layers(some, data, pulled, rng=np.random.default_rng(0), **settings)
    assert float(found.weights[0].abs().max()) < 1e-7
    assert bool((found.weights[2] == some.weights[2]).all())


# -- units ----------------------------------------------------------------------------------------


def test_needed_units_have_a_path_to_the_classes() -> None:
    some = layers()
    w = [m.clone() for m in some.weights]
    w[2][2:] = 0.0
    w[2][3, 1] = 1.0  # class 3 needs unit 1 alone,
    w[1][1] = torch.tensor([0.0, 0.0, 2.0])  # which needs unit 2 alone
    found = needed_units(replace(some, weights=tuple(w)), 2)
    assert [f.tolist() for f in found] == [
        [False, False, True], [False, True, False], [False, False, True, True],
    ]  # fmt: skip
    free = path_weights(replace(some, weights=tuple(w)), 2)
    assert [int(f.sum()) for f in free.weights] == [2, 1, 2]


def test_new_unit_weights_lead_into_and_out_of_new_units() -> None:
    with_new_units = layers().with_new_units((1, 1), task=3, seed=0)
    with_new_units = replace(with_new_units, heads=torch.tensor([1, 1, 2, 3]))
    free = new_unit_weights(with_new_units, 3)
    assert free.weights[0].tolist() == [[False] * 2] * 3 + [[True] * 2]
    assert free.weights[1].tolist() == [[False, False, False, True]] * 3 + [[True] * 4]
    assert free.weights[2].tolist() == [[False] * 4] * 3 + [[False, False, False, True]]


def test_split_restores_units_and_assigns_copies_to_the_task() -> None:
    before = layers()
    before = replace(before, stamps=tuple(torch.ones_like(s) for s in before.stamps))
    w = [m.clone() for m in before.weights]
    w[0][1] += 5.0  # unit 1 of the first layer drifted,
    w[1][2] -= 5.0  # and 2 of the second
    w[0][0] += 0.01
    after = replace(before, weights=tuple(w))
    found, copies = split(after, before, 2, 0.1)
    assert copies == 2
    assert [s.tolist() for s in found.stamps] == [[1, 1, 1, 2], [1, 1, 1, 2]]
    first, second, last = found.weights
    assert bool((first[1] == before.weights[0][1]).all())
    assert bool((first[3] == after.weights[0][1]).all())
    assert bool((first[0] == after.weights[0][0]).all())  # within the threshold
    assert bool((second[2, :3] == before.weights[1][2]).all())
    assert second[:3, 3].tolist() == [0.0, 0.0, 0.0]
    assert second[3, 1] == 0.0
    assert second[3, 3] == after.weights[1][2, 1]
    assert last[2:, 2].tolist() == [0.0, 0.0]
    assert bool((last[2:, 3] == after.weights[2][2:, 2]).all())
    assert bool((last[:2, :3] == before.weights[2][:2]).all())
    x, _ = rows()
    small = replace(before, weights=(found.weights[0][:3], *before.weights[1:]))
    torch.testing.assert_close(found.class_outputs(x)[:, :2], small.class_outputs(x)[:, :2])


# -- the complete method --------------------------------------------------------------------------


def test_den_grows_only_if_the_loss_or_the_drift_is_too_large() -> None:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    still = baselines.DEN(net(), loss_threshold=99.0, drift_threshold=99.0)
    still.learn(x, y).after_task().learn(x, y + 2).after_task()
    assert (still.units_added_, still.units_split_) == (0, 0)
    assert [p.out_features for p in still.module if isinstance(p, nn.Linear)] == [6, 5, 4]
    grows = baselines.DEN(net(), loss_threshold=0.0, drift_threshold=0.01, units=2, group=0.0)
    grows.learn(x, y).after_task().learn(x, y + 2).after_task()
    assert grows.units_added_ == 4
    assert grows.units_split_ > 0
    shape = [len(s) for s in grows.stamps_]
    assert sum(shape) == 11 + 4 + grows.units_split_
    assert [p.out_features for p in grows.module if isinstance(p, nn.Linear)] == [*shape, 4]
    assert grows.module(x).shape == (40, 4)
    assert grows.rows_seen_ == 80
    assert grows.visits_ == 5 * 40 + 5 * 5 * 40
    assert grows.max_rows_stored_ == 40
    assert (grows.rows_stored_, grows.nbytes) == (0, 8 * (sum(shape) + 4))
    fewer = baselines.DEN(net(), loss_threshold=0.0, drift_threshold=99.0, units=2, group=1e3)
    fewer.learn(x, y).after_task().learn(x, y + 2).after_task()
    assert fewer.units_added_ == 0  # removed: all their weights are 0


def test_failure_leaves_the_learner_unchanged() -> None:
    model = baselines.DEN(net())
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.tensor([0, 1] * 4)
    with raises(NotFittedError, remedy="Call learn(x, y), then"):
        model.predict(x)
    model.learn(x, y).after_task().learn(x, y + 2)
    with raises(LabelError, argument="y", got="[4]"):
        model.learn(x, y + 3)
    before = [w.clone() for w in model.module.parameters()]
    known = dict(model.__dict__)
    model.step_size = 1e308
    with raises(NumericalError, remedy="This task was not"):
        model.after_task()
    model.step_size = 0.1
    for a, b in zip(model.module.parameters(), before, strict=True):
        assert bool((a == b).all())
    assert all(model.__dict__[k] is v for k, v in known.items() if k != "step_size")
    model.after_task()
    assert set(model.predict(x, classes=[2, 3]).tolist()) == {2, 3}


@pytest.mark.parametrize(
    ("module", "error", "fields"),
    [
        (nn.Linear(2, 2), TypeMismatchError, {"argument": "module"}),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)),
            ParameterError,
            {"argument": "module", "got": "Linear, Tanh"},
        ),
        (nn.Sequential(nn.Linear(2, 2, bias=False)), ParameterError, {"argument": "module"}),
    ],
)
def test_modules_that_cannot_grow_are_rejected(
    module: Any, error: type[Exception], fields: dict[str, Any]
) -> None:
    with raises(error, **fields):
        baselines.DEN(module)
    frozen = net()
    frozen[0].weight.requires_grad = False
    with raises(ParameterError, remedy="Call module.requires_grad_(True)"):
        baselines.DEN(frozen)
    for name in ("sparsity", "group", "drift", "drift_threshold", "units"):
        with raises(ParameterError, argument=name):
            baselines.DEN(net(), **{name: -1})


def test_den_in_continual_evaluation() -> None:
    X, y = load_digits(return_X_y=True)
    tasks = op.stream.experiences(X[:600] / 16, y[:600])

    def make() -> Any:
        return baselines.DEN(net(64, (32, 32), 10).float(), epochs=5, batch=16)

    report = op.evaluate.continual({"DEN": make}, tasks, scenario="task")
    assert report["DEN"].average_accuracy > 0.9
    assert report["DEN"].repeated > 0
    alone = op.evaluate.continual({"DEN": make}, tasks)
    assert 0.2 < alone["DEN"].average_accuracy < report["DEN"].average_accuracy
    assert "designed for prediction with known tasks" in str(alone)


@pytest.mark.parametrize("x", [{"input": np.ones((2, 3))}, (np.ones((2, 3)), np.ones((2, 3)))])
def test_rows_of_several_arguments_are_rejected(x: Any) -> None:
    with raises(TypeMismatchError, remedy="Pass the rows themselves"):
        baselines.DEN(net()).learn(x, np.array([0, 1]))

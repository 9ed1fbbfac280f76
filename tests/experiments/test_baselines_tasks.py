"""SI, LwF, EWC in several passes and iCaRL, compared with plain implementations."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import onepass as op
from onepass.errors import LabelError, NotFittedError, NumericalError, ParameterError, ShapeError
from onepass_experiments import baselines
from raising import raises

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from onepass_experiments.baselines.icarl import herded  # noqa: E402

STORING = ("EWC", "SI", "LwF")


def net(c: int = 3) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, c)).double()


def batches(k: int, n: int = 6, seed: int = 0, labels: tuple[int, int] = (0, 3)) -> Any:
    rng = np.random.default_rng(seed)
    return [
        (torch.tensor(rng.normal(size=(n, 4))), torch.tensor(rng.integers(*labels, n)))
        for _ in range(k)
    ]


def flat(tensors: Any) -> Any:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def gradients(module: Any, loss: Any) -> Any:
    return flat(torch.autograd.grad(loss, list(module.parameters())))


def put(module: Any, w: Any) -> None:
    nn.utils.vector_to_parameters(w, module.parameters())


# -- SI -------------------------------------------------------------------------------------------


def test_si_follows_its_equations() -> None:
    ours, plain = net(), net()
    model = baselines.SI(ours, step_size=0.1, strength=0.7, damping=0.01)
    importance, anchor = torch.zeros(()), flat(plain.parameters())
    for task in range(3):
        path = torch.zeros_like(anchor)
        for x, y in batches(4, seed=task):
            model.learn(x, y)
            w = flat(plain.parameters())
            g = gradients(plain, functional.cross_entropy(plain(x), y))
            # with the gradient of the penalty at the end of the step
            fresh = (w - 0.1 * g + 0.14 * importance * anchor) / (1 + 0.14 * importance)
            path = path - g * (fresh - w)
            put(plain, fresh)
            torch.testing.assert_close(flat(ours.parameters()), fresh)
        model.after_task()
        moved = flat(plain.parameters()) - anchor
        importance = importance + path.clamp(min=0) / (moved**2 + 0.01)
        anchor = flat(plain.parameters())
        torch.testing.assert_close(flat(model.importance_), importance)
    assert model.nbytes == 8 * 2 * len(anchor)


# -- LwF ------------------------------------------------------------------------------------------


def test_lwf_follows_its_equations() -> None:
    ours, plain = net(4), net(4)
    model = baselines.LwF(ours, step_size=0.1, strength=0.6, temperature=2.0)
    before: Any = None
    for task, labels in enumerate([(0, 2), (2, 4)]):
        for x, y in batches(4, seed=task, labels=labels):
            model.learn(x, y)
            loss = functional.cross_entropy(plain(x), y)
            if before is not None:
                wanted = (before(x)[:, :2] / 2).softmax(dim=1).detach()
                # cross entropy with probabilities as targets
                loss = loss + 0.6 * functional.cross_entropy(plain(x)[:, :2] / 2, wanted)
            put(plain, flat(plain.parameters()) - 0.1 * gradients(plain, loss))
            torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
        model.after_task()
        before = net(4)
        before.load_state_dict(plain.state_dict())
    assert model.old_classes_ == (0, 1, 2, 3)
    assert model.rows_repeated_ == 0
    assert model.nbytes == 8 * len(flat(plain.parameters()))


@pytest.mark.parametrize("name", ["SI", "LwF"])
def test_zero_strength_equals_sgd(name: str) -> None:
    ours, plain = net(), net()
    model = getattr(baselines, name)(ours, step_size=0.1, momentum=0.5, strength=0.0)
    peer = baselines.SGD(plain, step_size=0.1, momentum=0.5)
    for x, y in batches(4):
        model.learn(x, y).after_task()
        peer.learn(x, y)
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))


# -- several passes -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORING)
def test_several_passes_are_sgd_steps_over_the_stored_rows(name: str) -> None:
    ours, plain = net(), net()
    model = getattr(baselines, name)(ours, step_size=0.1, epochs=3, batch=4, seed=5)
    fed = batches(3)
    for x, y in fed:
        model.learn(x, y)
    assert (model.rows_stored_, model.visits_, model.nbytes) == (18, 0, 18 * 5 * 8)
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    model.after_task()
    X, Y = (torch.cat(parts) for parts in zip(*fed, strict=True))
    rng = np.random.default_rng([5, 0])
    peer = baselines.SGD(plain, step_size=0.1)
    for _ in range(3):
        for rows in torch.from_numpy(rng.permutation(18)).split(4):
            peer.learn(X[rows], Y[rows])
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    seen = 4 * 18 if name == "EWC" else 3 * 18  # the Fisher information takes an extra pass
    assert (model.rows_seen_, model.visits_, model.rows_repeated_) == (18, seen, seen - 18)
    assert (model.rows_stored_, model.max_rows_stored_, model.rows_of_task_) == (0, 18, 0)


def test_importance_of_ewc_in_several_passes_is_computed_at_the_end() -> None:
    module = net()
    model = baselines.EWC(module, epochs=2, batch=3, fisher="empirical", step_size=0.1)
    (x, y), *_ = batches(1)
    model.learn(x, y).after_task()
    each = [gradients(module, functional.cross_entropy(module(x[[i]]), y[[i]])) for i in range(6)]
    torch.testing.assert_close(flat(model.importance_), torch.stack(each).square().mean(dim=0))


@pytest.mark.parametrize("name", [*STORING, "ICaRL"])
def test_failure_in_several_passes_leaves_the_learner_unchanged(name: str) -> None:
    module = net()
    model = getattr(baselines, name)(module, epochs=3, step_size=0.1)
    for x, y in batches(2):
        model.learn(x, y).after_task()
    with raises(LabelError, argument="y", got="[3, 5]"):
        model.learn(x, y + 3)
    with raises(ShapeError, remedy="Pass one class per"):
        model.learn(x, functional.one_hot(y, 3).double())
    model.learn(x, y)
    with pytest.raises(ShapeError, match=r"\('n', 4\), as earlier rows"):
        model.learn(x[:, :2], y)
    before, known = flat(module.parameters()), dict(model.__dict__)
    model.step_size = 1e308
    with pytest.raises(NumericalError, match="must be finite"):
        model.after_task()
    model.step_size = 0.1
    assert bool((flat(module.parameters()) == before).all())
    assert list(known) == list(model.__dict__)
    assert all(model.__dict__[key] is value for key, value in known.items() if key != "step_size")
    assert model.after_task().rows_of_task_ == 0


# -- counts and masks -----------------------------------------------------------------------------


def test_every_baseline_counts_rows_and_visits() -> None:
    counts = {}
    for name in sorted({*baselines.__all__} - {"DEN"}):  # DEN requires a perceptron with ReLU
        settings = {"capacity": 4} if name in {"Replay", "AGEM", "DERPP", "ICaRL"} else {}
        if name not in {"SGD", "SI", "EWC", "LwF", "Replay", "AGEM", "DERPP"}:
            settings["epochs"] = 2
        model = getattr(baselines, name)(net(), **settings)
        for x, y in batches(2):
            model.learn(x, y).after_task()
        counts[name] = (model.rows_seen_, model.rows_repeated_, model.rows_stored_)
    for name in ("SGD", "EWC", "SI", "LwF"):
        assert counts[name] == (12, 0, 0)
    assert counts["Replay"] == counts["AGEM"] == (12, 4, 4)
    assert counts["DERPP"] == (12, 8, 4)
    assert counts["Joint"] == (12, 2 * 6 + 2 * 12 - 12, 12)
    assert counts["ICaRL"] == (12, 2 * 6 + 2 * 9 - 12, 3)  # 4 // 3 of each class are stored


def test_predictions_can_be_restricted_to_the_classes_of_a_task() -> None:
    model = baselines.SGD(net(5))
    x = batches(1)[0][0]
    for some in ([1, 3], (4,), np.array([3, 1])):
        predictions, scores = model.predict(x, classes=some), model.outputs(x)
        assert set(predictions.tolist()) <= set(np.asarray(some).tolist())
        best = torch.tensor(np.asarray(some))[scores[:, list(some)].argmax(dim=1)]
        assert bool((predictions == best).all())
    for classes in ([5], [-1], [], [0.5], [[0]], "ab"):
        with raises(LabelError, argument="classes"):
            model.predict(x, classes=classes)
    with raises(ParameterError, argument="classes"):
        baselines.SGD(net(5), loss="squared", step_size=0.01).predict(x, classes=[1])


# -- iCaRL ----------------------------------------------------------------------------------------


def test_herding_follows_its_algorithm() -> None:
    features = functional.normalize(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)))
    mean = features.mean(dim=0)
    chosen: list[int] = []
    for k in range(1, 13):
        left = [i for i in range(30) if i not in chosen]
        away = [float((mean - features[[*chosen, i]].sum(dim=0) / k).norm()) for i in left]
        chosen.append(left[int(np.argmin(away))])
    assert herded(features, mean, 12).tolist() == chosen
    assert sorted(herded(features, mean, 99).tolist()) == list(range(30))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_icarl_follows_its_algorithms(temperature: float) -> None:
    ours, plain, settings = net(4), net(4), {"temperature": temperature}
    model = baselines.ICaRL(ours, step_size=0.2, capacity=8, epochs=2, batch=100, **settings)
    (x, y), (x2, y2) = (batches(1, 9, seed=s, labels=(2 * s, 2 * s + 2))[0] for s in (0, 1))
    model.learn(x, y).after_task()
    for _ in range(2):  # one batch, so the order is irrelevant
        loss = functional.binary_cross_entropy_with_logits(
            plain(x)[:, :2], functional.one_hot(y, 2).double(), reduction="sum"
        )
        put(plain, flat(plain.parameters()) - 0.2 * gradients(plain, loss / 9))
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    old = model.exemplars_
    rows = torch.cat([x2, *old])
    wanted = torch.zeros(len(rows), 4, dtype=torch.float64)
    wanted[torch.arange(9), y2] = 1.0
    wanted[:, :2] = (plain(rows)[:, :2] / temperature).sigmoid().detach()
    model.learn(x2, y2).after_task()
    for _ in range(2):
        loss = functional.binary_cross_entropy_with_logits(plain(rows), wanted, reduction="sum")
        put(plain, flat(plain.parameters()) - 0.2 * gradients(plain, loss / len(rows)))
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    assert model.classes_ == (0, 1, 2, 3)
    for one, retained in zip(old, model.exemplars_, strict=False):
        assert bool((retained == one[:2]).all())  # the best exemplars are retained
    phi = functional.normalize(plain[:2](x2), dim=1)
    means = [functional.normalize(functional.normalize(plain[:2](p), dim=1).mean(dim=0), dim=0)
             for p in model.exemplars_]  # fmt: skip
    nearest = torch.stack([(phi - m).norm(dim=1) for m in means]).argmin(dim=0)
    assert bool((model.predict(x2) == nearest).all())
    assert model.rows_stored_ == sum(map(len, model.exemplars_)) <= 8
    assert model.nbytes == 8 * (4 * model.rows_stored_ + 4 * 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_icarl_predicts_in_half_precision(dtype: torch.dtype) -> None:
    (x, y), _ = batches(2)
    model = baselines.ICaRL(net().to(dtype), capacity=6).learn(x, y).after_task()
    assert model.predict(x).shape == y.shape


def test_icarl_learns_a_recurring_class_and_rejects_invalid_settings() -> None:
    model = baselines.ICaRL(net(), capacity=6, epochs=1)
    (x, y), (x2, y2) = batches(2)
    with raises(NotFittedError, remedy="Call learn(x, y), then"):
        model.learn(x, y).predict(x)
    model.after_task().learn(x2, y2).after_task()
    assert model.classes_ == (0, 1, 2)
    assert model.predict(x[:0]).shape == (0,)
    few = baselines.ICaRL(net(), capacity=1)
    with raises(ParameterError, argument="capacity", got="1 for 3 classes"):
        few.learn(x, y).after_task()
    with raises(ParameterError, argument="module"):
        baselines.ICaRL(nn.Conv2d(1, 1, 1))
    with raises(ParameterError, argument="temperature"):
        baselines.ICaRL(net(), temperature=0.0)


# -- in continual evaluation ----------------------------------------------------------------------


def test_continual_evaluation_of_all_baselines() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0

    def make(kind: Any, seed: int, **settings: Any) -> Any:
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        return kind(module, **settings)

    models = {
        "iCaRL": partial(make, baselines.ICaRL, capacity=100, epochs=5),
        "SI": partial(make, baselines.SI, step_size=0.1),
        "LwF": partial(make, baselines.LwF, step_size=0.1),
        "EWC, 3 epochs": partial(make, baselines.EWC, step_size=0.1, epochs=3),
    }
    tasks = op.stream.experiences(X[:700], y[:700])
    report = op.evaluate.continual(models, tasks)
    assert report["iCaRL"].average_accuracy > 0.8
    assert report["iCaRL"].repeated > 0
    assert report["SI"].repeated == report["LwF"].repeated == 0
    assert report["EWC, 3 epochs"].repeated > 0
    assert "SI: known to forget" in str(report)
    masked = op.evaluate.continual(models, tasks, scenario="task")
    for name in ("SI", "LwF"):
        assert masked[name].average_accuracy > report[name].average_accuracy + 0.3

"""OGD on networks, against plain loops and on digits."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import onepass as op
from onepass.errors import (
    LabelError,
    MemoryFullWarning,
    MergeError,
    ParameterError,
    RowsRefusedWarning,
    ShapeError,
)
from raising import raises

torch = pytest.importorskip("torch")


def network(d: int = 4, c: int = 3, hidden: int = 7) -> Any:
    generator = torch.Generator().manual_seed(1)
    module = torch.nn.Sequential(
        torch.nn.Linear(d, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, c)
    ).double()
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(torch.randn(each.shape, generator=generator, dtype=torch.float64) / 2)
    return module


def stream(n: int, d: int = 4, c: int = 3, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return X, torch.randint(c, (n,), generator=generator)


def flat(module: Any) -> Any:
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()])


def gradient_of(module: Any, scalar: Any) -> Any:
    found = torch.autograd.grad(scalar, list(module.parameters()), retain_graph=True)
    return torch.cat([each.reshape(-1) for each in found])


def projected(g: Any, stored: list[Any]) -> Any:
    """Residual of g outside the span of stored gradients, by least squares."""
    if not stored:
        return g
    G = torch.stack(stored, dim=1)
    return g - G @ torch.linalg.lstsq(G, g[:, None], driver="gelsd").solution[:, 0]


def set_flat(module: Any, w: Any) -> None:
    torch.nn.utils.vector_to_parameters(w, module.parameters())


@pytest.mark.parametrize("gradients", ["logit", "outputs", "average"])
def test_equals_plain_loop(gradients: str) -> None:
    X, y = stream(12)
    module, plain = network(), network()
    net = op.nn.OGD(
        module, None, step_size=0.1, steps=3, batch=4, loss="cross_entropy", gradients=gradients
    )
    stored: list[Any] = []
    for i in range(0, 12, 4):
        rows = slice(i, i + 4)
        net.learn(X[rows], y[rows])
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(plain(X[rows]), y[rows])
            g = projected(gradient_of(plain, loss), stored)
            set_flat(plain, flat(plain) - 0.1 * g)
        for x, label in zip(X[rows], y[rows], strict=True):
            out = plain(x[None])[0]
            wanted = {"logit": [out[label]], "average": [out.mean()], "outputs": list(out)}
            stored += [gradient_of(plain, each) for each in wanted[gradients]]
        torch.testing.assert_close(flat(module), flat(plain), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "one_hot"])
def test_no_memory_is_gradient_descent(loss: Any) -> None:
    X, y = stream(6)
    module, plain = network(), network()
    answers = torch.nn.functional.one_hot(y, 3).double()
    given = y if loss == "one_hot" else answers
    op.nn.OGD(module, op.memory.NoMemory(), step_size=0.2, batch=3, loss=loss).learn(X, given)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.2)
    for rows in (slice(0, 3), slice(3, 6)):
        optimizer.zero_grad()
        (0.5 * (plain(X[rows]) - answers[rows]).square().sum(dim=1).mean()).backward()
        optimizer.step()
    torch.testing.assert_close(flat(module), flat(plain))


def test_linear_model_stores_subspace_of_orfit() -> None:
    X, _ = stream(5, d=9)
    Y = stream(5, d=2, seed=3)[0]
    ogd = op.nn.OGD(torch.nn.Linear(9, 2).double(), None, batch=1)
    orfit = op.nn.ORFit(torch.nn.Linear(9, 2).double(), None)
    A, B = (net.learn(X, Y).memory_.Q for net in (ogd, orfit))
    assert A.shape == B.shape == (20, 10)
    torch.testing.assert_close(A @ A.T, B @ B.T)


def test_task_gradients_are_sampled_uniformly() -> None:
    X, y = stream(40)
    module = network()
    net = op.nn.OGD(module, None, loss="one_hot", per_task=5, batch=8)
    net.learn(X, y)
    assert net.memory_ is None
    assert net.nbytes == 5 * net.network.p * 8
    assert net.after_task().memory_.rank == 5
    assert net.tasks_ == 1
    assert net.after_task().memory_.rank == 5  # no row since
    assert net.learn(X[:3], y[:3]).after_task().memory_.rank == 8

    from onepass.nn.gradients import reservoir_slots

    counts = np.zeros(20)
    for seed in range(400):
        places: dict[int, int] = {}
        for i in range(0, 20, 4):
            places |= {place: i + row for place, row in reservoir_slots(i, 4, 5, (seed,)).items()}
        assert sorted(places) == [0, 1, 2, 3, 4]
        counts[list(places.values())] += 1
    assert abs(counts - 100).max() < 45  # five standard deviations


def test_seed_determines_sample() -> None:
    X, y = stream(30)
    found = []
    for seed in (0, 0, 1):
        net = op.nn.OGD(network(), None, loss="one_hot", per_task=4, seed=seed)
        found.append(net.learn(X, y).after_task().memory_.Q)
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def test_linear_model_preserves_outputs_of_past_task() -> None:
    module = torch.nn.Linear(20, 3).double()
    X, y = stream(6, d=20)
    net = op.nn.OGD(module, None, loss="one_hot", gradients="outputs", per_task=6, step_size=0.1)
    outputs = net.learn(X, y).after_task().outputs(X)
    net.learn(*stream(100, d=20, seed=5))
    torch.testing.assert_close(net.outputs(X), outputs)


def test_prequential_predictions_per_batch() -> None:
    X, y = stream(10)
    net, same = (op.nn.OGD(network(), loss="one_hot", batch=4, step_size=0.5) for _ in range(2))
    predictions = net.test_then_train(X, y)
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
        assert torch.equal(predictions[rows], same.predict(X[rows]))
        same.learn(X[rows], y[rows])


def split_digits() -> list[tuple[Any, Any, Any, Any]]:
    """Classes 0 to 4, then 5 to 9, as ten classes; every fourth row is for testing."""
    X, y = load_digits(return_X_y=True)
    X, y = torch.tensor(X / 16.0, dtype=torch.float32), torch.tensor(y % 5)
    lots = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    X, y, second = X[lots], y[lots], torch.tensor(load_digits().target)[lots] >= 5
    test = torch.arange(len(X)) % 4 == 0
    return [(X[m & ~test], y[m & ~test], X[m & test], y[m & test]) for m in (~second, second)]


def permuted_digits(n_tasks: int) -> list[tuple[Any, Any, Any, Any]]:
    """All ten classes, with pixels in another order from the second task on."""
    X, y = load_digits(return_X_y=True)
    X, y = torch.tensor(X / 16.0, dtype=torch.float32), torch.tensor(y)
    generator = torch.Generator().manual_seed(0)
    lots, test = torch.randperm(len(X), generator=generator), torch.arange(len(X)) % 4 == 0
    X, y, tasks = X[lots], y[lots], []
    for k in range(n_tasks):
        order = torch.randperm(64, generator=generator) if k else torch.arange(64)
        tasks.append((X[~test][:, order], y[~test], X[test][:, order], y[test]))
    return tasks


def digits_network(hidden: int = 60, c: int = 5) -> Any:
    generator = torch.Generator().manual_seed(2)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, c)
    )
    with torch.no_grad():
        for each in module.parameters():
            fan = each.shape[-1] if each.ndim > 1 else 1e9
            each.copy_(torch.randn(each.shape, generator=generator) / fan**0.5)
    return module


def accuracy(net: Any, X: Any, y: Any) -> float:
    return float((net.predict(X) == y).float().mean())


def test_forgets_less_than_sgd_on_digits() -> None:
    first, second = split_digits()
    accuracies = {}
    for name, memory in (("ogd", None), ("sgd", op.memory.NoMemory())):
        net = op.nn.OGD(
            digits_network(), memory, loss="cross_entropy", step_size=0.1, batch=10, per_task=150
        )
        for _ in range(2):
            net.learn(first[0], first[1])
        assert accuracy(net, first[2], first[3]) > 0.9
        net.after_task()
        net.learn(second[0], second[1])
        accuracies[name] = accuracy(net, first[2], first[3])
    assert accuracies["ogd"] > accuracies["sgd"] + 0.2


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("step_size", 0.0), ("steps", 0), ("batch", 0), ("gradients", "all"), ("per_task", 0),
        ("seed", -1), ("memory", "big"), ("memory", op.memory.SquareRoot()), ("loss", "hinge"),
    ],
)  # fmt: skip
def test_invalid_arguments(argument: str, value: Any) -> None:
    averages = isinstance(value, op.memory.SquareRoot)  # and its error names its own parameter
    with raises(ParameterError, argument="noise" if averages else argument):
        op.nn.OGD(network(), **{argument: value})


def test_logit_for_regression_is_refused() -> None:
    with raises(ParameterError, argument="gradients", remedy="Use 'outputs', or a"):
        op.nn.OGD(network(), gradients="logit")


def test_invalid_rows_change_nothing() -> None:
    X, y = stream(8)
    module = network()
    net = op.nn.OGD(module, loss="one_hot").learn(X, y)
    before, rank = flat(module), net.memory_.rank
    with pytest.raises(LabelError):
        net.learn(X, y + 5)
    with pytest.raises(ShapeError):
        net.learn(X, y[:3])
    assert torch.equal(flat(module), before)
    assert net.memory_.rank == rank
    assert net.rows_seen_ == 8
    assert net.learn(X[:0], y[:0]).rows_seen_ == 8


def test_failing_step_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = stream(8)
    module = network()
    net = op.nn.OGD(module, loss="one_hot", steps=3).learn(X, y)
    before, taken = flat(module), net.network.gradient

    def failing(rows: Any, v: Any) -> Any:
        if not torch.equal(flat(module), before):
            raise MemoryError
        return taken(rows, v)

    monkeypatch.setattr(net.network, "gradient", failing)
    with pytest.raises(MemoryError):
        net.learn(X, y)
    assert torch.equal(flat(module), before)
    assert net.rows_seen_ == 8


def test_nonfinite_batch_warns_and_is_not_learned() -> None:
    module = network()
    net = op.nn.OGD(module, step_size=1e200, steps=4)
    before = flat(module)
    with pytest.warns(RowsRefusedWarning, match="5 row"):
        net.learn(stream(5)[0] * 1e150, stream(5, d=3)[0] * 1e150)
    assert torch.equal(flat(module), before)
    assert net.rows_refused_ == 5


def test_full_memory_warns() -> None:
    net = op.nn.OGD(torch.nn.Linear(2, 1, bias=False).double(), None)
    with pytest.warns(MemoryFullWarning, match="all 2"):
        net.learn(*(stream(4, d=2)[0], torch.ones(4)))


def test_merge_is_refused() -> None:
    with pytest.raises(MergeError):
        op.nn.OGD(network()).merge(op.nn.OGD(network()))


def test_half_precision_and_frozen_parts() -> None:
    module = network().to(torch.bfloat16)
    module[0].weight.requires_grad_(False)  # noqa: FBT003
    frozen = module[0].weight.clone()
    net = op.nn.OGD(module, 5, loss="cross_entropy", step_size=0.1)
    X, y = stream(40)
    net.learn(X, y)
    assert torch.equal(module[0].weight, frozen)
    assert flat(module).isfinite().all()
    assert net.memory_.rank == 5


def test_refused_batch_stores_no_gradient() -> None:
    module = torch.nn.Linear(3, 1, bias=False)
    net = op.nn.OGD(module, memory=None, step_size=1e38, batch=2)
    with pytest.warns(RowsRefusedWarning, match="got 2 row"):
        net.learn(100.0 * torch.eye(3)[:2], 100.0 * torch.ones(2))
    assert net.memory_.rank == 0

"""EWC, Replay and Joint, compared with plain implementations of their equations."""

from typing import Any

import numpy as np
import pytest

from onepass.errors import ParameterError
from onepass_experiments import baselines
from raising import raises

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def net(c: int = 3) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, c)).double()


def batches(k: int, n: int = 6, seed: int = 0) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [
        (torch.tensor(rng.normal(size=(n, 4))), torch.tensor(rng.integers(0, 3, n)))
        for _ in range(k)
    ]


def flat(tensors: Any) -> Any:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def gradients(module: Any, loss: Any) -> Any:
    return flat(torch.autograd.grad(loss, list(module.parameters())))


# -- EWC ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "decay"), [("tasks", 1.0), ("online", 1.0), ("online", 0.5)])
def test_ewc_follows_its_equations(mode: Any, decay: float) -> None:
    ours, plain = net(), net()
    model = baselines.EWC(
        ours, step_size=0.1, penalty=7.0, mode=mode, decay=decay, fisher="empirical"
    )
    ended: list[tuple[Any, Any]] = []  # F_t, w*_t
    for task in range(3):
        total, rows = torch.zeros(0), 0
        for x, y in batches(4, seed=task):
            model.learn(x, y)
            each = [functional.cross_entropy(plain(x[i : i + 1]), y[i : i + 1]) for i in range(6)]
            squares = torch.stack([gradients(plain, one) for one in each]).square().sum(dim=0)
            total, rows = squares + (total if rows else 0), rows + 6
            w = flat(plain.parameters())
            u = w - 0.1 * gradients(plain, functional.cross_entropy(plain(x), y))
            nn.utils.vector_to_parameters(after(u, ended, mode, decay), plain.parameters())
            torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
        model.after_task()
        ended.append((total / rows, flat(plain.parameters())))
    assert model.tasks_ == 3
    assert model.nbytes == 8 * 2 * len(w)


def after(u: Any, ended: list[tuple[Any, Any]], mode: str, decay: float) -> Any:
    """Return the w with (w − u) / η + λ Σ F (w − w*) = 0, with η = 0.1 and λ = 7."""
    if mode == "online" and ended:
        age = range(len(ended) - 1, -1, -1)
        ended = [(sum(decay**k * f for k, (f, _) in zip(age, ended, strict=True)), ended[-1][1])]
    pull = sum(0.7 * f for f, _ in ended)
    return (u + sum(0.7 * f * anchor for f, anchor in ended)) / (1.0 + pull)


def test_ewc_without_tasks_or_penalty_is_sgd() -> None:
    ours, free, plain = net(), net(), net()
    models = [
        baselines.EWC(ours, step_size=0.1, penalty=9.0, momentum=0.5),
        baselines.EWC(free, step_size=0.1, penalty=0.0, momentum=0.5),
        baselines.SGD(plain, step_size=0.1, momentum=0.5),
    ]
    for x, y in batches(4):
        for model in models:
            model.learn(x, y)
        models[1].after_task()
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    torch.testing.assert_close(flat(free.parameters()), flat(plain.parameters()))


def test_ewc_does_not_diverge_with_a_large_penalty() -> None:
    module = net()
    model = baselines.EWC(module, step_size=0.5, penalty=1e12)
    for x, y in batches(3):
        model.learn(x, y)
    model.after_task()
    held = flat(module.parameters())
    for x, y in batches(20, seed=1):
        model.learn(x, y)
    moved = (flat(module.parameters()) - held).abs()
    # important weights do not move
    assert float(moved[flat(model.importance_) > 1e-6].max()) < 1e-4


def test_sampled_fisher_is_the_fisher_information_of_softmax() -> None:
    torch.manual_seed(1)
    line = nn.Linear(3, 4).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad():
        p = line(x).softmax(dim=1)
    variance = p * (1 - p)  # of (one-hot − p), class by class
    expected = (variance.T @ x.square()) / 5
    model = baselines.EWC(line, step_size=1e-12, seed=3)
    model.learn(x.repeat(40_000, 1), torch.zeros(200_000, dtype=torch.long)).after_task()
    torch.testing.assert_close(model.importance_[0], expected, rtol=0.06, atol=0.003)
    torch.testing.assert_close(model.importance_[1], variance.mean(dim=0), rtol=0.06, atol=0.003)


def test_sampled_fisher_of_squared_error_is_that_of_unit_noise() -> None:
    line = nn.Linear(3, 2).double()
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = baselines.EWC(line, loss="squared", step_size=1e-12)
    model.learn(x.repeat(4000, 1), torch.zeros(20000, 2)).after_task()
    expected = x.square().mean(dim=0).expand(2, 3)
    torch.testing.assert_close(model.importance_[0], expected, rtol=0.06, atol=0.003)


class Wrapped(nn.Module):
    """A module whose structure is hidden."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
@pytest.mark.parametrize("frozen", [None, 0, 4])
def test_squared_gradients_of_a_perceptron_equal_those_of_single_rows(
    loss: Any, frozen: int | None
) -> None:
    def perceptron() -> nn.Sequential:
        torch.manual_seed(0)
        made = nn.Sequential(
            nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False),
            nn.Linear(4, 3), nn.LeakyReLU(),
        ).double()  # fmt: skip
        if frozen is not None:
            list(made.parameters())[frozen].requires_grad_(requires_grad=False)
        return made

    x = torch.randn(7, 2, 3, dtype=torch.float64)
    y = torch.arange(7) % 3 if loss == "cross_entropy" else torch.randn(7, 3).double()
    found = [
        baselines.EWC(module, loss=loss, step_size=1e-12, fisher="empirical").learn(x, y)
        for module in (perceptron(), Wrapped(perceptron()))
    ]
    for ours, alone in zip(found[0].squared_gradients_, found[1].squared_gradients_, strict=True):
        torch.testing.assert_close(ours, alone)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(20, 2)),  # 5 vectors per row
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval(),
    ],
)
def test_squared_gradients_of_other_networks_equal_those_of_single_rows(make: Any) -> None:
    torch.manual_seed(0)
    module = make()
    torch.manual_seed(0)
    again = Wrapped(make())
    x = torch.randn(6, 5, 3) if isinstance(module[1], nn.Flatten) else torch.randn(6, 3)
    y = torch.arange(6) % 2
    found = [
        baselines.EWC(one, step_size=1e-12, fisher="empirical").learn(x, y)
        for one in (module, again)
    ]
    for ours, alone in zip(found[0].squared_gradients_, found[1].squared_gradients_, strict=True):
        torch.testing.assert_close(ours, alone)


def test_modules_without_vmap_support_are_evaluated_row_by_row() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Any) -> Any:
            return self.inner(x) * (2.0 if bool(x.sum() > -1e9) else 1.0)

    (x, y), *_ = batches(1)
    ours, doubled = Branching(), nn.Sequential(*net())
    with torch.no_grad():
        doubled[2].weight.mul_(2), doubled[2].bias.mul_(2)
    found = [
        baselines.EWC(module, step_size=1e-12, fisher="empirical").learn(x, y).after_task()
        for module in (ours, doubled)
    ]
    one, other = (model.importance_ for model in found)
    torch.testing.assert_close(one[0], other[0])
    torch.testing.assert_close(one[2], 4 * other[2])


@pytest.mark.parametrize(
    "settings",
    [{"penalty": -1.0}, {"mode": "both"}, {"decay": 0.0}, {"fisher": "true"}, {"seed": -1}],
)
def test_invalid_settings_of_ewc_are_rejected(settings: Any) -> None:
    with raises(ParameterError, where="EWC", argument=next(iter(settings))):
        baselines.EWC(net(), **settings)


# -- Replay ---------------------------------------------------------------------------------------


def test_every_row_is_stored_with_the_same_probability() -> None:
    times = np.zeros(30)
    for seed in range(100):
        model = baselines.Replay(
            nn.Linear(1, 1), loss="squared", step_size=0.01, capacity=6, seed=seed
        )
        for begin in range(0, 30, 7):
            rows = np.arange(begin, min(begin + 7, 30), dtype=np.float32)
            model.learn(rows[:, None] / 30, rows / 30)
        retained = np.rint(model.buffer_[0][:, 0].numpy() * 30).astype(int)
        assert len(set(retained)) == 6
        assert (model.buffer_[0][:, 0] == model.buffer_[1]).all()
        times[retained] += 1
    # 20 times on average, with a binomial standard deviation of 4
    assert np.abs(times - 20).max() < 16
    assert np.abs(times.reshape(6, 5).mean(axis=1) - 20).max() < 6.5


def test_step_uses_the_batch_and_as_many_replayed_rows() -> None:
    ours, plain = net(), net()
    model = baselines.Replay(ours, step_size=0.1, capacity=3)
    (x, y), (x2, y2) = batches(2, n=3)
    model.learn(x, y).learn(x2, y2)
    for rows, labels in ((x, y), (torch.cat([x2, x]), torch.cat([y2, y]))):
        g = gradients(plain, functional.cross_entropy(plain(rows), labels))
        w = flat(plain.parameters()) - 0.1 * g
        nn.utils.vector_to_parameters(w, plain.parameters())
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    assert (model.rows_seen_, model.rows_replayed_, model.rows_stored_) == (6, 3, 3)
    assert model.nbytes == 3 * (4 + 1) * 8


def test_memory_of_replay_does_not_grow() -> None:
    model = baselines.Replay(net(), capacity=10, replayed=4)
    sizes = [model.learn(x, y).nbytes for x, y in batches(20)]
    assert set(sizes) == {10 * 5 * 8}
    assert model.rows_replayed_ == 19 * 4


def test_results_depend_only_on_the_seed() -> None:
    runs = []
    for seed in (1, 1, 2):
        module = net()
        model = baselines.Replay(module, capacity=5, seed=seed)
        for x, y in batches(6):
            model.learn(x, y)
        runs.append(flat(module.parameters()))
    assert bool((runs[0] == runs[1]).all())
    assert bool((runs[0] != runs[2]).any())


@pytest.mark.parametrize("settings", [{"capacity": 0}, {"replayed": 0}, {"seed": 1.5}])
def test_invalid_settings_of_replay_are_rejected(settings: Any) -> None:
    with raises(ParameterError, where="Replay", argument=next(iter(settings))):
        baselines.Replay(net(), **settings)


# -- Joint ----------------------------------------------------------------------------------------


def test_joint_makes_several_passes_over_all_rows() -> None:
    ours, plain = net(), net()
    model = baselines.Joint(ours, step_size=0.1, momentum=0.9, epochs=4, batch=5, seed=2)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for task in range(2):
        for x, y in batches(2, seed=task):
            model.learn(x, y)
        model.after_task()
    for task in range(2):
        every = [b for t in range(task + 1) for b in batches(2, seed=t)]
        x, y = (torch.cat(parts) for parts in zip(*every, strict=True))
        rng = np.random.default_rng([2, task])
        for _ in range(4):
            order = rng.permutation(len(x))
            for begin in range(0, len(x), 5):
                rows = order[begin : begin + 5]
                optimizer.zero_grad()
                functional.cross_entropy(plain(x[rows]), y[rows]).backward()
                optimizer.step()
    torch.testing.assert_close(flat(ours.parameters()), flat(plain.parameters()))
    assert (model.rows_seen_, model.rows_replayed_) == (24, 4 * (12 + 24))
    p = len(flat(ours.parameters()))
    assert model.nbytes == 24 * 5 * 8 + p * 8


def test_joint_learns_nothing_before_a_task_ends() -> None:
    module = net()
    before = flat(module.parameters())
    baselines.Joint(module).learn(*batches(1)[0])
    assert bool((flat(module.parameters()) == before).all())


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"batch": 0}, {"seed": -1}])
def test_invalid_settings_of_joint_are_rejected(settings: Any) -> None:
    with raises(ParameterError, where="Joint", argument=next(iter(settings))):
        baselines.Joint(net(), **settings)

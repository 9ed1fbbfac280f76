"""Losses of PyTorch: the loss of rows is the sum of those of single rows."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import Tensor, nn

import onepass as op
from onepass.errors import LabelError, MergeError, ParameterError, ShapeError
from onepass.nn.losses import RowLoss
from onepass.nn.merge import refuse_worse
from raising import raises

N, C = 7, 4
LIKE = torch.empty(0, dtype=torch.float64)


def draw(seed: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs, and targets of each kind."""
    g = torch.Generator().manual_seed(seed)
    outputs = torch.randn(N, C, generator=g, dtype=torch.float64)
    return outputs, {
        "numbers": torch.randn(N, C, generator=g, dtype=torch.float64),
        "counts": torch.randint(0, 9, (N, C), generator=g),
        "classes": torch.randint(0, C, (N,), generator=g),
        "labels": torch.randint(0, 2, (N, C), generator=g),
    }


WEIGHT = torch.tensor([1.0, 50.0, 0.5, 2.0], dtype=torch.float64)
LOSSES: dict[str, tuple[Any, str]] = {
    "MSELoss": (nn.MSELoss, "numbers"),
    "HuberLoss": (nn.HuberLoss, "numbers"),
    "SmoothL1Loss": (nn.SmoothL1Loss, "numbers"),
    "HuberLoss of counts": (nn.HuberLoss, "counts"),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, "counts"),
    "CrossEntropyLoss": (nn.CrossEntropyLoss, "classes"),
    "smoothed": (partial(nn.CrossEntropyLoss, label_smoothing=0.1), "classes"),
    "weighted": (partial(nn.CrossEntropyLoss, weight=WEIGHT), "classes"),
    "weighted and smoothed": (
        partial(nn.CrossEntropyLoss, weight=WEIGHT, label_smoothing=0.1), "classes",
    ),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, "labels"),
    "weighted labels": (
        partial(nn.BCEWithLogitsLoss, weight=WEIGHT, pos_weight=2.0 * WEIGHT), "labels",
    ),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, "labels"),
}  # fmt: skip


def whole(name: str, kind: str, outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of all rows, each by the sum of PyTorch over its outputs."""
    make, _ = LOSSES[name]
    target = y if kind == "classes" else y.to(outputs.dtype)
    return make(reduction="sum")(outputs, target)  # type: ignore[no-any-return]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_rows_are_those_of_their_sum(name: str, reduction: str) -> None:
    make, kind = LOSSES[name]
    for seed in range(3):
        outputs, targets = draw(seed)
        y = targets[kind]
        loss = RowLoss(make(reduction=reduction))
        target = loss.targets(y, N, C, LIKE)
        value, g, H = loss.derivatives(outputs, target)
        f = outputs.clone().requires_grad_()
        total = whole(name, kind, f, y)
        (expected,) = torch.autograd.grad(total, f)
        elements = (
            name not in {"CrossEntropyLoss", "MultiLabelSoftMarginLoss"} and kind != "classes"
        )
        size = C if reduction == "mean" and elements else 1
        torch.testing.assert_close(g * size, expected)
        torch.testing.assert_close(value.sum() * size, total.detach())
        assert bool((torch.linalg.eigvalsh(H) > -1e-12).all())
        loss.check(outputs, target)  # raises if rows were not summed
        e, J = loss.rows(outputs, target, torch.eye(C, dtype=torch.float64).repeat(N, 1))
        step = (J.reshape(N, C, C) * e[:, :, None]).sum(1)
        torch.testing.assert_close(step, -g, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "weighted"])
def test_class_weights_have_the_effect_of_weights_of_rows(name: str) -> None:
    outputs, targets = draw(0)
    y = targets["classes"]
    weight = WEIGHT if name == "weighted" else torch.ones(C)
    plain, weighted = RowLoss(nn.CrossEntropyLoss()), RowLoss(LOSSES[name][0]())
    target = plain.targets(y, N, C, LIKE)
    weighted.targets(y, N, C, LIKE)
    eye = torch.eye(C, dtype=torch.float64).repeat(N, 1)
    e, J = plain.rows(outputs, target, eye, weight[y].double())
    other_e, other_J = weighted.rows(outputs, target, eye)
    for one, other in ((e, J), (other_e, other_J)):
        assert one.shape == (N, C)
        assert other.shape == (N * C, C)
    first, second = ((b.reshape(N, C, C) * a[:, :, None]).sum(1) for a, b in
                     ((e, J), (other_e, other_J)))  # fmt: skip
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["ORFit", "EKF", "LoFi"])
def test_a_row_of_weight_s_has_the_noise_divided_by_s(kind: str) -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(30, 3, generator=g, dtype=torch.float64)
    y, s = X.sum(dim=1), torch.rand(30, generator=g, dtype=torch.float64) + 0.1

    def learner(noise: float) -> Any:
        torch.manual_seed(0)
        module = nn.Linear(3, 1).double()
        memory = () if kind == "EKF" else (None,) if kind == "ORFit" else (4,)
        return getattr(op.nn, kind)(module, *memory, noise=noise)

    weighted, one_by_one = learner(0.5), learner(0.5)
    weighted.learn(X, y, s)
    for i in range(30):
        one_by_one.noise = 0.5 / float(s[i])
        one_by_one.learn(X[i : i + 1], y[i : i + 1])
    torch.testing.assert_close(weighted.outputs(X), one_by_one.outputs(X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["ORFit", "EKF", "LoFi", "OGD"])
def test_rows_of_weight_0_and_ignored_rows_change_nothing(kind: str) -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(40, 3, generator=g, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=g)
    used = torch.arange(40) % 4 != 0
    made = {"OGD": {}, "LoFi": {"memory": 4}}.get(kind, {"noise": 1.0})
    if kind == "OGD":  # all rows of a call are one batch
        made = {"batch": 40, "step_size": 0.1, "memory": 5}

    def learner() -> Any:
        torch.manual_seed(0)
        return getattr(op.nn, kind)(nn.Linear(3, 3).double(), loss=nn.CrossEntropyLoss(), **made)

    only = learner().learn(X[used], y[used])
    weighted = learner().learn(X, y, used.double())
    ignored = learner().learn(X, torch.where(used, y, -100))
    for each in (weighted, ignored):
        torch.testing.assert_close(each.outputs(X), only.outputs(X), rtol=1e-5, atol=1e-6)
        assert each.rows_seen_ == only.rows_seen_ == 30


def test_a_mean_that_divides_by_weights_is_refused_for_functions() -> None:
    X, y = torch.randn(9, 3), torch.arange(9) % 3
    weight = torch.tensor([1.0, 9.0, 1.0])

    def mean(f: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(f, t, weight=weight)

    with raises(ParameterError, argument="loss"):
        op.nn.EKF(nn.Linear(3, 3), loss=mean).learn(X, y)

    def total(f: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(f, t, weight=weight, reduction="sum")

    torch.manual_seed(0)
    start = nn.Linear(3, 3).state_dict()
    found = []
    for loss in (total, partial(F.cross_entropy, weight=weight), nn.CrossEntropyLoss(weight)):
        module = nn.Linear(3, 3)
        module.load_state_dict(start)
        found.append(op.nn.EKF(module, loss=loss).learn(X, y).outputs(X))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0])


def binary(c: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, c))


def test_probabilities_follow_the_loss() -> None:
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    y = X[:, 0] > 0
    for loss, target in ((nn.BCEWithLogitsLoss(), y.float()), (nn.BCEWithLogitsLoss(), y.long()),
                         ("cross_entropy", y.long())):  # fmt: skip
        learner = op.nn.ORFit(binary(1), loss=loss).learn(X, target)  # type: ignore[arg-type]
        P = learner.predict_proba(X)
        assert P.shape == (60, 2)
        torch.testing.assert_close(P[:, 1], learner.outputs(X)[:, 0].double().sigmoid())
        assert learner.__sklearn_tags__().estimator_type == "classifier"
        assert torch.equal(learner.predict(X), (P[:, 1] > 0.5).long())
    several = torch.stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 3], 1)
    for made in (nn.BCEWithLogitsLoss(), nn.MultiLabelSoftMarginLoss()):
        many = op.nn.ORFit(binary(3), loss=made).learn(X, several)
        torch.testing.assert_close(many.predict_proba(X), many.outputs(X).double().sigmoid())
        assert many.predict(X).shape == (60, 3)
    ended = nn.Sequential(binary(1), nn.Sigmoid())
    sure = op.nn.ORFit(ended, loss=nn.BCELoss()).learn(X, y.float())
    torch.testing.assert_close(sure.predict_proba(X)[:, 1], sure.outputs(X)[:, 0].double())
    logs = nn.Sequential(binary(3), nn.LogSoftmax(1))
    named = op.nn.ORFit(logs, loss=nn.NLLLoss()).learn(X, torch.arange(60) % 3)
    torch.testing.assert_close(named.predict_proba(X), named.outputs(X).double().exp())
    assert not hasattr(
        op.nn.ORFit(binary(2), loss=nn.HuberLoss()).learn(X, X[:, :2]), "predict_proba"
    )
    with raises(LabelError, argument="y"):
        op.nn.ORFit(binary(1), loss=nn.BCEWithLogitsLoss()).learn(X, 2 * y.float())


class Language(nn.Module):
    """Embedding, attention and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, k: Tensor) -> Tensor:
        x = self.table(k)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x @ self.table.weight.T


def test_tokens_are_learned_and_padding_is_ignored() -> None:
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 7, (40, 6), generator=g)
    labels = (tokens + 1) % 7
    padded = torch.where(torch.arange(6) < 4, labels, -100)
    learner = op.nn.ORFit(Language().double(), memory=60, noise=1.0, loss=nn.CrossEntropyLoss())
    learner.learn(tokens, padded)
    assert learner.predict(tokens).shape == (40, 6)
    P = learner.predict_proba(tokens)
    assert P.shape == (40, 6, 7)
    torch.testing.assert_close(P.sum(-1), torch.ones(40, 6, dtype=torch.float64))
    right = (learner.predict(tokens) == labels)[:, :4].double().mean()
    assert float(right) > 0.5

    def by_hand(f: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(f.view(-1, 7), y.view(-1))

    first, second = (
        op.nn.ORFit(Language().double(), loss=loss).learn(tokens[:1], padded[:1]).outputs(tokens)
        for loss in (nn.CrossEntropyLoss(), by_hand)
    )
    torch.testing.assert_close(first, second)


def test_a_binary_network_is_evaluated_beside_a_classifier() -> None:
    X = np.random.default_rng(0).normal(size=(320, 4))
    y = (X[:, 0] > 0).astype(int)
    models = {
        "network": op.nn.ORFit(binary(1), loss=nn.BCEWithLogitsLoss()), "rls": op.RLSClassifier(),
    }  # fmt: skip
    assert op.evaluate.prequential(models, (X, y)).scores["network"].overall["accuracy"] > 0.9


def test_a_loaded_binary_network_predicts_the_same(tmp_path: Path) -> None:
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    saved = op.nn.ORFit(binary(1), loss="cross_entropy").learn(X, (X[:, 0] > 0).long())
    saved.save(tmp_path / "net.onepass")
    loaded = op.nn.load(tmp_path / "net.onepass", binary(1))
    assert torch.equal(loaded.predict(X), saved.predict(X))
    torch.testing.assert_close(loaded.predict_proba(X), saved.predict_proba(X))


@pytest.mark.parametrize("loss", ["one_hot", "squared"])
def test_weights_of_rows_of_a_head_whose_outputs_share_directions(loss: Any) -> None:
    X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (X[:, 0] > 0).long() if loss == "one_hot" else X[:, :2]
    made = [op.nn.ORFit(binary(2).double(), loss=loss, learns="last") for _ in range(2)]
    first, twice = made
    first.learn(X[:15], y[:15], torch.full((15,), 2.0))
    twice.noise = 0.5
    twice.learn(X[:15], y[:15])
    torch.testing.assert_close(first.outputs(X), twice.outputs(X), rtol=1e-6, atol=1e-8)


def test_rows_of_weight_0_do_not_calibrate_probabilities() -> None:
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    y, used = (X[:, 0] > 0).long(), torch.arange(60) < 50
    y[50:] = 1 - y[50:]
    made = [op.nn.ORFit(binary(2), loss="one_hot", learns="last") for _ in range(2)]
    made[0].learn(X, y, used.double())
    made[1].learn(X[:50], y[:50])
    torch.testing.assert_close(made[0].predict_proba(X), made[1].predict_proba(X))
    torch.testing.assert_close(made[0].test_then_train(X, y, 0.0 * used), made[1].predict(X))


@pytest.mark.parametrize("loss", [F.cross_entropy, partial(F.cross_entropy, ignore_index=-1),
                                  F.nll_loss, nn.CrossEntropyLoss(ignore_index=-1)])  # fmt: skip
def test_ignored_rows_are_left_out_of_the_comparison_with_a_trivial_prediction(loss: Any) -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(700, 3, generator=g)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
    ignored = getattr(loss, "ignore_index", getattr(loss, "keywords", {}).get("ignore_index", -100))
    y = torch.where(torch.rand(700, generator=g) < 0.6, ignored, y)
    module: nn.Module = nn.Linear(3, 3)
    if loss is F.nll_loss:
        module = nn.Sequential(module, nn.LogSoftmax(1))
    learner = op.nn.EKF(module, loss=loss)
    learner.learn(X, y)  # a warning would be an error
    assert learner.rows_seen_ == int((y != ignored).sum())


def test_a_refused_first_call_has_no_effect() -> None:
    X, y = torch.randn(40, 4), torch.arange(40) % 2
    learner = op.nn.ORFit(binary(2), loss=F.cross_entropy)
    with raises(ShapeError, argument="y"):
        learner.learn(X, torch.randn(40, 3))
    assert learner.learn(X, y).predict(X).dtype == torch.int64


def test_networks_of_tokens_and_counts_are_merged_and_compared_on_rows() -> None:
    tokens = torch.randint(0, 7, (20, 4), generator=torch.Generator().manual_seed(0))
    entropy = nn.CrossEntropyLoss()
    parts = [op.nn.ORFit(Language().double(), 40, 1.0, loss=entropy) for _ in range(2)]
    for part, rows in zip(parts, (tokens[:10], tokens[10:]), strict=True):
        part.learn(rows, rows)
    parts[0].merge(parts[1], rows=(tokens, tokens))
    X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.full((40, 1), 5.0, dtype=torch.float64)  # the loss is negative
    counted = [
        op.nn.ORFit(nn.Linear(3, 1).double(), None, 1.0, loss=nn.PoissonNLLLoss()) for _ in range(2)
    ]
    with torch.no_grad():
        for a, b in zip(
            counted[0].module.parameters(), counted[1].module.parameters(), strict=True
        ):
            b.copy_(a)
    counted[0].learn(X[:20], y[:20])
    counted[1].learn(X[20:], y[20:])
    loss = counted[0]._row_loss
    target = loss.targets(y, 40, 1, LIKE)
    before = loss.error(counted[0].outputs(X), target)
    with pytest.raises(MergeError, match="no worse"):
        refuse_worse(counted[0], counted[1], torch.zeros(4, dtype=torch.float64), (X, y))
    assert loss.error(counted[0].outputs(X), target) == before


def test_a_stream_without_batches_predicts_nothing() -> None:
    assert len(op.nn.EKF(nn.Linear(3, 1)).test_then_train(iter([]))) == 0

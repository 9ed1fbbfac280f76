"""Memories of tensors against memories of arrays: CPU, float32 and device code paths.

The code paths for devices use masks instead of branches on numbers. They are also tested with
tensors of the CPU, by patching `on_device`.
"""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from onepass import linalg
from onepass.memory import Basis, LastDirections, NoMemory, Principal, Random, Sketch
from onepass.memory.blocks import Blocks
from sampling import sample

torch = pytest.importorskip("torch")

Floats = NDArray[Any]
P = 48
PLACES = (((0, 10), (20, 26)), ((10, 20),), ((26, P),))
SETTINGS = {
    "all": (Basis(), 0.0),
    "principal": (Principal(7), 0.0),
    "principal, noisy": (Principal(7), 0.5),
    "projected": (Principal(7, of="projected"), 0.0),
    "sketch": (Sketch(7), 0.0),
    "sketch, noisy": (Sketch(7), 0.5),
    "latest": (LastDirections(7), 0.0),
    "random": (Random(7), 0.0),
    "nothing": (NoMemory(), 0.0),
    "nothing, noisy": (NoMemory(), 0.5),
}
WAYS = ["as it is", "masked"]
if torch.cuda.is_available():
    WAYS.append("cuda")


class Result(NamedTuple):
    w: Floats
    rank: int
    inconsistent_rows: int
    free: Floats


def awkward_stream(count: int, c: int) -> list[tuple[Floats, Floats]]:
    """Rows of c gradients, strong and weak, some zero, repeated, or at odds with rows before."""
    rng = np.random.default_rng(0)
    hidden, rows = rng.normal(size=P), []
    for k in range(count):
        G = rng.normal(size=(P, c)) * rng.uniform(0.3, 3.0)
        if k % 11 == 5:
            G = np.zeros((P, c))
        elif k % 7 == 3:
            G = 2.0 * rows[k - 2][0]
        elif k % 5 == 4 and c > 1:
            G[:, 1] = 0.0
        rows.append((G, G.T @ hidden + (1.0 if k % 14 == 3 else 0.0)))
    return rows


def learn_stream(
    specification: Any, noise: float, c: int, kind: Any, *, by_part: bool = False, count: int = 40
) -> Result:
    """Learn the awkward stream as NumPy arrays of a dtype, or as tensors like `kind`."""
    tensors = isinstance(kind, torch.Tensor)
    array = (lambda a: torch.as_tensor(a).to(kind)) if tensors else (lambda a: a.astype(kind))
    memory = (
        Blocks.start(specification, PLACES, noise, c, kind)
        if by_part
        else specification.start(P, 1, noise, kind)
    )
    w, against = array(np.zeros(P)), 0
    for G, y in awkward_stream(count, c):
        J = array(np.ascontiguousarray(G.T))
        e = (torch.as_tensor(y).to(w.device) if tensors else y) - linalg.like(J @ w, J)
        step = memory.learn(w, J.T, e, np.full(c, noise), group=c)
        w, memory, against = step.w, step.memory, against + step.inconsistent_rows
    probes = array(np.ascontiguousarray(np.random.default_rng(1).normal(size=(3, P)))).T
    free = None if by_part else linalg.like(memory.split(probes).lifted, probes)
    rank = (
        sum(bool(abs(row).max() > 0) for row in memory.columns.rows)
        if (hasattr(memory, "columns"))
        else memory.rank
    )
    numbers = [linalg.host(each) for each in (w, probes if free is None else free)]
    return Result(numbers[0], rank, int(against), numbers[1])


@pytest.fixture(params=WAYS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "masked":
        for place in ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors"):
            monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
    return "cuda" if request.param == "cuda" else "cpu"


@pytest.mark.parametrize(("name", "c"), sample(list(product(SETTINGS, [1, 3])), 7, "tensors"))
def test_memories_of_tensors_equal_memories_of_arrays(name: str, c: int, device: str) -> None:
    specification, noise = SETTINGS[name]
    count = 16 if name == "all" else 40  # while there is a direction left
    expected = learn_stream(specification, noise, c, np.float64, count=count)
    double = torch.empty(0, dtype=torch.float64, device=device)
    for kind, near in ((double, 1e-10), (double.float(), 5e-3)):
        found = learn_stream(specification, noise, c, kind, count=count)
        assert found.rank == expected.rank
        assert found.inconsistent_rows == expected.inconsistent_rows
        size = np.abs(expected.w).max()
        np.testing.assert_allclose(found.w, expected.w, atol=near * size)
        np.testing.assert_allclose(found.free, expected.free, atol=10 * near)


@pytest.mark.parametrize(
    "name", sample([name for name in SETTINGS if "nothing" not in name], 3, "parts")
)
def test_memories_by_parts_of_tensors_equal_arrays(name: str, device: str) -> None:
    specification, noise = SETTINGS[name]
    expected = learn_stream(specification, noise, 2, np.float64, by_part=True, count=12)
    kind = torch.empty(0, dtype=torch.float64, device=device)
    found = learn_stream(specification, noise, 2, kind, by_part=True, count=12)
    assert found.inconsistent_rows == expected.inconsistent_rows
    np.testing.assert_allclose(found.w, expected.w, atol=1e-10 * np.abs(expected.w).max())


def test_zero_columns_are_dropped_when_basis_is_full(device: str) -> None:
    kind = torch.empty(0, dtype=torch.float64, device=device)
    memory, w = Basis().start(P, 1, 0.0, kind), torch.zeros(P, dtype=torch.float64, device=device)
    g = torch.ones(1, P, dtype=torch.float64, device=device)
    for _ in range(5 * P):
        step = memory.learn(w, g.T, torch.ones(1, device=device).double() - g @ w, np.zeros(1))
        w, memory = step.w, step.memory
    assert memory.rank <= P
    assert memory.columns.capacity <= 2 * P
    assert float(w.sum()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", sample(list(SETTINGS), 4, "precision"))
def test_bfloat16_memory_with_float32_weights_is_stable(name: str, device: str) -> None:
    specification, noise = SETTINGS[name]
    half = torch.empty(0, dtype=torch.bfloat16, device=device)
    memory = specification.start(P, 1, noise, half)
    w = torch.zeros(P, device=device)
    for k, (G, y) in enumerate(awkward_stream(30, 2)):
        J = torch.as_tensor(np.ascontiguousarray(G.T), dtype=torch.float32, device=device)
        targets = torch.as_tensor(y, device=device)
        step = memory.learn(w, J.T, targets - (J @ w).double(), np.full(2, noise), group=2)
        if not noise and k % 7 != 3 and k < 7 and k != 5:  # a row that is new is fitted exactly
            fitted = (J @ step.w).double() - targets
            assert float(fitted[torch.linalg.vector_norm(J, dim=1) > 0].abs().max()) < 1e-3
        w, memory = step.w, step.memory
    assert bool(w.isfinite().all())
    assert float(w.abs().max()) < 100.0  # rows that come again are not taken for new ones
    if memory.basis is not None:
        assert memory.basis.dtype == torch.bfloat16


def test_bfloat16_basis_drifts_slowly() -> None:
    rng = np.random.default_rng(0)
    p, m = 2000, 6
    strong = rng.normal(size=(p, 4))
    half = torch.empty(0, dtype=torch.bfloat16)
    coarse, fine = (Principal(m).start(p, 1, 0.0, kind) for kind in (half, np.float64))
    turns = 0
    for _ in range(900):
        G = strong @ rng.normal(size=(4, 1)) + 0.1 * rng.normal(size=(p, 1))
        J = torch.as_tensor(np.ascontiguousarray(G.T), dtype=torch.float32)
        before = len(coarse.subspace.B)
        coarse = coarse.after(J.T, coarse.split(J.T), np.zeros(1))
        fine = fine.after(G, fine.split(G), np.zeros(1))
        turns += len(coarse.subspace.B) <= before
    assert turns > 250
    U = coarse.subspace.U.double().numpy()
    gram = U.T @ U
    leading = fine.subspace.U[:, :4]
    lost = np.linalg.norm(leading - U @ (U.T @ leading), axis=0)
    assert np.abs(gram - np.eye(m)).max() < 2e-3  # the Gram matrix mends it at every turn
    assert lost.max() < 0.03  # of each leading direction, so much is free that should not be

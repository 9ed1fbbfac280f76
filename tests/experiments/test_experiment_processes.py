"""Experiments in several processes; the processes of joblib serve all experiments here."""

from typing import Any

import numpy as np
import pytest

from onepass.stream import Images
from onepass_experiments import art_tables, orfit_deep

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def images() -> Images:
    """Ten classes of images: a bar at the position of the class, with noise."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10, dtype=np.uint8), 200)
    pictures = rng.integers(0, 60, (2000, 28, 28)).astype(np.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        picture[4 + 2 * label : 7 + 2 * label, 6:18] = 250
    return Images(pictures[:1000], labels[:1000], pictures[1000:], labels[1000:])


def test_results_do_not_depend_on_number_of_processes(images: Images) -> None:
    deep: dict[str, Any] = {
        "methods": ["SGD"], "networks": ["mlp"], "streams": ["split"], "draws": 2, "scale": 0.05,
        "settings": {"split": {"mlp": {"SGD": {"step_size": 0.1}}}},
    }  # fmt: skip
    assert orfit_deep(images, processes=2, **deep) == orfit_deep(images, **deep)
    few = Images(
        images.train_images[:200], images.train_labels[:200],
        images.test_images[:100], images.test_labels[:100],
    )  # fmt: skip
    (parallel, _), (sequential, _) = (
        art_tables({"MNIST": few}, draws=2, processes=n) for n in (2, 1)
    )
    assert [entry.accuracy for entry in parallel.entries] == [
        entry.accuracy for entry in sequential.entries
    ]

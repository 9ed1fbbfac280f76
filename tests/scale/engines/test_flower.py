"""One round of ten sites in Flower's simulation equals one pass over the rows of all sites.

Flower excludes versions of packages that other extras need: `make engines` runs this file in an
environment of its own.
"""

import os
from typing import Any

import numpy as np
import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
pytest.importorskip("flwr")

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

import onepass as op
from onepass.errors import ProcessError
from onepass.scale.flower import ExactMerge, client_app

pytestmark = pytest.mark.filterwarnings("ignore")

SITES = 10
WEIGHTS = np.arange(1.0, 7.0)


def rows_of(site: int) -> tuple[Any, Any]:
    """Rows of a site: the sites differ in size, in their means and in the range of targets."""
    rng = np.random.default_rng(site)
    X = rng.normal(loc=site, size=(20 + 30 * site, 6)) * np.geomspace(0.1, 10.0, 6)
    return X, X @ WEIGHTS + 5.0 + rng.normal(size=len(X))


def model_of(kind: str) -> Any:
    """A model for each test."""
    if kind == "regressor":
        return op.RLSRegressor()
    return op.Pipeline(op.features.RandomReLU(40), op.RLSClassifier(ridge=1e-2, prior=0))


def labelled(kind: str, y: Any) -> Any:
    """Targets, or labels, of which each site has only some."""
    return y if kind == "regressor" else np.digitize(y, [50.0, 200.0, 500.0])


def simulate(kind: str, *, sites: int = SITES, fail: bool = False) -> Any:
    """The model that a simulated round returns."""
    found = {}

    def learn(context: Context) -> tuple[str, Any]:
        site = int(context.node_config["partition-id"])
        if fail and site == 3:
            raise OSError("the disk of site 3 is full")
        X, y = rows_of(site)
        return f"site-{site:02d}", model_of(kind).partial_fit(X, labelled(kind, y))

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        try:
            found["model"] = ExactMerge(sites=sites).fit(grid, timeout=120.0)
        except ProcessError as error:
            found["model"] = error

    run_simulation(
        server,
        client_app(learn),
        num_supernodes=SITES,
        backend_config={
            "init_args": {
                "address": "local",  # not a cluster that runs already
                "num_cpus": 2,
                "object_store_memory": 100_000_000,
            },
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return found["model"]


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_round_of_ten_sites_equals_one_pass(kind: str) -> None:
    rows = [rows_of(site) for site in range(SITES)]
    X, y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    merged, whole = simulate(kind), model_of(kind).partial_fit(X, labelled(kind, y))
    assert merged.rows_seen_ == whole.rows_seen_ == len(X)
    if kind == "regressor":
        np.testing.assert_allclose(merged.coef_, whole.coef_, rtol=1e-10)
        np.testing.assert_allclose(merged.intercept_, whole.intercept_, rtol=1e-10)
        again = simulate(kind)
        assert again.coef_.tobytes() == merged.coef_.tobytes()  # replies come in any order
    else:
        np.testing.assert_allclose(
            merged.decision_function(X), whole.decision_function(X), atol=1e-10
        )


def test_failure_of_a_site_is_an_error() -> None:
    error = simulate("regressor", fail=True)
    assert isinstance(error, ProcessError)
    assert "10 sites must send a summary, got 10 replies, 1 of them errors" in str(error)

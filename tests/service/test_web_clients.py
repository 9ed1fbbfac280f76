"""Third-party clients and the running service."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from web_server import Server

import onepass as op

pytestmark = pytest.mark.filterwarnings("default")  # theirs are theirs

X = np.array([[1.0, 2.0], [3.0, 5.0], [0.1, 1 / 3]])
Y = np.array([1.0, 2.0, 1e-17])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clients")
    op.save(op.RLSRegressor(ridge=1e-6).partial_fit(X, Y), folder / "flow.onepass")
    with Server(folder / "data", str(folder / "flow.onepass")) as running:
        yield running


def expected() -> list[float]:
    found: list[float] = op.RLSRegressor(ridge=1e-6).partial_fit(X, Y).predict(X).tolist()
    return found


@pytest.mark.parametrize("binary", [True, False])
def test_triton_client(server: Server, binary: bool) -> None:  # noqa: FBT001
    triton = pytest.importorskip("tritonclient.http", exc_type=ImportError)
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("flow")
        assert client.get_server_metadata()["name"] == "onepass"
        assert client.get_model_metadata("flow")["inputs"][0]["shape"] == [-1, 2]
        assert [each["name"] for each in client.get_model_repository_index()] == ["flow"]
        tensor = triton.InferInput("X", list(X.shape), "FP64")
        tensor.set_data_from_numpy(X, binary_data=binary)
        wanted = triton.InferRequestedOutput("y", binary_data=binary)
        for version in ("", "0"):
            found = client.infer("flow", [tensor], outputs=[wanted], model_version=version)
            assert found.as_numpy("y").tolist() == expected()
        for packing in ("gzip", "deflate"):
            found = client.infer("flow", [tensor], request_compression_algorithm=packing)
            assert found.as_numpy("y").tolist() == expected()
        with pytest.raises(Exception, match="none"):
            client.infer("none", [tensor])
    finally:
        client.close()


def test_kserve_client(server: Server) -> None:
    kserve = pytest.importorskip("kserve", exc_type=ImportError)
    client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", retries=0))
    tensor = kserve.InferInput("X", list(X.shape), "FP64")
    tensor.set_data_from_numpy(X, binary_data=False)
    request = kserve.InferRequest("flow", [tensor])

    async def send_request() -> list[float]:
        assert await client.is_server_live(server.url)
        assert await client.is_server_ready(server.url)
        assert await client.is_model_ready(server.url, "flow")
        answer = await client.infer(server.url, request, model_name="flow")
        await client.close()
        return [float(each) for each in answer.outputs[0].as_numpy()]

    assert asyncio.run(send_request()) == expected()


def test_mlflow_client(server: Server) -> None:
    mlflow = pytest.importorskip("mlflow.pyfunc.scoring_server.client", exc_type=ImportError)
    pd = pytest.importorskip("pandas")
    client = mlflow.ScoringServerClient("127.0.0.1", server.port)
    client.ping()
    assert client.get_version()
    for rows in (X, X.tolist(), pd.DataFrame(X), pd.DataFrame(X, columns=["a", "b"])):
        found = client.invoke(rows).get_predictions()
        assert found[0].tolist() == expected()
    with pytest.raises(Exception, match="error code 400"):
        client.invoke(X[:, :1])

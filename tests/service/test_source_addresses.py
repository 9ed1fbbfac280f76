"""Addresses of sources, and messages without passwords."""

import sys
import traceback
from typing import Any

import pytest

from raising import raises

pytest.importorskip("redis")

from onepass.errors import MissingExtraError, ParameterError
from onepass.service.consumer import source

PLAIN = "redis://localhost:6379/0?stream=flow&target=y"


def test_fields_of_an_address() -> None:
    found: Any = source(
        "rediss://me:s%40cr%2Fet@[::1]:7/3?stream=a%26b&target=y&time=id&text=zip,y&drop=seq&ca=x.pem"
    )
    client, roles = found._client.connection_pool, found._roles
    options = {"host": "::1", "port": 7, "db": 3, "username": "me", "password": "s@cr/et"}
    assert client.connection_kwargs.items() >= {**options, "ssl_ca_certs": "x.pem"}.items()
    assert client.connection_class.__name__ == "SSLConnection"
    assert (found._stream, roles.target, roles.time) == ("a&b", "y", "id")
    assert (roles.text, roles.drop) == ({"zip", "y"}, {"seq"})
    assert found.name == "rediss://[::1]:7/3?stream=a%26b"
    assert source(PLAIN + "&name=plant").name == "plant"


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "redis://localhost:6379/0?stream=flow",
        "redis://localhost:6379/0?target=y",
        PLAIN + "&target=z",
        PLAIN + "&straem=z",
        PLAIN + "&text=",
        PLAIN + "&name=a%0Ab",
        PLAIN + "&name=" + 513 * "a",
        PLAIN + "#there",
        PLAIN.replace("localhost", ""),
        PLAIN.replace("6379", "port"),
        PLAIN.replace("6379", "70000"),
        PLAIN.replace("/0?", "/one?"),
        PLAIN.replace("localhost", "[::1"),
        PLAIN.replace("flow", "\udcff"),
        PLAIN.replace("flow", "%ff"),
        PLAIN.replace("flow", 600 * "a"),
        "http://localhost/",
        "flow",
        "",
    ],
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ParameterError, match=r"address must .* got .*\. \w"):
        source(url)


@pytest.mark.parametrize(
    "secret",
    ["pa/secret", "pa?secret", "pa#secret", "[secret", "pa?secret&x", "pa?secret=1", "pa/secret?x"],
)
def test_error_messages_do_not_contain_the_password(secret: str) -> None:
    url = f"redis://:{secret}@localhost:6379/0?stream=flow&target=y"
    with pytest.raises(ParameterError) as caught:
        source(url)
    assert "secret" not in "".join(traceback.format_exception(caught.value)).replace(url, "")


@pytest.mark.parametrize("secret", ["secret:7", "s@secret", "secret%zz", "s%2Fsecret"])
def test_source_names_do_not_contain_the_password(secret: str) -> None:
    found = source(f"redis://:{secret}@localhost:6379/0?stream=flow&target=y")
    assert found.name == "redis://localhost:6379/0?stream=flow"


def test_unknown_parameter_is_named() -> None:
    with raises(ParameterError, got="unknown parameters (straem"):
        source(PLAIN + "&straem=z")


def test_missing_redis_raises_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with raises(MissingExtraError, remedy="pip install 'onepass[redis]'"):
        source(PLAIN)

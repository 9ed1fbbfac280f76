"""Pictures of the page, of a service that learns the bundled flights. Those of the docs::

ONEPASS_PICTURES=docs python -m pytest tests/service/test_pictures.py

With the variable they are of more rows, and go to that folder.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from page_browser import Browser
from web_server import Server

import onepass as op
from onepass.errors import ServiceError
from onepass.service import Client
from programs import program

PROGRAM = program("a browser")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs chromium or google-chrome")

OUTPUT = os.environ.get("ONEPASS_PICTURES")
ROWS, BLOCK = (122_880, 128) if OUTPUT else (12_288, 512)
LARGEST = 300_000  # bytes of a picture
LOOKS: dict[str, dict[str, Any]] = {
    "serving-light": {"width": 1280},
    "serving-dark": {"width": 1280, "dark": True},
    "serving-phone": {"width": 390, "scale": 2.0},
}
ENDS = {"serving-light": ".refused", "serving-dark": "footer", "serving-phone": ".error"}
"""What a picture ends below."""
SETTINGS = ("--set", "rls.forgetting=0.98", "--set", "rls.ridge=10", "--drift", "adwin")


@dataclass
class Shown:
    """A service that has learned, and what was done."""

    url: str
    refused: list[str] = field(default_factory=list)


def flights() -> Iterator[tuple[Any, Any]]:
    """Flights in the order of their departure, in blocks."""
    rows = 0
    for piece in op.stream.read("flights"):
        for i in range(0, len(piece.y), BLOCK):
            yield piece.X[i : i + BLOCK], piece.y[i : i + BLOCK]
            rows += len(piece.y[i : i + BLOCK])
            if rows >= ROWS:
                return


def fed(url: str, name: str) -> None:
    """Have a learner predict and learn the flights."""
    with Client(url) as client:
        for X, y in flights():
            client.predict(name, X[:64])
            client.learn(name, X, y)
        client.predict_pending(name, X[:48])  # whose answers come later


def learned(url: str) -> Shown:
    """Have two learners learn, and one of them be given what it refuses."""
    shown = Shown(url)
    with Client(url) as client:
        client.create("sgd", "sgd", settings={"sgd.step_size": 0.3})
        with ThreadPoolExecutor(2) as both:
            list(both.map(fed, [url, url], ["flights", "sgd"]))
        row = next(flights())[0].row(0)
        for each, answer in (({**row, "dep_delay": "late"}, 3.0), (row, float("nan"))):
            with pytest.raises(ServiceError) as refused:
                client.learn("flights", [each], [answer])
            shown.refused.append(str(refused.value))
    return shown


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("pictures") / "served"
    words = ("rls", "--name", "flights", *SETTINGS, "--snapshot-rows", str(ROWS // 5))
    with Server(folder, *words) as server:
        yield learned(server.url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM)
    yield browser
    browser.close()


@pytest.mark.parametrize("name", LOOKS)
def test_pictures(name: str, shown: Shown, browser: Browser, tmp_path: Path) -> None:
    tab = browser.tab(f"{shown.url}/#model=flights", still=True, **LOOKS[name])
    tab.until("document.querySelector('#link').dataset.link === 'live'")
    tab.until("document.querySelectorAll('#error-chart path.c0').length === 1")
    words = tab.text("body")
    assert f"{ROWS:,}" in words
    for each in shown.refused:
        assert each.partition(": ")[2][:40] in words
    ended = f"document.querySelector('{ENDS[name]}').getBoundingClientRect().bottom"
    look = {"scale": 1.0, **LOOKS[name]}
    width, height, scale = look["width"], int(tab.evaluate(ended)) + 12, look["scale"]
    tab.resize(width, height, scale)
    path = Path(OUTPUT or tmp_path) / f"{name}.png"
    tab.picture(path)
    tab.close()
    assert not tab.error
    assert path.stat().st_size < LARGEST
    picture = matplotlib.image.imread(path)
    assert picture.shape[:2] == (height * scale, width * scale)
    ground = picture[-1, 0, :3]
    drawn = (abs(picture[:, :, :3] - ground) > 0.02).any(axis=2)
    assert drawn.mean() > 0.2  # panels, curves and words
    assert drawn.any(axis=1).mean() > 0.8  # all the way down

"""The page in a real browser: what it shows, and what it withstands."""

import json
import random
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from page_browser import Browser, Tab
from page_server import Player
from page_states import ATTACK, LONG, NOW, STRANGE, dozen, hostile, lively, state, unborn

from onepass.service import page
from programs import program

PROGRAM = program("a browser")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs chromium or google-chrome")

LINK = "document.querySelector('#link').dataset.link"
TOKEN = "s3cret"  # noqa: S105  of a server that lives as long as a test
Open = Callable[..., tuple[Player, Tab]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM)
    yield browser
    browser.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Open the page on a state; what went wrong in it fails the test."""
    players: list[Player] = []
    tabs: list[Tab] = []

    def begin(said: Any, *, at: str = "", expect: str = "live", **looks: Any) -> tuple[Player, Tab]:
        player = Player(said)
        for name in ("status", "token"):
            setattr(player, name, looks.pop(name, getattr(player, name)))
        players.append(player.__enter__())
        tabs.append(browser.tab(player.url + at, **looks))
        if expect:
            tabs[-1].until(f"{LINK} === '{expect}'")
        return player, tabs[-1]

    yield begin
    for tab in tabs:
        tab.close()
    for player in players:
        player.silent.clear()
        player.stop()
        assert not player.unknown
    # a status that is no success, and a server that is gone, are told in the console too
    wrong = [each for tab in tabs for each in tab.wrong if not each.startswith("network: ")]
    assert not wrong


def texts(tab: Tab, selector: str) -> list[str]:
    words = f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
    said: list[str] = tab.evaluate(words)
    return [each.replace("\u00a0", " ") for each in said]


def shown(tab: Tab, name: str) -> bool:
    value: bool = tab.evaluate(f"document.getElementById('{name}').checkVisibility()")
    return value


def choose(tab: Tab, select: str, value: str) -> None:
    tab.evaluate(f"""
        document.getElementById("{select}").value = "{value}";
        document.getElementById("{select}").dispatchEvent(new Event("change"));
    """)


def anew(tab: Tab) -> None:
    """Ask at once, and wait until the answer is shown."""
    tab.evaluate("""(async () => {
        document.getElementById("pause").click();
        document.getElementById("pause").click();
        await new Promise((done) => setTimeout(done, 60));
    })()""")


# -- what is shown --------------------------------------------------------------------------------


def test_the_documented_answer_is_shown(opened: Open) -> None:
    _, tab = opened(json.loads((page.__doc__ or "").partition("For example::")[2]))
    assert tab.text("h2") == "flow"
    assert tab.text("#made") == "RLSRegressor(ridge=1e-06)"
    assert tab.text("#state") == "ready"
    assert not shown(tab, "trouble")
    assert texts(tab, "dl dt") == [
        "Mean absolute error, last 1,000 rows", "Rows learned", "Learning", "Predicting", "Memory",
        "Waiting", "Refused",
    ]  # fmt: skip
    assert texts(tab, "dl dd") == [
        "0.7900", "0.8100 over all rows", "3,002", "version 1,004", "812", "rows/s", "12,034",
        "rows/s", "5.0 KiB", "5,114 bytes", "2", "rows, for answers", "3", "rows",
    ]  # fmt: skip
    assert texts(tab, ".pace td") == ["300 µs", "2.00 ms", "41.0 µs", "310 µs"]
    assert texts(tab, "#refused-rows td")[1:] == ["1", "`X` holds nan in row 0, column 2."]
    assert texts(tab, "#snapshots-rows > tr > *") == ["0", "0", "2 h ago", "beginning", "328 bytes"]
    assert texts(tab, "#drift-rows td") == ["1,200", "2 min ago", "ADWIN"]
    assert texts(tab, "#sources-rows > tr > *") == ["redis://localhost/flow", "1795-0"]
    assert texts(tab, ".error .readout span") == [
        "row 3,002", "window 0.7900", "all rows 0.8100", "drift",
    ]  # fmt: skip
    assert texts(tab, "#spectrum .readout span") == ["direction 1", "3.100"]
    assert not shown(tab, "models")
    assert tab.evaluate("document.title") == "flow · onepass"
    assert tab.text("h1") == "onepass 0.1.0"


def test_what_a_build_adds_to_the_version_is_left_out(opened: Open) -> None:
    _, tab = opened(state(lively(), onepass="0.1.0.dev435+g256437ae4.d20261123"))
    assert tab.text("h1") == "onepass 0.1.0.dev435"


def test_bars_are_numbered_by_whole_numbers(opened: Open) -> None:
    _, tab = opened(state(lively(spectrum=[3.0, 2.0, 1.0])))
    said = (
        "[...document.querySelectorAll('#spectrum-chart text.x')].map((each) => each.textContent)"
    )
    assert tab.evaluate(said) == ["1", "2", "3"]


def test_before_anything_was_learned(opened: Open) -> None:
    _, tab = opened(state(unborn()))
    assert tab.text("#state") == "not ready"
    assert texts(tab, "dl dd")[0] == "–"
    assert not shown(tab, "spectrum")
    assert "No row was predicted and learned yet." in tab.text(".error")
    assert tab.text("#refused-rows") == "No row was refused."
    words = tab.text("body")
    for word in ("null", "undefined", "NaN", "Infinity", "object"):
        assert word not in words


def test_no_model_at_all(opened: Open) -> None:
    _, tab = opened(state())
    assert tab.text("main") == "No model is served."
    assert tab.evaluate("document.title") == "onepass"


def test_trouble_is_told(opened: Open) -> None:
    _, tab = opened(state(lively(trouble="The disk is full.", ready=False), lively("b")))
    assert tab.text("#trouble") == "The disk is full."
    assert texts(tab, ".chip")[:2] == ["in trouble", "ready"]
    assert tab.evaluate("document.title").startswith("! flow")


def test_times_are_relative_with_the_absolute_beside(opened: Open) -> None:
    player, tab = opened(state(lively()), zone="Asia/Kolkata")
    first = "document.querySelector('#refused-rows time')"
    assert tab.evaluate(f"{first}.title") == "2026-11-23 04:35:32 GMT+5:30"
    assert tab.evaluate(f"{first}.dateTime") == "2026-11-22T23:05:32.600Z"
    tab.until(f"{first}.innerText === '14\\u00a0s ago'")
    assert texts(tab, "#refused-rows time")[1:] == ["1 h ago", "1 d ago"]
    player.status = 503  # and they go on while nobody answers
    tab.until(f"{first}.innerText === '17\\u00a0s ago'")


def test_long_tables_show_the_latest_and_say_so(opened: Open) -> None:
    rows = [{"at": NOW - i, "rows": i, "why": f"reason {i}"} for i in range(30)]
    random.Random(0).shuffle(rows)  # noqa: S311  no secret
    _, tab = opened(state(lively(refused=rows)))
    assert [texts(tab, "#refused-rows tr")[i].split("\t")[1] for i in range(12)] == [
        str(i) for i in range(12)
    ]
    assert len(texts(tab, "#refused-rows tr")) == 12
    assert tab.text("#refused-more") == "the last 12 of 30"


# -- curves ---------------------------------------------------------------------------------------


def numbers(path: str) -> list[tuple[float, float]]:
    points = path.replace("h0", "").replace("M", "L").lstrip("L").split("L")
    return [(float(x), float(y)) for x, y in (each.split() for each in points)]


def drawn(tab: Tab, selector: str) -> str:
    path: str = tab.evaluate(f"document.querySelector('{selector}').getAttribute('d')")
    return path


def test_a_curve_is_where_its_numbers_are(opened: Open) -> None:
    curve = [[1, 8.0, 4.0], [50, 6.0, None], [101, 4.0, 2.0], [201, 2.0, 1.0]]
    _, tab = opened(state(lively(error={"name": "e", "curve": curve, "window_rows": 9})))
    whole, window = drawn(tab, "#error-chart path.c1"), drawn(tab, "#error-chart path.c0")
    points = numbers(whole)
    (x0, y0), (_, y1), (x2, y2), (x3, y3) = points
    assert (x2 - x0) / (x3 - x0) == pytest.approx(0.5, abs=1e-3)
    assert (y2 - y0) / (y3 - y0) == pytest.approx(4 / 6, abs=1e-2)
    assert y0 < y1 < y2 < y3
    assert window.count("M") == 2  # broken where a number is missing
    assert numbers(window)[1] == pytest.approx((x2, y3))


def test_numbers_far_apart_stand_on_a_logarithmic_axis(opened: Open) -> None:
    curve = [[i, 10.0 ** (4 - i), 10.0 ** (4 - i)] for i in range(1, 7)]
    _, tab = opened(state(lively(error={"name": "e", "curve": curve})))
    assert tab.text(".error .scale") == "log scale"
    steps = [y for _, y in numbers(drawn(tab, "#error-chart path.c0"))]
    assert [b - a for a, b in pairwise(steps)] == pytest.approx([steps[1] - steps[0]] * 5, abs=0.2)


def test_drift_is_marked_at_its_row(opened: Open) -> None:
    drift = [{"rows": rows, "at": NOW, "detector": "KSWIN"} for rows in (20_000, 900_000)]
    _, tab = opened(state(lively(rows=40_000, drift=drift)))
    marks = tab.evaluate(
        "[...document.querySelectorAll('#error-chart g.mark')].map((each) => each.textContent)"
    )
    assert marks[:1] == ["drift at row 20,000"]
    flag = drawn(tab, "#error-chart g.mark path:not(.flag)")
    points = numbers(drawn(tab, "#error-chart path.c0"))
    at = float(flag[1:].split()[0])
    assert (at - points[0][0]) / (points[-1][0] - points[0][0]) == pytest.approx(0.5, abs=1e-2)
    assert tab.evaluate("document.querySelectorAll('#error-chart g.mark').length") == 1


def test_a_curve_is_read_with_keys_and_pointer(opened: Open) -> None:
    player, tab = opened(state(lively(rows=400)))
    tab.evaluate("document.querySelector('#error-chart input').focus()")
    tab.press("Home")
    value = "document.querySelector('#error-chart input').getAttribute('aria-valuetext')"
    assert tab.evaluate(value).startswith("row 1, window ")
    tab.press("ArrowRight")
    assert tab.evaluate(value).startswith("row 2, window ")
    assert texts(tab, ".error .readout span")[0] == "row 2"
    player.state = state(lively(rows=900))  # what is looked at stays
    tab.until("document.getElementById('rows-seen').innerText === '900'")
    assert texts(tab, ".error .readout span")[0] in {"row 1", "row 3"}
    tab.evaluate("document.activeElement.blur()")
    assert texts(tab, ".error .readout span")[0] == "row 900"
    box = tab.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])"
        "(document.querySelector('#error-chart svg').getBoundingClientRect())"
    )
    tab.point(box[0] + box[2] / 2, box[1] + box[3] / 2)
    middle = texts(tab, ".error .readout span")[0]
    assert 380 < int(middle.split()[1]) < 520
    assert tab.evaluate("document.querySelectorAll('#error-chart .cross circle').length") == 2
    tab.point(1, 1)
    assert texts(tab, ".error .readout span")[0] == "row 900"


def test_the_last_part_can_be_looked_at_alone(opened: Open) -> None:
    _, tab = opened(state(lively(rows=40_000)))
    choose(tab, "span", "0.1")
    count = len(numbers(drawn(tab, "#error-chart path.c0")))
    assert 38 <= count <= 42
    assert not texts(tab, ".error .key.mark")


def test_all_points_are_to_be_had_as_a_table(opened: Open) -> None:
    _, tab = opened(state(lively(rows=60)))
    tab.evaluate("document.querySelector('.error summary').click()")
    tab.until("document.querySelectorAll('.error details tbody tr').length === 60")
    assert texts(tab, ".error details thead th") == ["Row", "window", "all rows"]
    assert texts(tab, ".error details tbody tr")[-1].startswith("row 60\t0.")


# -- several models -------------------------------------------------------------------------------


def test_what_there_is_nothing_of_yet_is_said(opened: Open) -> None:
    one = lively("m", drift=[], positions={"redis://localhost/0": None}, watching={})
    _, tab = opened(state(one))
    assert texts(tab, "#drift-rows td") == ["No detector: --drift adwin would be one."]
    assert texts(tab, "#sources-rows > tr > *") == ["redis://localhost/0", "nothing yet"]
    _, tab = opened(state(lively("m", drift=[], positions={}, watching={"adwin": True})))
    assert texts(tab, "#drift-rows td") == ["No alarm yet."]
    assert texts(tab, "#sources-rows > tr > *") == ["Rows come by request alone."]


def test_the_one_with_most_rows_is_shown_first(opened: Open) -> None:
    models = [lively("a", rows_seen=0), lively("b", rows_seen=7), lively("c", rows_seen=7)]
    _, tab = opened(state(*models))
    assert tab.evaluate("document.querySelector('#name').textContent") == "b"


def test_a_model_is_chosen_by_its_link(opened: Open) -> None:
    _, tab = opened(dozen())
    assert len(texts(tab, "#models-rows tr")) == 12
    assert texts(tab, "[aria-current=true]") == ["tides"]
    tab.evaluate("document.querySelectorAll('#models-rows a')[2].focus()")
    tab.press("Enter", "\r")
    tab.until("document.querySelector('h2').innerText === 'bearing-7/temperature'")
    assert texts(tab, "[aria-current=true]") == ["bearing-7/temperature"]
    assert tab.evaluate("location.hash") == "#model=bearing-7%2Ftemperature"
    assert tab.text("#rows-seen") == "83,000"
    tab.evaluate("history.back()")
    tab.until("document.querySelector('h2').innerText === 'tides'")


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("#model=arrival%20delay", "arrival delay"),
        ("#model=bearing-7/temperature", "bearing-7/temperature"),
        ("#model=gone", "tides"),
        ("#model=%E0%A4%A", "tides"),
        ("#detail", "tides"),
    ],
)
def test_the_address_chooses_a_model(opened: Open, at: str, name: str) -> None:
    _, tab = opened(dozen(), at=at)
    assert tab.text("h2") == name


def test_a_model_that_goes_makes_room(opened: Open) -> None:
    player, tab = opened(dozen(), at="#model=wind")
    player.state = state(lively("flow"), lively("tides"))
    tab.until("document.querySelectorAll('#models-rows tr').length === 2")
    assert tab.text("h2") == "flow"
    player.state = state(lively("flow"))
    tab.until("!document.getElementById('models').checkVisibility()")


# -- hostile answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_that_the_server_says_is_run_or_breaks_the_page(opened: Open, width: int) -> None:
    _, tab = opened(hostile(), width=width)
    tags = """[...new Set([...document.querySelectorAll('body *')].map((each) => each.localName))]
        .sort().join()"""
    before = tab.evaluate(tags)
    links = tab.evaluate("document.querySelectorAll('#models-rows a').length")
    assert links == 12
    for i in range(links):
        tab.evaluate(f"location.hash = document.querySelectorAll('#models-rows a')[{i}].hash")
        tab.until(
            f"document.querySelectorAll('#models-rows tr')[{i}].className === 'chosen' || {i} > 7"
        )
        assert tab.evaluate("window.hurt") is None
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(tags) == before or i > 7
    assert not {"script", "img", "b"} & set(before.split(","))
    assert tab.evaluate(
        "[...document.querySelectorAll('a')].every((each) => each.getAttribute('href')[0] === '#')"
    )
    assert tab.evaluate("Object.prototype.hurt") is None


@pytest.mark.parametrize("name", [ATTACK, STRANGE, LONG[:100], "__proto__", "</title>&amp;"])
def test_names_are_shown_as_they_are(opened: Open, name: str) -> None:
    _, tab = opened(state(lively(name, trouble=name, positions={name: name})))
    expected = json.dumps(name.replace("\ud800", "\ufffd"))
    for place in ("name", "trouble"):
        assert tab.evaluate(
            f"document.getElementById('{place}').textContent.toWellFormed() === {expected}"
        )
    assert tab.evaluate(
        f"document.querySelector('#sources-rows td').textContent.toWellFormed() === {expected}"
    )


def mutated(x: Any, rng: random.Random) -> Any:
    """The same, with some parts of it replaced by what does not belong there."""
    if rng.random() < 0.06:
        junk: list[Any] = [
            None, True, -1, 0, 1e308, -1e308, 5e-324, 1e21, "", "x", "1e5", [], {}, [[]], [None],
            {"__proto__": 1}, {"length": 5}, ATTACK,
        ]  # fmt: skip
        return rng.choice(junk)
    if isinstance(x, dict):
        return {name: mutated(value, rng) for name, value in x.items() if rng.random() > 0.02}
    return [mutated(each, rng) for each in x[:40]] if isinstance(x, list) else x


def test_answers_that_are_not_as_they_should_be_are_shown_as_far_as_they_go(opened: Open) -> None:
    """100 answers, each shown at once; none throws, and none writes what is no word."""
    _, tab = opened(state(lively()))
    rng = random.Random(1)  # noqa: S311  no secret
    for _ in range(2):
        states = []
        for _ in range(50):
            said = mutated(state(lively(), unborn(), lively("b", rows=7)), rng)
            if isinstance(said, dict) and isinstance(said.get("models"), list):
                states.append(said)
        found = tab.evaluate(f"""(async () => {{
            const states = {json.dumps(states)};
            const odd = [];
            for (const each of states) {{
                window.fetch = async () => new Response(JSON.stringify(each));
                document.getElementById("pause").click();
                document.getElementById("pause").click();
                for (let i = 0; i < 8; i += 1) await new Promise((done) => setTimeout(done));
                if ({LINK} !== "live") odd.push(["link", each]);
                const html = document.documentElement.outerHTML;
                const at = html.search(/NaN|Infinity|undefined/);
                if (at >= 0) odd.push([html.slice(at - 90, at + 50), each]);
            }}
            return odd.slice(0, 1);
        }})()""")
        assert not found
    assert tab.evaluate("window.hurt") is None


# -- asking ---------------------------------------------------------------------------------------


def asked_again(player: Player, times: int = 1) -> None:
    """Wait until the page has asked so many times more."""
    until = player.asked + times
    patience = time.monotonic() + 30.0
    while player.asked < until:
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_it_asks_each_second_but_not_while_nobody_looks(opened: Open) -> None:
    player, tab = opened(state(lively()))
    delays(tab)
    asked_again(player, 2)
    assert set(tab.until("window.delays.length && window.delays")) == {1000}
    tab.show(hidden=True)
    time.sleep(0.3)
    before = player.asked
    time.sleep(1.5)
    assert player.asked == before
    tab.show(hidden=False)
    asked_again(player)


def delays(tab: Tab) -> None:
    """Keep how long the page waits before it asks again."""
    tab.evaluate("""
        window.delays = [];
        const timer = window.setTimeout;
        window.setTimeout = (what, delay) => {
            if (delay !== 10000) window.delays.push(delay);
            return timer(what, delay);
        };
    """)


def test_it_can_be_paused(opened: Open) -> None:
    player, tab = opened(state(lively()))
    tab.evaluate("document.getElementById('pause').click()")
    assert tab.text("#link") == "Paused"
    assert tab.evaluate("document.getElementById('pause').ariaPressed") == "true"
    time.sleep(0.2)
    before = player.asked
    time.sleep(1.4)
    assert player.asked == before
    tab.evaluate("document.getElementById('pause').click()")
    tab.until(f"{LINK} === 'live'")
    assert player.asked == before + 1


def test_it_backs_off_and_says_so(opened: Open) -> None:
    player, tab = opened(state(lively()))
    delays(tab)
    player.status = 503
    tab.until(f"{LINK} === 'lost'")
    assert tab.text("#lost-why") == "The server answered 503. Below is what it said last."
    for i in range(5):
        assert tab.text("#lost-wait").startswith(("Next try in ", "Trying."))
        tab.evaluate("document.getElementById('again').click()")
        tab.until(f"window.delays.filter((each) => each > 1000).length > {i + 1}")
    waits = tab.evaluate("window.delays.filter((each) => each > 1000)")
    assert waits[:6] == [2000, 4000, 8000, 16000, 30000, 30000]
    assert tab.text("#rows-seen") == "48,210"
    player.status = 200
    tab.evaluate("document.getElementById('again').click()")
    tab.until(f"{LINK} === 'live'")
    assert not shown(tab, "lost")


def test_a_server_that_is_gone_and_comes_back(opened: Open) -> None:
    player, tab = opened(state(lively()))
    player.stop()
    tab.until(f"{LINK} === 'lost'")
    assert tab.text("#lost-why").startswith("The server cannot be reached.")


@pytest.mark.parametrize(
    "said", [b"", b"{", b"[]", b"{}", b'{"models": 3}', b"null", b"\xff\xfe", b"<html>"]
)
def test_an_answer_that_is_none(opened: Open, said: bytes) -> None:
    _, tab = opened(said, expect="lost")
    assert tab.text("#lost-why") == "What the server answered is no state of onepass."
    assert not shown(tab, "model")


def test_a_server_that_is_silent(opened: Open) -> None:
    player, tab = opened(state(lively()))
    player.silent.set()
    tab.evaluate("""
        document.getElementById("pause").click();
        const timer = window.setTimeout;
        window.setTimeout = (what, wait) => timer(what, wait === 10000 ? 50 : wait);
        document.getElementById("pause").click();
    """)
    tab.until(f"{LINK} === 'lost'")
    assert tab.text("#lost-why").startswith("The server did not answer within 10 s.")


def test_a_busy_server_says_how_long_to_wait(opened: Open) -> None:
    _, tab = opened(state(lively()))
    tab.evaluate(
        "window.fetch = async () => new Response('', {status: 429, headers: {'Retry-After': '70'}})"
    )
    tab.until(f"{LINK} === 'lost'")
    assert tab.text("#lost-wait") in {"Next try in 70 s.", "Next try in 69 s."}


def test_what_has_not_changed_is_left_alone(opened: Open) -> None:
    """So nobody who reads, or has chosen text, is disturbed."""
    player, tab = opened(state(dozen()["models"][0]))
    tab.evaluate("""
        window.changes = [];
        new MutationObserver((all) => {
            const but = all.filter((each) => each.target.localName !== "time");
            window.changes.push(...but.map((each) => [each.type, each.target.id]));
        }).observe(document, {
            subtree: true, childList: true, characterData: true, attributes: true
        });
    """)
    asked_again(player, 2)
    assert not tab.evaluate("window.changes")


# -- a protected server ---------------------------------------------------------------------------


def enter(tab: Tab, token: str) -> None:
    tab.evaluate(f"document.getElementById('token').value = {json.dumps(token)}")
    tab.evaluate("document.querySelector('#door button').click()")


def test_a_token_is_asked_for_once_and_brought(opened: Open) -> None:
    player, tab = opened(state(lively()), token=TOKEN, expect="locked")
    assert player.brought == [None]
    assert not shown(tab, "model")
    assert tab.evaluate("document.activeElement.id") == "token"
    asked = player.asked
    time.sleep(1.2)
    assert player.asked == asked  # a locked door is not knocked at again and again
    enter(tab, "wrong")
    tab.until(
        "document.getElementById('door-why').innerText === 'The server did not take this token.'"
    )
    for bad in ("schlüssel", "two words", "\u202e", "   "):
        asked = player.asked
        tab.evaluate("document.getElementById('token').required = false")
        enter(tab, bad)
        assert tab.text("#door-why") == "A token is letters, digits and signs without spaces."
        assert player.asked == asked
    tab.until("document.getElementById('door').checkVisibility()")
    enter(tab, f" {TOKEN} ")
    tab.until(f"{LINK} === 'live'")
    assert player.brought[-1] == f"Bearer {TOKEN}"
    assert tab.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    tab.again()
    tab.until(f"{LINK} === 'live'")
    assert player.brought[-1] == f"Bearer {TOKEN}"
    assert TOKEN not in tab.evaluate("document.documentElement.outerHTML")
    tab.evaluate("document.getElementById('forget').click()")
    tab.until(f"{LINK} === 'locked'")
    assert player.brought[-1] is None
    assert tab.evaluate("sessionStorage.length") == 0


def test_a_token_that_holds_no_more_is_asked_for_again(opened: Open) -> None:
    player, tab = opened(state(lively()), token=TOKEN, expect="locked")
    enter(tab, TOKEN)
    tab.until(f"{LINK} === 'live'")
    player.token += "!"
    tab.until(f"{LINK} === 'locked'")
    assert tab.text("#door-why") == "The server did not take this token."
    assert not shown(tab, "model")


# -- for all who look -----------------------------------------------------------------------------


def test_colours_are_the_systems_or_those_that_were_chosen(opened: Open) -> None:
    _, tab = opened(state(lively()), dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(ground) == "rgb(13, 17, 21)"
    choose(tab, "colours", "light")
    assert tab.evaluate(ground) == "rgb(243, 245, 247)"
    tab.again()
    tab.until(f"{LINK} === 'live'")
    assert tab.evaluate(ground) == "rgb(243, 245, 247)"
    assert tab.evaluate("document.getElementById('colours').value") == "light"


@pytest.mark.parametrize("width", [320, 360, 412, 700, 1000, 1280, 2200])
def test_it_fits_every_width(opened: Open, width: int) -> None:
    wide = {
        "positions": {
            "kafka://broker-1.example.org:9092/a/long/topic": "0:118273612,1:99182731,2:12"
        }
    }
    _, tab = opened(dozen(), width=width)
    for said in (dozen(), state(lively()), state(lively(**wide)), state(unborn(), unborn("b"))):
        tab.evaluate(f"window.fetch = async () => new Response({json.dumps(json.dumps(said))})")
        anew(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        out = tab.evaluate(f"""[...document.querySelectorAll("main *, nav *")].filter((each) =>
            each.checkVisibility() && !each.closest(".unseen, .chip, svg")
            && each.getBoundingClientRect().right > {width}).map((each) => each.outerHTML)""")
        if width >= 360:  # on less, five columns are scrolled within their panel
            assert not out


def test_a_screen_reader_is_told_what_is_what(opened: Open) -> None:
    _, tab = opened(dozen(), at="#model=flow")
    nodes = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in tab.accessible()
    ]
    roles = [role for role, _ in nodes]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert roles.count(landmark) == 1, landmark
    assert roles.count("region") == 7
    for role, name in nodes:
        if role in {
            "button",
            "combobox",
            "slider",
            "link",
            "table",
            "image",
            "region",
            "heading",
            "navigation",
        }:
            assert name, role
    assert [name for role, name in nodes if role == "heading"] == [
        "onepass 0.1.0", "flow", "Prequential mean absolute error", "Throughput and latency",
        "Memory spectrum", "Last refused", "Snapshots", "Drift", "Sources",
    ]  # fmt: skip
    images = [name for role, name in nodes if role == "image"]
    assert len(images) == 4
    assert images[0].startswith("Prequential curve, row 1 to row 3,000: window from 0.7")
    assert roles.count("slider") == 4
    assert roles.count("columnheader") == 10 + 3 + 3 + 5 + 3 + 2
    assert roles.count("rowheader") == 12 + 2 + 4 + 2
    live = "[role=status], [role=alert], [aria-live]"
    ids = f"[...document.querySelectorAll('{live}')].map((each) => each.id).join()"
    assert tab.evaluate(ids) == "link-says,lost-why,door-why,trouble"


def test_all_is_reached_with_the_keyboard(opened: Open) -> None:
    _, tab = opened(state(lively(), lively("b")))
    tab.evaluate("document.activeElement.blur()")
    reached = []
    while "body" not in reached:
        tab.press("Tab")
        reached.append(tab.evaluate("(({id, className, localName}) => id || className || localName)"
                                    "(document.activeElement)"))  # fmt: skip
        if reached[-1] == "body":
            break
        rings = tab.evaluate("""(() => {
            const at = document.activeElement;
            return [at, at.closest(".plot")].some((each) =>
                each && getComputedStyle(each).outlineStyle !== "none");
        })()""")
        assert rings, reached[-1]
    assert reached == [
        "skip", "pause", "data", "data", "span", "unseen", "summary", "unseen", "unseen", "unseen",
        "summary", "colours", "body",
    ]  # fmt: skip


def test_nothing_moves_for_those_who_want_it_still(opened: Open) -> None:
    moving = """[...document.querySelectorAll("*")].filter((each) => {
        const style = getComputedStyle(each);
        return parseFloat(style.transitionDuration) > 0 || style.animationName !== "none";
    }).length"""
    _, still = opened(state(lively()), still=True)
    assert still.evaluate(moving) == 0


# -- words for numbers ----------------------------------------------------------------------------

FORMATS = {
    "count(0)": "0",
    "count(1234567)": "1,234,567",
    "count(null)": "–",
    "count(-3)": "−3",
    "amount(0.79)": "0.7900",
    "amount(12.34567)": "12.35",
    "amount(123456)": "123,500",
    "amount(0)": "0",
    "amount(-0.5)": "−0.5000",
    "amount(1234567)": "1.235e6",
    "amount(0.00001234)": "1.234e−5",
    "amount(null)": "–",
    "rate(0)": "0",
    "rate(0.25)": "0.25",
    "rate(81.24)": "81.2",
    "rate(9.999)": "10.0",
    "rate(99.96)": "100",
    "rate(12034.2)": "12,034",
    "duration(0.0003)": "300 µs",
    "duration(0.00204)": "2.04 ms",
    "duration(0.9996)": "1.00 s",
    "duration(0.0009999)": "1.00 ms",
    "duration(3e-8)": "0.0300 µs",
    "duration(75)": "1.25 min",
    "duration(null)": "–",
    "size(328)": "328 bytes",
    "size(1023)": "1,023 bytes",
    "size(1024)": "1.0 KiB",
    "size(8388608)": "8.0 MiB",
    "size(1048575)": "1.0 MiB",
    "size(5e14)": "455 TiB",
    "size(null)": "–",
    "tick(0, 5)": "0",
    "tick(0.25, 0.05)": "0.25",
    "tick(1500, 500)": "1,500",
    "tick(20000, 5000)": "20k",
    "tick(12500, 500)": "12.5k",
    "tick(1500000, 500000)": "1.5M",
    "tick(2e9, 1e9)": "2G",
    "tick(0.00001, 0.00001)": "1e−5",
    "tick(-4, 2)": "−4",
    "ago(0.4)": "now",
    "ago(12.9)": "12 s ago",
    "ago(3599)": "59 min ago",
    "ago(-5)": "in 5 s",
    "ago(90000)": "1 d ago",
    "ago(null)": "–",
    "past(297)": "−297 s",
    "past(0)": "now",
    "past(300)": "−5 min",
    "past(7200)": "−2 h",
    "moment(null)": "",
    "moment(1e15)": "",
    "moment(0)": "1970-01-01 00:00:00 UTC",
    "stamp(1e15)": "",
    "stamp(0)": "1970-01-01T00:00:00.000Z",
}


def test_numbers_in_words(opened: Open) -> None:
    _, tab = opened(state(lively()))
    said = tab.evaluate(f"""import(new URL("page/formats.js", location)).then((formats) =>
        {json.dumps(list(FORMATS))}.map((each) => {{
            const [, name, given] = each.match(/(\\w+)\\((.*)\\)/);
            return formats[name](...JSON.parse(`[${{given}}]`));
        }}))""")
    told = [each.replace("\u00a0", " ") for each in said]
    assert dict(zip(FORMATS, told, strict=True)) == FORMATS


def test_ticks_are_round_and_few(opened: Open) -> None:
    """Whatever the numbers: at least one, never many, all within, in order, none not finite."""
    _, tab = opened(state(lively()))
    odd = tab.evaluate("""import(new URL("page/axes.js", location)).then((axes) => {
        const { level, course, timeStep } = axes;
        const odd = [];
        let seed = 1;
        const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
        for (let i = 0; i < 3000; i += 1) {
            const scale = 10 ** Math.round(560 * random() - 280);
            const numbers = [random(), random() * 10 ** (8 * random()), 0.5]
                .map((x) => x * scale * (random() < 0.2 ? -1 : 1));
            const all = [level(numbers, { log: i % 2 === 0, zero: i % 3 === 0 }),
                course(Math.min(...numbers), Math.max(...numbers)),
                course(-Math.round(10 ** (7 * random())), 0, { even: timeStep })];
            for (const { ticks, low, high, place } of all) {
                const places = ticks.map(place);
                const fine = ticks.length >= 1 && ticks.length <= 12
                    && places.every((x) => x > -1e-6 && x < 1 + 1e-6)
                    && places.every((x, j) => j === 0 || x > places[j - 1]);
                if (!fine) odd.push([numbers, ticks, low, high]);
            }
        }
        return odd.slice(0, 2);
    })""")
    assert not odd

"""The page in a real browser."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from page_browser import Browser, Tab
from page_server import Player
from page_states import ATTACK, LONG, NOW, STRANGE, WHY, dozen, hostile, lively, state, unborn

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
    """Open the page on a state; errors of the page fail the test."""
    players: list[Player] = []
    tabs: list[Tab] = []

    def begin(
        served_state: Any, *, at: str = "", expect: str = "live", **looks: Any
    ) -> tuple[Player, Tab]:
        player = Player(served_state)
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
    error = [each for tab in tabs for each in tab.error if not each.startswith("network: ")]
    assert not error


def texts(tab: Tab, selector: str) -> list[str]:
    words = f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
    served_state: list[str] = tab.evaluate(words)
    return [each.replace("\u00a0", " ") for each in served_state]


def shown(tab: Tab, name: str) -> bool:
    value: bool = tab.evaluate(f"document.getElementById('{name}').checkVisibility()")
    return value


def choose(tab: Tab, select: str, value: str) -> None:
    tab.evaluate(f"""
        document.getElementById("{select}").value = "{value}";
        document.getElementById("{select}").dispatchEvent(new Event("change"));
    """)


def anew(tab: Tab) -> None:
    """Request the state immediately, and wait until it is shown."""
    tab.evaluate("""(async () => {
        document.getElementById("pause").click();
        document.getElementById("pause").click();
        await new Promise((done) => setTimeout(done, 60));
    })()""")


# -- values ----------------------------------------------------------------------------------------


def test_all_values_of_a_state_are_shown(opened: Open) -> None:
    curve = [
        [1, 4.2, 4.2, NOW - 60, 4.2], [1500, 0.9, 0.85, NOW - 30, None],
        [3002, 0.81, 0.79, NOW - 1, 2.1],
    ]  # fmt: skip
    model = lively(
        rows=3002,
        version=1004,
        nbytes=5114,
        prequential_error={
            "name": "mean absolute error", "all": 0.81, "window": 0.79, "window_rows": 1000,
            "r2": 0.859, "baseline": {"name": "mean so far", "all": 2.05, "window": 2.1},
            "curve": curve,
        },
        rates={"learned": 812.0, "predicted": 12034.0, "curve": [[2, 790, 11800], [1, 801, 11950]]},
        latency={
            "learn": {"p50": 0.0003, "p99": 0.002}, "predict": {"p50": 4.1e-5, "p99": 0.00031},
        },
        drift=[{"rows": 1200, "at": NOW - 42, "detector": "adwin"}],
    )  # fmt: skip
    _, tab = opened(state(model))
    assert tab.text("#name") == "flow"
    assert tab.text("#made") == "RLSRegressor(ridge=1e-06, forgetting=0.9999)"
    assert tab.text("#state") == "ready"
    assert not shown(tab, "problem")
    assert texts(tab, "dl dt") == [
        "Mean absolute error, last 1,000 rows", "Baseline", "R²", "Rows learned", "Learning",
        "Predicting", "Memory", "Labels pending", "Refused",
    ]  # fmt: skip
    assert texts(tab, "dl dd") == [
        "0.7900", "0.8100 over all rows", "2.100", "2.050 over all rows", "0.859",
        "of the last rows", "3,002", "version 1,004", "812", "rows/s", "12,034",
        "rows/s", "4.99 KiB", "2", "rows", "3", "rows",
    ]  # fmt: skip
    assert texts(tab, ".pace td") == ["300 µs", "2.00 ms", "41.0 µs", "310 µs"]
    assert tab.text("#baseline-name") == "baseline: mean so far"
    assert texts(tab, "#refused-rows tr:first-child td") == ["14s ago", "14s ago", "1", WHY[0]]
    assert texts(tab, "#snapshots-rows tr:last-child > *") == [
        "0", "0", "1d ago", "beginning", "328 bytes", "Roll back",
    ]  # fmt: skip
    assert texts(tab, "#drift-rows td") == ["1,200", "42s ago", "adwin"]
    assert texts(tab, "#sources-rows > tr > *")[:2] == [
        "redis://localhost:6379/readings", "1795388746123-0",
    ]  # fmt: skip
    assert texts(tab, ".error .readout span") == [
        "2026-11-22 23:05:45 UTC, row 3,002", "window 0.7900", "all rows 0.8100",
        "baseline 2.100", "drift",
    ]  # fmt: skip
    assert texts(tab, "#learned-chart .readout span") == ["23:05:46", "801 rows/s"]
    assert not shown(tab, "models")
    assert tab.evaluate("document.title") == "flow · onepass"
    assert tab.text("h1") == "onepass 0.1.0"


def test_build_metadata_of_the_version_is_omitted(opened: Open) -> None:
    _, tab = opened(state(lively(), onepass="0.1.0.dev435+g256437ae4.d20261123"))
    assert tab.text("h1") == "onepass 0.1.0.dev435"


def test_unfitted_model_is_shown_without_null_values(opened: Open) -> None:
    _, tab = opened(state(unborn()))
    assert tab.text("#state") == "not ready"
    assert texts(tab, "dl dd")[0] == "–"
    assert "No data yet." in tab.text(".error")
    assert tab.text("#refused-rows") == "No rows were refused."
    words = tab.text("body")
    for word in ("null", "undefined", "NaN", "Infinity", "object"):
        assert word not in words


def test_server_without_rows_shows_commands(opened: Open) -> None:
    player, tab = opened(state())
    url = f"{player.url.replace(' ', '%20')}v2/models"
    create = f"""curl -X PUT '{url}/first' -d '{{"model": "rls"}}'"""
    learn = f"""curl '{url}/first/learn' -d '{{"x": {{"km": 3.0}}, "y": 7}}'"""
    assert texts(tab, "#start h2, #start p, #start code") == [
        "The server has no models", "Create a model:", create,
        "Learn a row, whose columns have names, and its target:", learn,
    ]  # fmt: skip
    assert tab.evaluate("document.title") == "onepass"
    player.state = state(lively("new", rows_seen=0))
    tab.until("!document.getElementById('start-create').checkVisibility()")
    assert tab.text("#start-name") == "new has learned no row"
    assert tab.text("#start-learn-command") == learn.replace("first", "new")
    player.state = state(lively("new", rows_seen=1))
    tab.until("!document.getElementById('start').checkVisibility()")


def test_commands_of_a_protected_server_have_a_token(opened: Open) -> None:
    player, tab = opened(state(roles=["predict"]), token=TOKEN, expect="locked")
    enter(tab, TOKEN)
    tab.until(f"{LINK} === 'live'")
    assert tab.text("#start-create-why") == "Create a model, with a token of the role admin:"
    assert all("-H 'Authorization: Bearer TOKEN' -d" in each for each in texts(tab, "#start code"))
    assert TOKEN not in tab.text("body")
    assert player.brought[-1] == f"Bearer {TOKEN}"


def test_errors_are_shown(opened: Open) -> None:
    _, tab = opened(state(lively(error="The disk is full.", ready=False), lively("b")))
    assert tab.text("#problem") == "The disk is full."
    assert texts(tab, ".chip")[:3] == ["Live", "problem", "ready"]
    assert tab.evaluate("document.title").startswith("! flow")


def test_times_are_relative_with_absolute_titles(opened: Open) -> None:
    player, tab = opened(state(lively()), zone="Asia/Kolkata")
    first = "document.querySelector('#refused-rows time')"
    assert tab.evaluate(f"{first}.title") == "2026-11-23 04:35:32 GMT+5:30"
    assert tab.evaluate(f"{first}.dateTime") == "2026-11-22T23:05:32.600Z"
    tab.until(f"{first}.innerText === '14s ago'")
    assert texts(tab, "#refused-rows time") == [
        "14s ago", "14s ago", "1h ago", "1h ago", "1d ago", "1d ago",
    ]  # fmt: skip
    player.status = 503  # and they go on while nobody answers
    tab.until(f"{first}.innerText === '17s ago'")


def test_long_tables_show_the_latest_rows(opened: Open) -> None:
    rows = [
        {"at": NOW - i, "first": NOW, "times": 1, "rows": i, "why": f"reason {i}"}
        for i in range(30)
    ]
    _, tab = opened(state(lively(refused=rows)))
    assert [texts(tab, "#refused-rows tr")[i].split("\t")[2] for i in range(12)] == [
        str(i) for i in range(12)
    ]
    assert len(texts(tab, "#refused-rows tr")) == 12
    assert tab.text("#refused-more") == "12 of 30"


# -- curves ----------------------------------------------------------------------------------------


def numbers(path: str) -> list[tuple[float, float]]:
    points = path.replace("h0", "").replace("M", "L").lstrip("L").split("L")
    return [(float(x), float(y)) for x, y in (each.split() for each in points)]


def drawn(tab: Tab, selector: str) -> str:
    path: str = tab.evaluate(f"document.querySelector('{selector}').getAttribute('d')")
    return path


def test_curves_are_drawn_to_scale(opened: Open) -> None:
    curve = [
        [1, 8.0, 4.0, NOW - 200], [50, 6.0, None, NOW - 150], [77, 4.0, 2.0, NOW - 100],
        [201, 2.0, 1.0, NOW],
    ]  # fmt: skip
    _, tab = opened(
        state(lively(prequential_error={"name": "e", "curve": curve, "window_rows": 9}))
    )
    whole, window = drawn(tab, "#error-chart path.c1"), drawn(tab, "#error-chart path.c0")
    points = numbers(whole)
    (x0, y0), (_, y1), (x2, y2), (x3, y3) = points
    assert (x2 - x0) / (x3 - x0) == pytest.approx(0.5, abs=1e-3)
    assert (y2 - y0) / (y3 - y0) == pytest.approx(4 / 6, abs=1e-2)
    assert y0 < y1 < y2 < y3
    assert window.count("M") == 2  # broken where a number is missing
    assert numbers(window)[1] == pytest.approx((x2, y3))


def test_wide_ranges_have_a_logarithmic_axis(opened: Open) -> None:
    curve = [[i, 10.0 ** (4 - i), 10.0 ** (4 - i), NOW + i] for i in range(1, 7)]
    _, tab = opened(state(lively(prequential_error={"name": "e", "curve": curve})))
    assert tab.text(".error .scale") == "log scale"
    steps = [y for _, y in numbers(drawn(tab, "#error-chart path.c0"))]
    assert [b - a for a, b in pairwise(steps)] == pytest.approx([steps[1] - steps[0]] * 5, abs=0.2)


def test_drift_alarms_are_marked_at_their_time(opened: Open) -> None:
    drift = [{"rows": 20_000, "at": NOW - back, "detector": "kswin"} for back in (4000, 90_000)]
    _, tab = opened(state(lively(rows=40_000, drift=drift)))  # of which one in 0.2 s
    marks = tab.evaluate(
        "[...document.querySelectorAll('#error-chart g.mark')].map((each) => each.textContent)"
    )
    assert marks[:1] == ["drift at row 20,000"]
    flag = drawn(tab, "#error-chart g.mark path:not(.flag)")
    points = numbers(drawn(tab, "#error-chart path.c0"))
    at = float(flag[1:].split()[0])
    assert (at - points[0][0]) / (points[-1][0] - points[0][0]) == pytest.approx(0.5, abs=1e-2)
    assert tab.evaluate("document.querySelectorAll('#error-chart g.mark').length") == 1


def test_points_without_time_are_omitted(opened: Open) -> None:
    curve = [[1, 9.0, 9.0, None], [2, 4.0, 4.0, NOW - 9], [3, 3.0, 3.0, NOW]]
    _, tab = opened(state(lively(prequential_error={"name": "e", "curve": curve})))
    assert len(numbers(drawn(tab, "#error-chart path.c0"))) == 2


X_LABELS = "[...document.querySelectorAll('#error-chart text.x')].map((each) => each.textContent)"


def test_axis_labels_are_round_hours_of_the_local_time_zone(opened: Open) -> None:
    _, tab = opened(state(lively(rows=48_210)), zone="Asia/Kolkata")
    assert tab.evaluate(X_LABELS) == ["02:00", "02:30", "03:00", "03:30", "04:00", "04:30"]


def test_axis_labels_of_several_days_have_dates(opened: Open) -> None:
    curve = [[1, 2.0, 2.0, NOW - 86_400 * 3], [2, 1.0, 1.0, NOW]]
    _, tab = opened(state(lively(prequential_error={"name": "e", "curve": curve})))
    assert tab.evaluate(X_LABELS)[:4] == ["20 Nov", "12:00", "21 Nov", "12:00"]


def test_values_of_curves_are_read_with_keys_and_pointer(opened: Open) -> None:
    player, tab = opened(state(lively(rows=400)))
    tab.evaluate("document.querySelector('#error-chart input').focus()")
    tab.press("Home")
    value = "document.querySelector('#error-chart input').getAttribute('aria-valuetext')"

    def row() -> int:
        return int(texts(tab, ".error .readout span")[0].split(", row ")[1])

    assert ", row 1, window " in tab.evaluate(value)
    tab.press("ArrowRight")
    assert ", row 2, window " in tab.evaluate(value)
    assert row() == 2
    longer = lively(rows=400)
    longer["prequential_error"]["curve"].append([401, 0.8, 0.8, NOW + 0.2])
    player.state = state({**longer, "rows_seen": 401})  # the point that is read stays
    tab.until("document.getElementById('rows-seen').innerText === '401'")
    assert row() == 2
    tab.evaluate("document.activeElement.blur()")
    assert row() == 401
    box = tab.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])"
        "(document.querySelector('#error-chart svg').getBoundingClientRect())"
    )
    tab.point(box[0] + box[2] / 2, box[1] + box[3] / 2)
    assert 170 < row() < 230
    assert tab.evaluate("document.querySelectorAll('#error-chart .cross circle').length") == 3
    tab.point(1, 1)
    assert row() == 401


def test_time_span_can_be_selected(opened: Open) -> None:
    _, tab = opened(state(lively(rows=40_000)))
    choose(tab, "span", "3600")  # of 8000 seconds
    count = len(numbers(drawn(tab, "#error-chart path.c0")))
    assert 178 <= count <= 182
    assert tab.evaluate(X_LABELS)[0] == "22:10"
    choose(tab, "span", "Infinity")
    assert len(numbers(drawn(tab, "#error-chart path.c0"))) == 400


def test_baseline_can_be_hidden(opened: Open) -> None:
    _, tab = opened(state(lively()))
    assert drawn(tab, "#error-chart path.c2")
    tab.evaluate("document.getElementById('with-baseline').click()")
    assert not texts(tab, ".error .key.c2")
    assert tab.evaluate("document.querySelectorAll('#error-chart .line').length") == 2
    _, tab = opened(state(lively(), unborn()), at="#model=new")
    assert not shown(tab, "r2-figure")


def test_drag_selects_a_time_and_double_click_all_rows(opened: Open) -> None:
    _, tab = opened(state(lively(rows=40_000)))
    left, top, width, height = tab.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])"
        "(document.querySelector('#error-chart svg').getBoundingClientRect())"
    )
    x, y = left + width / 2, top + height / 2
    tab.drag(x, y, x + 4, y)  # too short
    assert tab.evaluate("document.getElementById('span').value") == "Infinity"
    tab.drag(x, y, x - width / 4, y)
    assert tab.evaluate("document.getElementById('span').value") == "selected"
    assert 95 <= len(numbers(drawn(tab, "#error-chart path.c0"))) <= 115
    assert not tab.evaluate("document.querySelectorAll('.band').length")
    tab.drag(x, y, x, y, clicks=2)
    assert tab.evaluate("document.getElementById('span').value") == "Infinity"
    assert len(numbers(drawn(tab, "#error-chart path.c0"))) == 400


# -- several models --------------------------------------------------------------------------------


def test_empty_tables_have_a_text(opened: Open) -> None:
    one = lively("m", drift=[], positions={"redis://localhost/0": None}, detectors={})
    _, tab = opened(state(one))
    assert texts(tab, "#drift-rows td") == [
        "No drift detector. Start the server with one, such as --drift adwin."
    ]
    assert texts(tab, "#sources-rows > tr > *") == ["redis://localhost/0", "no row learned yet"]
    _, tab = opened(state(lively("m", drift=[], positions={}, detectors={"adwin": True})))
    assert texts(tab, "#drift-rows td") == ["No alarm yet."]
    assert texts(tab, "#sources-rows > tr > *") == [
        "No source. Rows are learned from requests only."
    ]


def test_model_with_most_rows_is_shown_first(opened: Open) -> None:
    models = [lively("a", rows_seen=0), lively("b", rows_seen=7), lively("c", rows_seen=7)]
    _, tab = opened(state(*models))
    assert tab.evaluate("document.querySelector('#name').textContent") == "b"


def test_link_selects_a_model(opened: Open) -> None:
    _, tab = opened(dozen())
    assert len(texts(tab, "#models-rows tr")) == 12
    assert texts(tab, "[aria-current=true]") == ["tides"]
    assert texts(tab, "#models-rows .of")[4:6] == ["RLSRegressor", "ORFitClassifier"]
    tab.evaluate("document.querySelectorAll('#models-rows a')[2].focus()")
    tab.press("Enter", "\r")
    tab.until("document.querySelector('#name').innerText === 'bearing-7_temperature'")
    assert texts(tab, "[aria-current=true]") == ["bearing-7_temperature"]
    assert tab.evaluate("location.hash") == "#model=bearing-7_temperature"
    assert tab.text("#rows-seen") == "83,000"
    tab.evaluate("history.back()")
    tab.until("document.querySelector('#name').innerText === 'tides'")


def test_models_of_a_class_show_the_parameters_that_differ(opened: Open) -> None:
    steps = "Encode(), RLSRegressor(ridge=10, forgetting={})"
    one, two = (
        lively(name, **{"class": "Pipeline"}, parameters=steps.format(forgetting))
        for name, forgetting in (("slow", 0.999), ("fast", 0.9))
    )
    plain = lively("plain", parameters="")
    _, tab = opened(state(one, two, plain, lively("ridge", parameters="ridge=(1, 2), memory=3")))
    assert texts(tab, "#models-rows a") == ["slow", "fast", "plain", "ridge"]
    kinds = [each.replace("\u200b", "") for each in texts(tab, "#models-rows .of")]
    assert kinds == [
        "Pipeline · RLSRegressor(ridge=10, forgetting=0.999)",
        "Pipeline · RLSRegressor(ridge=10, forgetting=0.9)",
        "RLSRegressor",
        "RLSRegressor · ridge=(1, 2), memory=3",
    ]


def test_other_models_can_be_compared(opened: Open) -> None:
    models = [lively(name, rows=400, seed=i) for i, name in enumerate("abcdef")]
    models[2]["prequential_error"]["curve"].insert(0, [1, 9.0, 9.0, NOW - 9000])
    accuracy = lively("g", rows=1)
    accuracy["prequential_error"]["name"] = "accuracy"
    player, tab = opened(state(*models, accuracy), at="#model=a")

    def boxes(kind: str) -> list[str]:
        values = f"[...document.querySelectorAll('#models input{kind}')].map((each) => each.value)"
        found: list[str] = tab.evaluate(values)
        return found

    def tick(name: str) -> None:
        tab.evaluate(f"document.querySelector('#models input[value={name}]').click()")

    assert boxes(":disabled") == ["a", "g"]
    tick("c")
    asked_again(player)
    assert player.queries[-1] == "curves=a&curves=c"
    assert len(numbers(drawn(tab, "#error-chart path.o0"))) == 400
    assert numbers(drawn(tab, "#error-chart path.o0"))[0][0] > 20  # within the axes
    assert [each.split()[0] for each in texts(tab, ".error .key")][3:] == ["c", "drift"]
    for name in "bde":
        tick(name)
    assert boxes(":disabled") == ["a", "f", "g"]
    tick("c")
    tick("f")  # takes the free colour
    assert [each.split()[0] for each in texts(tab, ".error .key.o0")] == ["f"]
    tab.evaluate("location.hash = '#model=f'")
    tab.until("document.querySelector('#name').innerText === 'f'")
    assert boxes(":checked") == ["b", "d", "e", "f"]
    assert not texts(tab, ".error .key.o0")
    assert len(texts(tab, ".error .key.data")) == 3
    player.state = state(*models[:2])
    tab.until("document.querySelectorAll('#models-rows tr').length === 2")
    assert boxes(":checked") == ["b"]


def test_curves_that_were_not_requested_stay(opened: Open) -> None:
    a, b = lively("a", rows=40), lively("b", rows=30)
    player, tab = opened(state(a, b))
    for model in (b["prequential_error"], b["rates"]):
        del model["curve"]
    asked_again(player, 2)
    assert player.queries[0] == ""
    assert player.queries[-1] == "curves=a"
    tab.evaluate("location.hash = '#model=b'")
    tab.until("document.querySelector('#name').innerText === 'b'")
    assert len(numbers(drawn(tab, "#error-chart path.c0"))) == 30
    asked_again(player)
    assert player.queries[-1] == "curves=b"


def test_each_of_many_drift_alarms_has_a_mark(opened: Open) -> None:
    drift = [{"rows": i, "at": NOW - i, "detector": "adwin"} for i in range(1, 31)]
    _, tab = opened(state(lively(drift=drift)))
    counts = [f"document.querySelectorAll('.mark path{kind}').length" for kind in ("", ".flag")]
    assert [tab.evaluate(each) for each in counts] == [30, 30]


def test_the_address_selects_a_model(opened: Open) -> None:
    _, tab = opened(dozen(), at="#model=arrival-delay")
    assert tab.text("#name") == "arrival-delay"


@pytest.mark.parametrize("at", ["#model=gone", "#model=%E0%A4%A", "#detail"])
def test_an_unknown_address_selects_the_model_with_most_rows(opened: Open, at: str) -> None:
    _, tab = opened(dozen(), at=at)
    assert tab.text("#name") == "tides"


def test_removed_models_disappear(opened: Open) -> None:
    player, tab = opened(dozen(), at="#model=wind")
    player.state = state(lively("flow"), lively("tides"))
    tab.until("document.querySelectorAll('#models-rows tr').length === 2")
    assert tab.text("#name") == "flow"
    player.state = state(lively("flow"))
    tab.until("!document.getElementById('models').checkVisibility()")


# -- hostile texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 360])
def test_hostile_text_is_not_executed_and_fits_the_page(opened: Open, width: int) -> None:
    _, tab = opened(hostile(), width=width)
    tags = """[...new Set([...document.querySelectorAll('body *')].map((each) => each.localName))]
        .sort().join()"""
    before = tab.evaluate(tags)
    links = tab.evaluate("document.querySelectorAll('#models-rows a').length")
    assert links == 9
    for i in range(links):
        tab.evaluate(f"location.hash = document.querySelectorAll('#models-rows a')[{i}].hash")
        tab.until(f"document.querySelectorAll('#models-rows tr')[{i}].className === 'chosen'")
        assert tab.evaluate("window.hurt") is None
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(tags) == before or i == 8
    assert not {"script", "img", "b"} & set(before.split(","))
    assert tab.evaluate(
        "[...document.querySelectorAll('a')].every((each) => each.getAttribute('href')[0] === '#')"
    )
    assert tab.evaluate("Object.prototype.hurt") is None


def test_names_are_shown_unchanged(opened: Open) -> None:
    names = [ATTACK, STRANGE, LONG[:100], "__proto__", "</title>&amp;"]
    _, tab = opened(state(*(lively(name, error=name, positions={name: name}) for name in names)))
    for i, name in enumerate(names):
        tab.evaluate(f"location.hash = document.querySelectorAll('#models-rows a')[{i}].hash")
        tab.until(f"document.querySelectorAll('#models-rows tr')[{i}].className === 'chosen'")
        for place in ("#name", "#problem", "#sources-rows td"):
            assert tab.evaluate(f"document.querySelector('{place}').textContent") == name


# -- polling ---------------------------------------------------------------------------------------


def asked_again(player: Player, times: int = 1) -> None:
    """Wait for further requests of the page."""
    until = player.requests_count + times
    patience = time.monotonic() + 30.0
    while player.requests_count < until:
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_polling_pauses_while_the_page_is_hidden(opened: Open) -> None:
    player, tab = opened(state(lively()))
    delays(tab)
    asked_again(player, 2)
    assert set(tab.until("window.delays.length && window.delays")) == {1000}
    tab.show(hidden=True)
    time.sleep(0.3)
    before = player.requests_count
    time.sleep(1.5)
    assert player.requests_count == before
    tab.show(hidden=False)
    asked_again(player)


def delays(tab: Tab) -> None:
    """Record the delays of the page's timers."""
    tab.evaluate("""
        window.delays = [];
        const timer = window.setTimeout;
        window.setTimeout = (what, delay) => {
            window.delays.push(delay);
            return timer(what, delay);
        };
    """)


def test_polling_can_be_paused(opened: Open) -> None:
    player, tab = opened(state(lively()))
    tab.evaluate("document.getElementById('pause').click()")
    assert tab.text("#link") == "Paused"
    assert tab.evaluate("document.getElementById('pause').ariaPressed") == "true"
    time.sleep(0.2)
    before = player.requests_count
    time.sleep(1.4)
    assert player.requests_count == before
    tab.evaluate("document.getElementById('pause').click()")
    tab.until(f"{LINK} === 'live'")
    assert player.requests_count == before + 1


def test_failed_requests_back_off_exponentially(opened: Open) -> None:
    player, tab = opened(state(lively()))
    delays(tab)
    player.status = 503
    tab.until(f"{LINK} === 'disconnected'")
    assert (
        tab.text("#disconnected-why")
        == "The server responded with status 503. The last state is below."
    )
    for i in range(5):
        assert tab.text("#disconnected-wait").startswith(("Next attempt in ", "Trying."))
        tab.evaluate("document.getElementById('retry').click()")
        tab.until(f"window.delays.filter((each) => each > 1000).length > {i + 1}")
    waits = tab.evaluate("window.delays.filter((each) => each > 1000)")
    assert waits[:6] == [2000, 4000, 8000, 16000, 30000, 30000]
    assert tab.text("#rows-seen") == "48,210"
    player.status = 200
    tab.evaluate("document.getElementById('retry').click()")
    tab.until(f"{LINK} === 'live'")
    assert not shown(tab, "disconnected")


def test_unreachable_server_is_reported(opened: Open) -> None:
    player, tab = opened(state(lively()))
    player.stop()
    tab.until(f"{LINK} === 'disconnected'")
    assert tab.text("#disconnected-why").startswith("The server cannot be reached.")


def test_invalid_responses_are_reported(opened: Open) -> None:
    player, tab = opened(b"", expect="disconnected")
    delays(tab)
    for body in (b"", b"{", b"[]", b'{"models": 3}', b"null", b"\xff\xfe", b"<html>"):
        player.state = body
        before = tab.evaluate("window.delays.length")
        tab.evaluate("document.getElementById('retry').click()")
        tab.until(f"window.delays.length > {before}")
        assert tab.evaluate(LINK) == "disconnected"
        assert tab.text("#disconnected-why") == "The response of the server is invalid."
        assert not shown(tab, "model")


def test_response_timeout_is_reported(opened: Open) -> None:
    player, tab = opened(state(lively()))
    player.silent.set()
    tab.evaluate("""
        document.getElementById("pause").click();
        const timeout = AbortSignal.timeout;
        AbortSignal.timeout = () => timeout.call(AbortSignal, 50);
        document.getElementById("pause").click();
    """)
    tab.until(f"{LINK} === 'disconnected'")
    assert tab.text("#disconnected-why").startswith("The server did not respond within 10 s.")


def test_retry_after_is_respected(opened: Open) -> None:
    _, tab = opened(state(lively()))
    tab.evaluate(
        "window.fetch = async () => new Response('', {status: 429, headers: {'Retry-After': '70'}})"
    )
    tab.until(f"{LINK} === 'disconnected'")
    assert tab.text("#disconnected-wait") in {"Next attempt in 70 s.", "Next attempt in 69 s."}


def test_unchanged_elements_are_not_updated(opened: Open) -> None:
    """So a selection of text is kept."""
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


# -- a protected server ----------------------------------------------------------------------------


def enter(tab: Tab, token: str) -> None:
    tab.evaluate(f"document.getElementById('token').value = {json.dumps(token)}")
    tab.evaluate("document.querySelector('#login button').click()")


def test_login_stores_the_token_for_the_session(opened: Open) -> None:
    player, tab = opened(state(lively()), token=TOKEN, expect="locked")
    assert player.brought == [None]
    assert not shown(tab, "model")
    assert tab.evaluate("document.activeElement.id") == "token"
    requests_count = player.requests_count
    time.sleep(1.2)
    assert (
        player.requests_count == requests_count
    )  # a locked door is not knocked at again and again
    enter(tab, "wrong")
    tab.until(
        "document.getElementById('login-why').innerText === 'The server did not accept this token.'"
    )
    for bad in ("schlüssel", "two words", "\u202e", "   "):
        requests_count = player.requests_count
        tab.evaluate("document.getElementById('token').required = false")
        enter(tab, bad)
        assert tab.text("#login-why") == "A token must consist of ASCII characters without spaces."
        assert player.requests_count == requests_count
    tab.until("document.getElementById('login').checkVisibility()")
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


def test_rejected_token_is_requested_again(opened: Open) -> None:
    player, tab = opened(state(lively()), token=TOKEN, expect="locked")
    enter(tab, TOKEN)
    tab.until(f"{LINK} === 'live'")
    player.token += "!"
    tab.until(f"{LINK} === 'locked'")
    assert tab.text("#login-why") == "The server did not accept this token."
    assert not shown(tab, "model")


# -- snapshots, inputs -----------------------------------------------------------------------------


def test_snapshot_and_rollback(opened: Open) -> None:
    player, tab = opened(state(lively("a b")))
    player.others["v2/models/a%20b/snapshot"] = 200, {"name": "a b", "version": 16_070}
    tab.evaluate("document.getElementById('snapshot').click()")
    tab.until("document.getElementById('outcome').innerText === 'Version 16,070 has a snapshot.'")
    tab.evaluate("document.querySelector('#snapshots-rows tr:nth-child(2) button').click()")
    assert tab.text("#confirm-what") == "Roll back a b to version 9,911?"
    assert tab.text("#confirm-why") == (
        "This undoes the 18,477 rows learned since 2026-11-22 22:44:06 UTC. "
        "A rollback to version 16,070 would restore them."
    )
    assert tab.evaluate("document.activeElement.id") == "confirm-no"
    tab.press("Enter", "\r")
    assert not shown(tab, "confirm")
    assert len(player.posted) == 1
    tab.evaluate("document.querySelector('#snapshots-rows tr:nth-child(2) button').click()")
    player.others["v2/models/a%20b/rollback"] = 507, {"error": "The disk is full."}
    tab.evaluate("document.getElementById('confirm-yes').click()")
    tab.until("document.getElementById('outcome').innerText === 'The disk is full.'")
    assert tab.evaluate("document.getElementById('outcome').dataset.state") == "bad"
    assert player.posted[-1] == ("v2/models/a%20b/rollback", {"to": 9_911})
    assert not shown(tab, "confirm")


def test_only_administrators_have_buttons(opened: Open) -> None:
    _, tab = opened(state(lively(), roles=["learn", "predict"]))
    assert not shown(tab, "snapshot")
    assert not tab.evaluate("document.querySelectorAll('#snapshots-rows button').length")


def test_current_version_has_no_button(opened: Open) -> None:
    _, tab = opened(state(lively(version=15_120)))
    assert texts(tab, "#snapshots-rows tr > :last-child") == [
        "",
        "Roll back",
        "Roll back",
        "Roll back",
    ]


def test_inputs_and_coefficients_are_requested_when_opened(opened: Open) -> None:
    player, tab = opened(state(lively(), lively("b")))
    assert not shown(tab, "inputs-found")
    kinds = [("km", "FP64", None), ("road", "BYTES", None), ("wet", "BOOL", None),
             ("day", "BYTES", {"content_type": "datetime"})]  # fmt: skip
    inputs = [
        {"name": name, "datatype": kind, "shape": [-1], **({"parameters": more} if more else {})}
        for name, kind, more in kinds
    ]
    large = [
        {"feature": "km", "output": "late", "value": -2.5, "standard_error": 0.125},
        {"feature": ATTACK, "output": "early", "value": 1.0, "standard_error": None},
    ]
    found = {"version": "16070", "features": 900, "outputs": 3, "coefficients": large}
    player.others["v2/models/flow"] = 200, {"inputs": inputs}
    player.others["v2/models/flow/coefficients"] = 200, found
    tab.evaluate("document.querySelector('summary').click()")
    tab.until("document.getElementById('inputs-found').checkVisibility()")
    assert tab.text("#inputs-why").startswith("Of version 16,070.")
    assert texts(tab, "#inputs-rows tr") == [
        "km\tnumber", "road\ttext", "wet\ttrue or false", "day\tdate",
    ]  # fmt: skip
    assert texts(tab, "#coefficients-rows tr") == [
        "km\tlate\t−2.500\t0.1250", f"{ATTACK}\tearly\t1.000\t–",
    ]  # fmt: skip
    assert tab.text("#coefficients-more") == "largest 2 of 900 features × 3 outputs"
    asked_again(player, 2)
    assert set(player.requested) == {"v2/models/flow", "v2/models/flow/coefficients"}
    none = {"version": "0", "features": 0, "outputs": 0, "coefficients": []}
    player.others["v2/models/b"] = (
        200,
        {"inputs": [{"name": "X", "datatype": "FP64", "shape": [-1, -1]}]},
    )
    player.others["v2/models/b/coefficients"] = 200, none
    tab.evaluate("location.hash = '#model=b'")
    tab.until("document.getElementById('inputs-why').innerText.startsWith('Of version 0.')")
    assert texts(tab, "#inputs-rows tr") == ["X\tnot known before the first row"]
    assert tab.text("#coefficients-rows").startswith("None:")
    player.others["v2/models/flow"] = 503, {"error": "Not now."}
    tab.evaluate("location.hash = '#model=flow'")
    tab.until("document.getElementById('inputs-why').innerText === 'Not now.'")
    assert not shown(tab, "inputs-found")


# -- appearance and accessibility ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dark", "ground"), [(True, "rgb(13, 17, 21)"), (False, "rgb(243, 245, 247)")]
)
def test_colours_follow_the_system(opened: Open, ground: str, *, dark: bool) -> None:
    _, tab = opened(state(lively()), dark=dark)
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground


def test_content_fits_each_width(opened: Open) -> None:
    wide = {
        "positions": {
            "kafka://broker-1.example.org:9092/a/long/topic": "0:118273612,1:99182731,2:12"
        }
    }
    _, tab = opened(dozen())
    states = (dozen(), state(lively()), state(lively(**wide)), state(unborn(), unborn("b")))
    widths = [320, 360, 412, 700, 1000, 1280, 2200]
    for width, served_state in itertools.product(widths, states):
        tab.resize(width, 800)
        tab.evaluate(
            f"window.fetch = async () => new Response({json.dumps(json.dumps(served_state))})"
        )
        anew(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        out = tab.evaluate(f"""[...document.querySelectorAll("main *, nav *")].filter((each) =>
            each.checkVisibility() && !each.closest(".unseen, .chip, svg")
            && each.getBoundingClientRect().right > {width}).map((each) => each.outerHTML)""")
        if width >= 360:  # on less, five columns are scrolled within their panel
            assert not out


def test_accessible_names_and_roles(opened: Open) -> None:
    _, tab = opened(dozen(), at="#model=flow")
    nodes = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in tab.accessible()
    ]
    roles = [role for role, _ in nodes]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert roles.count(landmark) == 1, landmark
    assert roles.count("region") == 6
    assert roles.count("checkbox") == 1 + 11
    for role, name in nodes:
        if role in {
            "button",
            "checkbox",
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
        "Refused, by reason", "Sources", "Snapshots", "Drift", "Inputs and coefficients",
    ]  # fmt: skip
    images = [name for role, name in nodes if role == "image"]
    assert len(images) == 3
    assert images[0].startswith(
        "Prequential error: 2026-11-22 23:05:46 UTC, row 3,000, window 0.8178, all rows 0."
    )
    assert roles.count("slider") == 3
    assert roles.count("columnheader") == 10 + 3 + 4 + 6 + 3 + 2
    assert roles.count("rowheader") == 12 + 2 + 4 + 2
    live = "[role=status], [role=alert], [aria-live]"
    ids = f"[...document.querySelectorAll('{live}')].map((each) => each.id).join()"
    assert tab.evaluate(ids) == ("link-text,disconnected-why,login-why,problem,outcome,inputs-why")


def test_all_controls_are_reached_with_the_keyboard(opened: Open) -> None:
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
        "skip", "pause", "data", "data", "input", "with-baseline", "span", "unseen", "unseen",
        "unseen", "snapshot", "button", "button", "button", "button", "summary", "body",
    ]  # fmt: skip


def test_reduced_motion_disables_animations(opened: Open) -> None:
    moving = """[...document.querySelectorAll("*")].filter((each) => {
        const style = getComputedStyle(each);
        return parseFloat(style.transitionDuration) > 0 || style.animationName !== "none";
    }).length"""
    _, still = opened(state(lively()), still=True)
    assert still.evaluate(moving) == 0


# -- formats ---------------------------------------------------------------------------------------

FORMATS = {
    "count(0)": "0",
    "count(1234567)": "1,234,567",
    "count(null)": "–",
    "count(-3)": "−3",
    "amount(0.79)": "0.7900",
    "amount(12.34567)": "12.35",
    "amount(123456)": "123,500",
    "amount(0)": "0.000",
    "amount(-0.5)": "−0.5000",
    "amount(1234567)": "1.235e6",
    "amount(0.00001234)": "1.234e−5",
    "amount(null)": "–",
    "rate(0)": "0",
    "rate(0.25)": "0.250",
    "rate(81.24)": "81.2",
    "rate(9.999)": "10.0",
    "rate(99.96)": "100",
    "rate(12034.2)": "12,034",
    "duration(0.0003)": "300 µs",
    "duration(0.00204)": "2.04 ms",
    "duration(0.9996)": "1.00 s",
    "duration(0.0009999)": "1.00 ms",
    "duration(3e-8)": "0.0300 µs",
    "duration(null)": "–",
    "size(328)": "328 bytes",
    "size(1023)": "1,023 bytes",
    "size(1024)": "1.00 KiB",
    "size(8388608)": "8.00 MiB",
    "size(1048575)": "1,020 KiB",
    "size(5e14)": "455 TiB",
    "size(null)": "–",
    "tick(0)": "0",
    "tick(0.25)": "0.25",
    "tick(1500)": "1.5K",
    "tick(20000)": "20K",
    "tick(12500)": "12.5K",
    "tick(1500000)": "1.5M",
    "tick(0.00001)": "1e−5",
    "tick(-4)": "−4",
    "ago(0.4)": "now",
    "ago(12.9)": "12s ago",
    "ago(3599)": "59m ago",
    "ago(-5)": "in 5s",
    "ago(90000)": "1d ago",
}


def test_formats_of_numbers(opened: Open) -> None:
    _, tab = opened(state(lively()))
    served_state = tab.evaluate(f"""import(new URL("page/page.js", location)).then((formats) =>
        {json.dumps(list(FORMATS))}.map((each) => {{
            const [, name, given] = each.match(/(\\w+)\\((.*)\\)/);
            return formats[name](...JSON.parse(`[${{given}}]`));
        }}))""")
    texts_shown = [each.replace("\u00a0", " ") for each in served_state]
    assert dict(zip(FORMATS, texts_shown, strict=True)) == FORMATS


def test_ticks_are_round_and_few(opened: Open) -> None:
    """For random ranges: 1 to 12 ticks, within the range and in order."""
    _, tab = opened(state(lively()))
    odd = tab.evaluate("""import(new URL("page/page.js", location)).then(({ level, timeTicks }) => {
        const odd = [];
        let seed = 1;
        const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
        for (let i = 0; i < 3000; i += 1) {
            const scale = 10 ** Math.round(300 * random() - 150);
            const numbers = [random(), random() * 10 ** (8 * random()), 0.5].map((x) => x * scale);
            if (i % 3 === 0) numbers.push(0);
            if (i % 7 === 0) numbers.splice(0, 9, scale, scale);
            const { ticks, place } = level(numbers, 4);
            const span = 10 ** (8 * random());
            const times = timeTicks(1795388746.8 - span, 1795388746.8, 4).map(([at]) => at);
            for (const [all, place_] of [[ticks, place],
                [times, (x) => (x - 1795388746.8 + span) / span]]) {
                const places = all.map(place_);
                const fine = all.length >= 1 && all.length <= 12
                    && places.every((x) => x > -1e-6 && x < 1 + 1e-6)
                    && places.every((x, j) => j === 0 || x > places[j - 1]);
                if (!fine) odd.push([numbers, span, all]);
            }
        }
        return odd.slice(0, 2);
    })""")
    assert not odd

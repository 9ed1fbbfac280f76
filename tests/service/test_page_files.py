"""The page's files: content, security policy and colours, without a browser."""

import re
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import fields
from page_states import dozen, hostile, lively, state, unborn

from onepass.service import page
from onepass.service.http.status import ModelState, State

FOLDER = Path(page.__file__).parent
NAMES = sorted(each.name for each in FOLDER.iterdir() if each.suffix not in {".py", ".pyc", ""})
SCRIPTS = [name for name in NAMES if name.endswith(".js")]


def text(name: str) -> str:
    found = page.file(name)
    assert found is not None
    return found.body.decode()


class Read(HTMLParser):
    """Every element with its attributes, and the text within scripts and styles."""

    def __init__(self, name: str = "index.html") -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""
        self.feed(text(name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in {"script", "style"}:
            self.inline += data.strip()


# -- files -----------------------------------------------------------------------------------------


def test_files_have_content_type_and_etag() -> None:
    kinds = {
        "css": "text/css",
        "html": "text/html",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    tags = set()
    for name in NAMES:
        found = page.file(name)
        assert found is not None
        assert found.body == (FOLDER / name).read_bytes()
        assert found.kind.partition(";")[0] == kinds[name.rpartition(".")[2]]
        assert re.fullmatch(r'"[0-9a-f]{32}"', found.tag)
        tags.add(found.tag)
    assert len(tags) == len(NAMES)


@pytest.mark.parametrize(
    "name", ["", "__init__.py", "../page/page.js", "/etc/passwd", "page", "PAGE.JS"]
)
def test_other_paths_have_no_file(name: str) -> None:
    assert page.file(name) is None


def test_files_are_in_the_package_data() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["onepass"]
    root = FOLDER.parents[1]
    packed = {path for pattern in patterns for path in root.glob(pattern)}
    assert {FOLDER / name for name in NAMES} <= packed


def test_size_of_scripts_is_bounded() -> None:
    assert sum(len(text(name).encode()) for name in SCRIPTS) < 40_000


# -- security --------------------------------------------------------------------------------------


def test_html_has_no_inline_scripts_or_styles() -> None:
    read = Read()
    assert not read.inline
    for tag, attributes in read.elements:
        assert tag != "style"
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_content_security_policy_allows_only_own_files() -> None:
    policy = dict(
        part.split(maxsplit=1) for part in page.HEADERS["Content-Security-Policy"].split("; ")
    )
    assert policy["default-src"] == "'self'"
    assert not re.search("unsafe|data:|https?:|\\*", page.HEADERS["Content-Security-Policy"])


def test_referenced_files_exist() -> None:
    for tag, attributes in Read().elements:
        for name in ("src", "href"):
            target = attributes.get(name)
            if target and not target.startswith("#"):
                assert page.file(target.removeprefix("page/")), f"<{tag} {name}={target}>"
                assert target.startswith("page/")
    for name in SCRIPTS:
        for target in re.findall(r'from "(.*?)"', text(name)):
            assert target.startswith("./")
            assert page.file(target[2:]), f"{name} imports {target}"


def test_ids_are_unique_and_exist() -> None:
    ids = Counter(a["id"] for _, a in Read().elements if "id" in a)
    assert max(ids.values()) == 1
    sought = set(
        re.findall(
            r'(?:find|put|reveal|new Chart)\("([\w-]+)"',
            "".join(map(text, SCRIPTS)),
        )
    )
    assert len(sought) > 15
    assert sought <= set(ids)
    named = [
        a.get("aria-labelledby") or a.get("aria-describedby") or a.get("for")
        for _, a in Read().elements
    ]
    assert set(filter(None, named)) <= set(ids)


def test_scripts_use_no_html_sinks_or_external_urls() -> None:
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc|document\.write"
        r"|setHTML|\beval\b|\bFunction\(|javascript:|\.cookie|localStorage\[|set(Timeout|Interval)\(\s*[\"'`]"
    )
    for name in SCRIPTS:
        assert not sinks.search(text(name)), name
        found = set(re.findall(r"https?://[^\"'\s]+", text(name)))
        assert found <= {"http://www.w3.org/2000/svg"}, name  # a name, not a place


# -- colours ---------------------------------------------------------------------------------------


def colours() -> dict[str, tuple[str, str]]:
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", text("page.css"))
    return {name: (light, dark) for name, light, dark in found}


def contrast(one: str, two: str) -> float:
    """WCAG 2.2, relative luminance and contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_ratio_of_known_colours() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_contrast_of_text_and_lines_meets_wcag(side: int) -> None:
    given = {name: both[side] for name, both in colours().items()}
    grounds = ("ground", "panel", "row", "bad-ground")
    for ink in ("ink", "soft", "first", "good", "wait", "bad"):
        for ground in grounds:
            if (ink, ground) != ("wait", "bad-ground"):
                assert contrast(given[ink], given[ground]) >= 4.5, f"{ink} on {ground}"
    for line in ("first", "second", "drift", "edge", "o0", "o1", "o2", "o3"):
        assert contrast(given[line], given["panel"]) >= 3.0, line
    assert given["ground"] != given["panel"]


def test_colours_are_defined_once_and_used() -> None:
    rules = text("page.css").partition("}")[2]
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb|hsl", rules)
    used = set(re.findall(r"var\(--([\w-]+)\)", text("page.css")))
    assert used == set(re.findall(r"--([\w-]+):", text("page.css")))


# -- states of the tests ---------------------------------------------------------------------------


def test_states_of_the_tests_match_the_schema() -> None:
    states = msgspec.json.encode(
        state(lively(), unborn(), *dozen()["models"], *hostile()["models"][:2])
    )
    assert len(msgspec.json.decode(states, type=State).models) == 16
    assert set(lively()) == set(unborn()) == {each.encode_name for each in fields(ModelState)}

"""Named data sets: locations, checks of content, downloads."""

import dataclasses
import gzip
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets

from onepass.errors import SourceError
from onepass.stream import catalogue, dataset, dataset_files, datasets, fetch, images, read
from onepass.stream.dataset_files import Content, OpenMLImages
from onepass.stream.pictures import ImageChecksums, Images


def crc(*answers: float) -> int:
    return zlib.crc32(np.array(answers, dtype="<f8").tobytes())


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has no data."""
    monkeypatch.delenv("ONEPASS_DATA", raising=False)
    monkeypatch.setenv("ONEPASS_CACHE", str(tmp_path / "cache"))
    for name, entry in catalogue.ENTRIES.items():
        monkeypatch.setitem(catalogue.ENTRIES, name, dataclasses.replace(entry, system=None))
    return tmp_path / "cache"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise URLError("no route")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)


def test_rows_of_flights() -> None:
    stream = dataset("flights")
    assert (stream.n_rows, stream.target, stream.name) == (336776, "arr_delay", "flights")
    blocks = list(stream)
    y = np.concatenate([rows.y for rows in blocks])
    assert len(y) == 327346
    assert sum(rows.skipped for rows in blocks) == 336776 - 327346
    assert y.sum() == 2257174
    when = np.concatenate([rows.time for rows in blocks])
    assert (np.diff(when) >= np.timedelta64(0)).all()
    assert when[0] == np.datetime64("2013-01-01T05:15")
    assert when[-1] == np.datetime64("2013-12-31T23:59")
    first = blocks[0].X.row(0)
    first.pop("scheduled")
    assert first == {
        "dep_delay": 2.0, "carrier": "UA", "flight": 1545.0, "origin": "EWR", "dest": "IAH",
        "distance": 1400.0,
    }  # fmt: skip
    assert stream.rows_read == 336776


def test_read_accepts_the_name_of_a_data_set() -> None:
    stream = read("flights", block=100)
    assert (stream.target, stream.n_rows) == ("arr_delay", 336776)
    rows = next(iter(stream))
    assert rows.time[0] == np.datetime64("2013-01-01T05:15")
    rows = next(iter(read("flights", target="dep_delay", drop=["arr_delay"], block=100)))
    assert rows.X.names == ["scheduled", "carrier", "flight", "origin", "dest", "distance"]


def test_descriptions_of_data_sets(nowhere: Path) -> None:
    known = {one.name: one for one in datasets()}
    assert list(known) == catalogue.names()
    assert known["flights"].found
    assert known["flights"].place.name == "flights.parquet"
    assert not known["elec2"].found
    assert known["elec2"].place == nowhere / "elec2/elec.csv.gz"
    for one in known.values():
        assert one.task in {"regression", "classification"}
        assert one.licence
        assert one.source
        assert one.how
        assert one.target
        assert one.rows > 1000


@pytest.mark.parametrize("name", sorted(set(catalogue.names()) - {"flights"}))
def test_bundled_and_installed_data_sets(name: str) -> None:
    if catalogue.find_entry(name).located() is None:
        pytest.skip(f"{name} is not here: set ONEPASS_DATA to the folder that has it")
    stream = dataset(name, block=8192)
    assert sum(len(rows) + rows.skipped for rows in stream) == catalogue.find_entry(name).rows
    if isinstance(catalogue.find_entry(name).content, ImageChecksums):
        assert images(name).train_images.shape == (60000, 28, 28)
        assert images(name).test_images.shape == (10000, 28, 28)


@pytest.mark.usefixtures("nowhere")
def test_unknown_data_sets_are_refused() -> None:
    with pytest.raises(SourceError, match=r"`name` must be one of flights, .* got 'x'. Use"):
        dataset("x")
    with pytest.raises(SourceError, match=r"op.stream.fetch: `name` must be one of"):
        fetch("x")
    with pytest.raises(SourceError, match=r"must be one of mnist, fashion-mnist, got 'elec2'"):
        images("elec2")


@pytest.mark.usefixtures("offline")
def test_error_without_a_network_connection(nowhere: Path) -> None:
    with pytest.raises(
        SourceError, match=r"electricity must be fetched from OpenML.*no route.*Che"
    ):
        dataset("elec2")
    with pytest.raises(SourceError, match=r"mnist_784 must be fetched from OpenML"):
        images("mnist")
    with pytest.raises(
        SourceError, match=r"must exist as vic-elec/vic_elec.csv.gz .* Extract vic_elec"
    ):
        dataset("vic-elec")
    assert not [path for path in nowhere.rglob("*") if path.is_file()]


def write_rows(path: Path, rows: int) -> None:
    path.parent.mkdir(parents=True)
    text = "x0,x1,y\n" + "".join(f"{i},{-i},{i % 3}\n" for i in range(rows))
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> Path:
    """A data set of 5 rows in the catalogue."""
    entry = dataclasses.replace(
        catalogue.find_entry("elec2"),
        name="small",
        rows=5,
        target="y",
        files=("small/rows.csv.gz",),
        content=Content(("x0", "x1", "y"), crc(0, 1, 2, 0, 1)),
        fetcher=None,
    )
    monkeypatch.setitem(catalogue.ENTRIES, "small", entry)
    return nowhere / "small/rows.csv.gz"


def test_data_set_is_added_by_a_catalogue_entry(small: Path) -> None:
    write_rows(small, 5)
    (rows,) = dataset("small")
    assert rows.y.tolist() == [0, 1, 2, 0, 1]
    assert fetch("small") == small.parent
    assert {one.name: one.found for one in datasets()}["small"]


@pytest.mark.parametrize(
    ("entry", "pattern"),
    [
        ({"rows": 6}, r"must have 6 rows, as 'small' has, got 5. Delete the file"),
        ({"content": Content(("x0", "x1", "y"), 1)}, r"CRC-32 0x00000001.* got 0x"),
        ({"content": Content(("x0", "y"), 1)}, r"the columns \['x0', 'y'\].* got \['x0', 'x1', "),
    ],
)
def test_wrong_content_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], pattern: str
) -> None:
    write_rows(small, 5)
    changed = dataclasses.replace(catalogue.find_entry("small"), **entry)
    monkeypatch.setitem(catalogue.ENTRIES, "small", changed)
    with pytest.raises(SourceError, match=pattern):
        dataset("small")


def test_search_order_of_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = "set/a.gz"
    for place in ("named", "cache", "other"):
        (tmp_path / place / "set").mkdir(parents=True)
        (tmp_path / place / file).touch()
    (tmp_path / "system").mkdir()
    (tmp_path / "system/a").touch()
    monkeypatch.setenv("ONEPASS_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("ONEPASS_CACHE", str(tmp_path / "cache"))
    system = str(tmp_path / "system")
    assert dataset_files.located([file], system) == [tmp_path / "named" / file]
    monkeypatch.delenv("ONEPASS_DATA")
    assert dataset_files.located([file], system) == [tmp_path / "cache" / file]
    assert dataset_files.located([file], system, tmp_path / "other") == [tmp_path / "other" / file]
    (tmp_path / "cache" / file).unlink()
    assert dataset_files.located([file], system) == [tmp_path / "system/a"]  # unpacked
    assert dataset_files.located([file], None) is None


@pytest.mark.parametrize(
    ("platform", "named", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/onepass"),
        ("linux", {}, "~/.cache/onepass"),
        ("darwin", {}, "~/Library/Caches/onepass"),
        ("win32", {"LOCALAPPDATA": "/y"}, "/y/onepass"),
        ("linux", {"ONEPASS_CACHE": "/z"}, "/z"),
    ],
)
def test_cache_folder_by_platform(
    monkeypatch: pytest.MonkeyPatch, platform: str, named: dict[str, str], expected: str
) -> None:
    for name in ("ONEPASS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dataset_files.sys, "platform", platform)
    assert dataset_files.cache_folder() == Path(expected).expanduser()
    assert dataset_files.cache_folder("here") == Path("here")


def test_fetching_a_table(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the answer of the net is feigned."""
    names = ["date", "day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    answer = SimpleNamespace(
        data=np.arange(24.0).reshape(3, 8),
        feature_names=names,
        target=np.array(["UP", "DOWN", "UP"]),
    )
    asked = []

    def openml(name: str, **options: Any) -> SimpleNamespace:
        asked.append((name, options["version"]))
        return answer

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", openml)
    columns = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer", "class")
    content = Content(columns, crc(1, 0, 1))
    entry = dataclasses.replace(catalogue.find_entry("elec2"), rows=3, content=content)
    monkeypatch.setitem(catalogue.ENTRIES, "elec2", entry)
    steps = []
    folder = fetch("elec2", progress=lambda step, fraction: steps.append((step, fraction)))
    assert folder == nowhere / "elec2"
    assert [step for step, _ in steps] == ["download", "write", "done"]
    (rows,) = dataset("elec2")
    assert rows.y.tolist() == [1, 0, 1]
    assert rows.X.row(1)["transfer"] == 15.0
    assert asked == [("electricity", 1)]
    assert [path.name for path in folder.iterdir()] == ["elec.csv.gz"]

    (folder / "elec.csv.gz").unlink()
    answer.target[0] = "DOWN"
    with pytest.raises(SourceError, match="must have targets of CRC-32"):
        dataset("elec2")
    assert not list(folder.iterdir())


def test_fetching_images(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (5, 784)), np.array([0, 1, 1, 1, 0])
    pixels = (int(x[:3].sum()), int(x[3:].sum()))
    pictures = ImageChecksums(("", "", "", ""), ((1, 2), (1, 1)), pixels)
    answer = SimpleNamespace(data=x.astype(float), target=y.astype(str))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *_, **__: answer)
    entry = dataclasses.replace(
        catalogue.find_entry("mnist"),
        content=pictures,
        form=pictures.source,
        rows=5,
        fetcher=OpenMLImages("mnist_784", 1, pictures),
    )
    monkeypatch.setitem(catalogue.ENTRIES, "mnist", entry)
    got = images("mnist")
    assert isinstance(got, Images)
    assert got.train_images.shape == (3, 28, 28)
    np.testing.assert_array_equal(got.test_images.reshape(2, 784), x[3:])
    assert got.train_labels.tolist() == [0, 1, 1]
    (rows,) = dataset("mnist")
    assert rows.y.tolist() == [0, 1, 1, 1, 0]
    assert rows.X["p5"].tolist() == x[:, 5].tolist()

    answer.data[0, 0] += 1
    (nowhere / "mnist/openml.npz").unlink()
    with pytest.raises(SourceError, match=r"the train images must have labels .* pixels that sum"):
        images("mnist")
    assert not list((nowhere / "mnist").iterdir())
    (nowhere / "mnist/openml.npz").write_bytes(b"PK??")
    with pytest.raises(SourceError, match=r"openml.npz must contain the fetched images"):
        images("mnist")

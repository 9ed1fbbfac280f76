"""Named data sets: locations, checks of content, downloads."""

import dataclasses
import gc
import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pooch
import pytest

from onepass.errors import SourceError
from onepass.stream import catalogue, dataset, dataset_files, datasets, fetch, images, read
from onepass.stream.dataset_files import Content, Download
from onepass.stream.pictures import ImageChecksums, Images
from raising import raises
from stream.test_idx import idx, md5

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


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


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of a local web server, from which all data sets are downloaded."""
    folder = tmp_path / "web"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    for name, entry in catalogue.ENTRIES.items():
        files = [one.url.rpartition("/")[2] for one in entry.downloads]
        downloads = tuple(
            Download(f"http://127.0.0.1:{server.server_port}/{file}", one.md5)
            for file, one in zip(files, entry.downloads, strict=True)
        )
        changed = dataclasses.replace(entry, downloads=downloads)
        monkeypatch.setitem(catalogue.ENTRIES, name, changed)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()
    gc.collect()  # pooch leaves the socket of a response 404 open


def publish(monkeypatch: pytest.MonkeyPatch, web: Path, name: str, files: list[bytes]) -> None:
    """Put the files of a data set on the web server, and their checksums into the catalogue."""
    entry = catalogue.find_entry(name)
    downloads = []
    for one, content in zip(entry.downloads, files, strict=True):
        (web / one.url.rpartition("/")[2]).write_bytes(content)
        downloads.append(Download(one.url, md5(content)))
    changed = dataclasses.replace(entry, downloads=tuple(downloads))
    monkeypatch.setitem(catalogue.ENTRIES, name, changed)


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
    with raises(SourceError, argument="name", got="'x'", remedy="Use"):
        dataset("x")
    with raises(
        SourceError, where="op.stream.fetch", argument="name", remedy="Use op.stream.read for your"
    ):
        fetch("x")
    with raises(SourceError, argument="name", got="'elec2'"):
        images("elec2")


@pytest.mark.usefixtures("web")
def test_error_without_the_file_on_the_web(nowhere: Path) -> None:
    with pytest.raises(SourceError, match="fetch 'elec2'") as info:
        dataset("elec2")
    assert "404" in info.value.got
    assert "elec2/elec.csv.gz into the folder named by ONEPASS_DATA" in info.value.remedy
    with pytest.raises(SourceError, match="fetch 'mnist'"):
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
        downloads=(),
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
    ("entry", "got"),
    [
        ({"rows": 6}, "5 rows"),
        ({"content": Content(("x0", "x1", "y"), 1)}, "rows and 0x"),
        ({"content": Content(("x0", "y"), 1)}, "the columns ['x0', 'x1', 'y']"),
    ],
)
def test_wrong_content_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], got: str
) -> None:
    write_rows(small, 5)
    changed = dataclasses.replace(catalogue.find_entry("small"), **entry)
    monkeypatch.setitem(catalogue.ENTRIES, "small", changed)
    with pytest.raises(SourceError, match="as 'small' has") as info:
        dataset("small")
    assert got in info.value.got


def test_search_order_of_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = "set/a.gz"
    for place in ("named", "cache"):
        (tmp_path / place / "set").mkdir(parents=True)
        (tmp_path / place / file).touch()
    (tmp_path / "system").mkdir()
    (tmp_path / "system/a").touch()
    monkeypatch.setenv("ONEPASS_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("ONEPASS_CACHE", str(tmp_path / "cache"))
    entry = dataclasses.replace(
        catalogue.find_entry("elec2"), files=(file,), system=str(tmp_path / "system")
    )
    assert entry.located() == [tmp_path / "named" / file]
    monkeypatch.delenv("ONEPASS_DATA")
    assert entry.located() == [tmp_path / "cache" / file]
    (tmp_path / "cache" / file).unlink()
    assert entry.located() == [tmp_path / "system/a"]  # unpacked
    assert dataclasses.replace(entry, system=None).located() is None


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEPASS_CACHE", "/z")
    assert dataset_files.cache_folder() == Path("/z")
    monkeypatch.delenv("ONEPASS_CACHE")
    assert dataset_files.cache_folder() == Path(pooch.os_cache("onepass"))


ARFF = """@relation electricity
@attribute date numeric
@attribute day {1,2}
@attribute period numeric
@attribute nswprice numeric
@attribute nswdemand numeric
@attribute vicprice numeric
@attribute vicdemand numeric
@attribute transfer numeric
@attribute class {UP,DOWN}
@data
0,2,0.25,3,4,5,6,7,UP
0,2,10,11,12,13,14,15,DOWN
0,2,18,19,20,21,22,23,UP
"""


def test_fetching_a_table(nowhere: Path, web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Content(catalogue.find_entry("elec2").content.columns, crc(1, 0, 1))
    entry = dataclasses.replace(catalogue.find_entry("elec2"), rows=3, content=content)
    monkeypatch.setitem(catalogue.ENTRIES, "elec2", entry)
    publish(monkeypatch, web, "elec2", [ARFF.encode()])
    steps = []
    folder = fetch("elec2", progress=lambda step, fraction: steps.append((step, fraction)))
    assert folder == nowhere / "elec2"
    assert steps == [("download electricity.arff", 0.0), ("done", 1.0)]
    (rows,) = dataset("elec2")
    assert rows.y.tolist() == [1, 0, 1]
    assert rows.X.row(0) == {
        "period": 0.25, "nswprice": 3.0, "nswdemand": 4.0, "vicprice": 5.0, "vicdemand": 6.0,
        "transfer": 7.0,
    }  # fmt: skip
    assert [path.name for path in folder.iterdir()] == ["elec.csv.gz"]


def test_fetching_images(nowhere: Path, web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (5, 28, 28), dtype=np.uint8)
    y = np.array([0, 1, 1, 1, 0], dtype=np.uint8)
    files = [idx(part) for part in (x[:3], y[:3], x[3:], y[3:])]
    content = ImageChecksums(tuple(map(md5, files)))
    entry = dataclasses.replace(
        catalogue.find_entry("mnist"), content=content, form=content.source, rows=5
    )
    monkeypatch.setitem(catalogue.ENTRIES, "mnist", entry)
    publish(monkeypatch, web, "mnist", [gzip.compress(file) for file in files])
    steps = []
    assert fetch("mnist", progress=lambda step, _: steps.append(step)) == nowhere / "mnist"
    assert len(steps) == 5
    got = images("mnist")
    assert isinstance(got, Images)
    np.testing.assert_array_equal(got.train_images, x[:3])
    np.testing.assert_array_equal(got.test_images, x[3:])
    assert got.train_labels.tolist() == [0, 1, 1]
    (rows,) = dataset("mnist")
    assert rows.y.tolist() == [0, 1, 1, 1, 0]
    assert rows.X["p5"].tolist() == x.reshape(5, -1)[:, 5].tolist()


def test_changed_download_is_refused(
    nowhere: Path, web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, web, "elec2", [ARFF.encode()])
    (web / "electricity.arff").write_text("another file")
    with pytest.raises(SourceError, match="fetch 'elec2'") as info:
        fetch("elec2")
    assert "hash" in info.value.got
    assert not [path for path in nowhere.rglob("*") if path.is_file()]

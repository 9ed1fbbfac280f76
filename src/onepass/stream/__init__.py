"""Where rows come from: files, pipes, frames, arrays, iterables and named data sets.

Nothing is learned here. A source becomes a :class:`Stream` of :class:`Rows`: blocks of typed
columns with their answers, in order, in bounded memory. Streams of tasks, for continual learning,
are :class:`Experiences`.
"""

from onepass.stream.borders import blurred, task_free
from onepass.stream.class_tasks import experiences
from onepass.stream.datasets import dataset, datasets, fetch, folder, images
from onepass.stream.digit_tasks import permuted_mnist, split_fashion_mnist, split_mnist
from onepass.stream.digit_turns import rotated_mnist, rotation_angles
from onepass.stream.entry import Description
from onepass.stream.experiences import Exam, Experience, Experiences
from onepass.stream.pictures import Images
from onepass.stream.read import read
from onepass.stream.rows import Rows
from onepass.stream.stream import Stream
from onepass.stream.write import write

__all__ = [
    "Description",
    "Exam",
    "Experience",
    "Experiences",
    "Images",
    "Rows",
    "Stream",
    "blurred",
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
    "split_fashion_mnist",
    "split_mnist",
    "task_free",
    "write",
]

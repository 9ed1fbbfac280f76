"""Sources of rows: files, pipes, frames, arrays, iterables and named data sets.

A source is read as a :class:`Stream` of :class:`Rows`: blocks of typed columns with their targets,
in order, in bounded memory. Streams of tasks, for continual learning, are :class:`Experiences`.
"""

from onepass.stream.boundaries import blurred, task_free
from onepass.stream.catalogue import dataset, datasets, fetch, folder, images
from onepass.stream.class_tasks import experiences
from onepass.stream.dataset_files import Description
from onepass.stream.digits import (
    permuted_mnist,
    rotated_mnist,
    rotation_angles,
    split_fashion_mnist,
    split_mnist,
)
from onepass.stream.pictures import Images
from onepass.stream.read import read
from onepass.stream.stream import Stream
from onepass.stream.tasks import Experience, Experiences, TestSet
from onepass.stream.write import write
from onepass.validation.rows import Rows

__all__ = [
    "Description",
    "Experience",
    "Experiences",
    "Images",
    "Rows",
    "Stream",
    "TestSet",
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

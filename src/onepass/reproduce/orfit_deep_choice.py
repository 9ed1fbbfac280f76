"""The choice of settings for ``orfit-deep``, without a look at rows to test.

Each task of a stream, drawn with a seed of its own, gives up its last rows to learn: they are
tested in place of the rows to test. Of a method's grid the settings are taken whose average at the
end of the stream is best, (1) of :mod:`onepass.reproduce.orfit_deep_outcome`. Settings that stop a
method are not taken while others do not.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from onepass.reproduce.orfit_deep import Settings
from onepass.reproduce.orfit_deep_course import run, task_of
from onepass.reproduce.orfit_deep_methods import METHODS, Grid, Method
from onepass.reproduce.orfit_deep_networks import NETWORKS
from onepass.reproduce.orfit_deep_outcome import average
from onepass.reproduce.orfit_deep_streams import STREAMS, halved
from onepass.stream import Experience, Images
from onepass.stream import images as images_of

__all__ = ["choose_settings"]

_SEED = 9_999  # far from the draws that are shown


def choose_settings(
    images: Images | None = None,
    *,
    streams: Iterable[str] | None = None,
    networks: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    scale: float = 1.0,
    heard: Callable[[str], object] | None = None,
) -> Settings:
    """Choose settings on rows held out of those to learn.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` if not given; its rows to test are not used.
    streams, networks, methods : iterable of str, optional
        As in :func:`onepass.reproduce.orfit_deep`.
    scale : float, default=1.0
        Rows, held out and learned, as a share of those that ``orfit_deep`` learns.
    heard : callable, optional
        Called with a line of text about each choice.

    Returns
    -------
    settings : dict
        Stream, network and method to the method's settings.
    """
    known = halved(images_of("mnist") if images is None else images)
    found: Settings = {}
    for stream in streams or STREAMS:
        whole = STREAMS[stream].make(known, scale, _SEED)
        fewest = min(len(task.train.rows) for task in whole.tasks)
        tasks = list(whole.held_out(max(1, fewest // 4)))
        for which, name in product(networks or NETWORKS, methods or METHODS):
            best = _best(METHODS[name], tasks, which, heard)
            found.setdefault(stream, {}).setdefault(which, {})[name] = best
            if heard is not None:
                heard(f"{stream}, {which}, {name}: {best}")
    return found


def _best(
    method: Method,
    tasks: Sequence[Experience],
    which: str,
    heard: Callable[[str], object] | None,
) -> dict[str, Any]:
    """The best settings of the method's grid."""
    kind = task_of(tasks)
    sign = -1.0 if kind == "classes" else 1.0
    every = list(_settings(method.grid(kind)))
    if len(every) == 1:
        return every[0]
    tried = []
    for place, settings in enumerate(every):
        one = run(method, settings, tasks, which, [_SEED])
        value = average(one.matrix)
        tried.append((one.stopped is not None, sign * value, place))
        if heard is not None:
            heard(f"  {method.name} {settings}: {value:.1f}{' stopped' if one.stopped else ''}")
    return every[min(tried)[2]]


def _settings(grid: Grid) -> Iterator[dict[str, Any]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))

"""Paths: which verb answers a request, by its path and method."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

__all__ = ["Paths", "allowed"]

_T = TypeVar("_T")


class _Node(Generic[_T]):
    """What goes on after some segments of a path."""

    __slots__ = ("below", "methods", "parameter")

    def __init__(self) -> None:
        self.below: dict[str, _Node[_T]] = {}
        self.parameter: tuple[str, _Node[_T]] | None = None
        self.methods: dict[str, _T] = {}


class Paths(Generic[_T]):
    """Endpoints by templates of paths.

    Examples
    --------
    >>> paths = Paths()
    >>> paths.add("GET", "/models/{name}", "the endpoint")
    >>> paths.find("/models/flow")
    ({'GET': 'the endpoint', 'HEAD': 'the endpoint'}, {'name': 'flow'})
    >>> paths.find("/models/")
    ({}, {})
    """

    def __init__(self) -> None:
        self._root = _Node[_T]()

    def add(self, method: str, template: str, endpoint: _T) -> None:
        """Have an endpoint answer; what is answered to GET is answered to HEAD.

        Parameters
        ----------
        method : str
        template : str
            Begins with a slash; a segment such as ``{name}`` stands for any that is not empty.
        endpoint : Any
        """
        node = self._root
        for segment in template.split("/")[1:]:
            if segment.startswith("{"):
                if node.parameter is None:
                    node.parameter = (segment[1:-1], _Node())
                node = node.parameter[1]
            else:
                node = node.below.setdefault(segment, _Node())
        node.methods[method] = endpoint
        if method == "GET":
            node.methods["HEAD"] = endpoint

    def find(self, path: str) -> tuple[Mapping[str, _T], dict[str, str]]:
        """The endpoints at a path by their methods, none if there is no such path; its parameters.

        Parameters
        ----------
        path : str
            As it was before any segment was decoded twice: nothing in it leads upward.
        """
        node, found = self._root, {}
        for segment in path.split("/")[1:]:
            below = node.below.get(segment)
            if below is None:
                if node.parameter is None or not segment:
                    return {}, {}
                name, below = node.parameter
                found[name] = segment
            node = below
        return node.methods, found


def allowed(methods: Mapping[str, Any]) -> str:
    """Methods as the header ``Allow`` lists them."""
    return ", ".join(sorted(methods))

"""Adapters between onepass and other frameworks, one file per framework.

A framework is imported only when its file is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import calling, import_extra

if TYPE_CHECKING:
    import onepass.integrations.river as river  # noqa: PLR0402  `from` would make mypy search this file

__all__ = ["river"]


if not TYPE_CHECKING:  # otherwise every name would be valid for type checkers

    def __getattr__(name: str) -> Any:
        if name in __all__:
            with calling(f"op.integrations.{name}"):
                import_extra(name, extra=name)
            return import_module(f"onepass.integrations.{name}")
        raise AttributeError(f"module 'onepass.integrations' has no attribute {name!r}")

"""Optional packages: imported when first needed, with an error that names the extra."""

from importlib import import_module
from types import ModuleType

from onepass.errors import MissingExtraError

__all__ = ["need"]


def need(module: str, *, extra: str, where: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Parameters
    ----------
    module : str
        Dotted name of the module, such as ``"pyarrow.csv"``.
    extra : str
        The extra of onepass that installs it.
    where : str
        What the user called, for the message.

    Raises
    ------
    MissingExtraError
        If the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{where} needs {package}. Install it with: pip install 'onepass[{extra}]'"
        ) from missing

"""Limits on what one request may contain, and the errors of a request that cannot be read."""

from dataclasses import dataclass, fields

from onepass import validation
from onepass.errors import RequestError

__all__ = ["Limits", "request_error", "shown"]

_SHOWN = 60  # characters of a value in a message
_SPARSE, _FEW = 64, 1 << 16  # missing values per byte of the request, and always
_TEXT_AS_NUMBERS = 8  # a short text takes the memory of this many numbers


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may contain.

    Parameters
    ----------
    nbytes : int, default 64 MiB
        Bytes of the body, which the server checks while it reads it.
    unpacked : int, default 256 MiB
        Bytes of Arrow buffers once they are decompressed.
    rows : int, default 1,048,576
    columns : int, default 65,536
    values : int, default 16,777,216
        Numbers in all, at 8 bytes each; a text counts as eight of them.
    text : int, default 65,536
        Characters of one text.
    json_bytes : int, default 8 MiB
        Bytes of JSON, which takes up to 48 times as much memory while it is decoded.

    Raises
    ------
    ParameterError
        If one is not a whole number > 0.

    Examples
    --------
    >>> Limits(rows=1000).check_size(20, 4, "inputs[0].shape")
    >>> Limits(rows=1000).check_size(2000, 4, "inputs[0].shape")
    Traceback (most recent call last):
        ...
    onepass.errors.RequestError: the request's `inputs[0].shape` must have at most 1,000 rows, got
    2,000. Send fewer rows at a time.
    """

    nbytes: int = 64 << 20
    unpacked: int = 256 << 20
    rows: int = 1 << 20
    columns: int = 1 << 16
    values: int = 1 << 24
    text: int = 1 << 16
    json_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            validation.whole(getattr(self, field.name), field.name, "Limits", low=1)

    def check_json(self, nbytes: int) -> None:
        """Raise RequestError if there are too many bytes of JSON."""
        if nbytes > self.json_bytes:
            must = f"have at most {self.json_bytes:,} bytes of JSON"
            remedy = "Send fewer rows at a time, or an Arrow stream or binary tensors"
            raise request_error("", must, f"{nbytes:,}", remedy)

    def check_size(self, n: int, columns: int, place: str, *, texts: int = 0) -> None:
        """Raise RequestError if there are too many rows, columns or values.

        Parameters
        ----------
        n, columns : int
            Rows, and columns in all.
        place : str
            Where they stand in the request.
        texts : int, default 0
            How many of the columns are text.
        """
        if n > self.rows:
            must = f"have at most {self.rows:,} rows"
            raise request_error(place, must, f"{n:,}", "Send fewer rows at a time")
        if columns > self.columns:
            must = f"have at most {self.columns:,} columns"
            raise request_error(
                place, must, f"{columns:,}", "Leave out columns that are not needed"
            )
        if n * (columns + (_TEXT_AS_NUMBERS - 1) * texts) > self.values:
            must = f"have at most {self.values:,} values, a text counted as {_TEXT_AS_NUMBERS}"
            got = f"{n:,} rows of {columns:,} columns, {texts:,} of them text"
            raise request_error(place, must, got, "Send fewer rows at a time")

    def check_sparse(self, cells: int, nbytes: int, place: str) -> None:
        """Raise RequestError if a few bytes describe very many missing values.

        Parameters
        ----------
        cells : int
            Values that may be missing.
        nbytes : int
            Bytes that describe them.
        place : str
            Where they stand in the request.
        """
        if cells > _SPARSE * nbytes + _FEW:
            must = f"have a byte for {_SPARSE} values"
            got = f"{nbytes:,} for {cells:,}, nearly all missing"
            raise request_error(place, must, got, "Send fewer rows, or fewer columns, at a time")

    def check_text(self, longest: int, place: str) -> None:
        """Raise RequestError if a text of this many characters is too long."""
        if longest > self.text:
            must = f"hold texts of at most {self.text:,} characters"
            raise request_error(place, must, f"one of {longest:,}", "Shorten the text")


def request_error(place: str, must: str, got: object, remedy: str) -> RequestError:
    """The error of a request that cannot be read.

    Parameters
    ----------
    place : str
        Where within the request, such as ``inputs[0].data``; empty for all of it.
    must, got : str
        What was expected there, after "must", and what it was.
    remedy : str
        What to do: a sentence without its full stop, or a question.
    """
    where = f"the request's `{place}`" if place else "the request"
    end = "" if remedy.endswith("?") else "."
    return RequestError(f"{where} must {must}, got {got}. {remedy}{end}")


def shown(value: object) -> str:
    """A received value for a message: quoted, and cut if it is long.

    Parameters
    ----------
    value : object
        Text, a number, or anything else with a short ``repr``.

    Examples
    --------
    >>> shown("a" * 1000)[-8:], len(shown("speed"))
    ("aaaa'...", 7)
    """
    if isinstance(value, str):
        return repr(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")
    if isinstance(value, int) and value.bit_length() > 2 * _SHOWN:
        return f"a whole number of {value.bit_length():,} bits"
    return repr(value)

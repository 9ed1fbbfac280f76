"""Limits on one request, and errors for requests that cannot be decoded."""

from __future__ import annotations

from dataclasses import dataclass

from onepass.errors import RequestError

_SHOWN = 60  # max characters of a value in a message
_SPARSE, _FEW = 64, 1 << 16  # max missing values per byte of the request, and in addition
_TEXT_AS_NUMBERS = 8  # numbers that require as much memory as a short text


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the size and the content of one request.

    Parameters
    ----------
    nbytes : int, default 64 MiB
        Max bytes of the body; the server checks this while it receives the body.
    unpacked : int, default 256 MiB
        Max bytes of Arrow buffers after decompression.
    rows : int, default 1,048,576
        Max rows.
    columns : int, default 65,536
        Max columns.
    values : int, default 16,777,216
        Max values, of 8 bytes each; a text counts as eight values.
    text : int, default 65,536
        Max characters of one text.
    json_bytes : int, default 8 MiB
        Max bytes of JSON; decoding it requires up to 48 times as much memory.

    Examples
    --------
    >>> Limits(rows=1000).check_size(20, 4, "inputs[0].shape")
    >>> Limits(rows=1000).check_size(2000, 4, "inputs[0].shape")
    Traceback (most recent call last):
        ...
    onepass.errors.RequestError: the request's `inputs[0].shape` must have at most 1,000 rows, got
    2,000. Send fewer rows per request.
    """

    nbytes: int = 64 << 20
    unpacked: int = 256 << 20
    rows: int = 1 << 20
    columns: int = 1 << 16
    values: int = 1 << 24
    text: int = 1 << 16
    json_bytes: int = 8 << 20

    def check_json(self, nbytes: int) -> None:
        """Raise RequestError if there are too many bytes of JSON."""
        if nbytes > self.json_bytes:
            must = f"have at most {self.json_bytes:,} bytes of JSON"
            remedy = "Send fewer rows per request, or send an Arrow stream or binary tensors"
            raise request_error("", must, f"{nbytes:,}", remedy)

    def check_size(self, n: int, columns: int, place: str, *, texts: int = 0) -> None:
        """Raise RequestError if there are too many rows, columns or values.

        Parameters
        ----------
        n, columns : int
            Number of rows, and of all columns.
        place : str
            Location of the rows in the request, for messages.
        texts : int, default 0
            Number of text columns.
        """
        if n > self.rows:
            must = f"have at most {self.rows:,} rows"
            raise request_error(place, must, f"{n:,}", "Send fewer rows per request")
        if columns > self.columns:
            must = f"have at most {self.columns:,} columns"
            raise request_error(
                place, must, f"{columns:,}", "Leave out columns that are not required"
            )
        if n * (columns + (_TEXT_AS_NUMBERS - 1) * texts) > self.values:
            must = f"have at most {self.values:,} values, where a text counts as {_TEXT_AS_NUMBERS}"
            got = f"{n:,} rows of {columns:,} columns, including {texts:,} text columns"
            raise request_error(place, must, got, "Send fewer rows per request")

    def check_sparse(self, cells: int, nbytes: int, place: str) -> None:
        """Raise RequestError if few bytes encode very many missing values.

        Parameters
        ----------
        cells : int
            Number of values that may be missing.
        nbytes : int
            Number of bytes that encode the values.
        place : str
            Location of the values in the request, for messages.
        """
        if cells > _SPARSE * nbytes + _FEW:
            must = f"have at least one byte per {_SPARSE} values"
            got = f"{nbytes:,} bytes for {cells:,} values, of which nearly all are missing"
            raise request_error(place, must, got, "Send fewer rows or fewer columns per request")

    def check_text(self, longest: int, place: str) -> None:
        """Raise RequestError if the longest text exceeds the limit."""
        if longest > self.text:
            must = f"have texts of at most {self.text:,} characters"
            raise request_error(place, must, f"a text of {longest:,}", "Shorten the text")


def request_error(place: str, must: str, got: object, remedy: str) -> RequestError:
    """Return the error for a request that cannot be decoded.

    Parameters
    ----------
    place : str
        Location in the request, such as ``inputs[0].data``; empty for the whole request.
    must, got : str
        Expected value, as a phrase after "must", and the received value.
    remedy : str
        Remedy: a sentence without full stop, or a question.
    """
    where = f"the request's `{place}`" if place else "the request"
    end = "" if remedy.endswith("?") else "."
    return RequestError(f"{where} must {must}, got {got}. {remedy}{end}")


def shown(value: object) -> str:
    """Return a received value for a message, quoted, and truncated if it is long.

    Parameters
    ----------
    value : object
        Text, number, or another object with a short ``repr``.

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

"""Request of the service: its headers, and its body within limits."""

import zlib
from collections.abc import Iterable
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from onepass.errors import ParameterError, PayloadTooLargeError
from onepass.service.http.context import Service
from onepass.service.registry import ModelServer

__all__ = ["ServiceRequest"]

_ONCE = {b"authorization", b"content-encoding", b"content-length", b"content-type", b"host",
         b"idempotency-key", b"inference-header-content-length", b"origin"}  # fmt: skip
_SMALL = 1 << 16  # bytes of a body that needs no thread, and no room


class ServiceRequest(Request):
    """A request to the service.

    Parameters
    ----------
    scope, receive
        As ASGI has them.
    service : Service

    Attributes
    ----------
    fields : dict of bytes to bytes
        Headers by their names in lower case.
    large : bool
        Whether the body takes long to decode; set by ``read``.

    Raises
    ------
    ParameterError
        If a header on which security depends is given twice.
    """

    def __init__(self, scope: Scope, receive: Receive, service: Service) -> None:
        super().__init__(scope, receive)
        self.service, self.fields = service, _fields(scope["headers"])
        self.large = False
        self._reserved = 0

    @property
    def served(self) -> ModelServer:
        """The learner that the path names."""
        return self.service.registry[self.path_params["name"]]

    def field(self, name: bytes) -> str | None:
        """A header by its name in lower case."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    async def read(self, *, text: bool) -> bytes:
        """The body, decompressed; both as received and after decompression within the limits.

        Parameters
        ----------
        text : bool
            Whether it is JSON, which may be shorter than other bodies.

        Raises
        ------
        PayloadTooLargeError
            If it is longer.
        BusyError
            If the bodies of all requests have too many bytes.
        ParameterError
            If it is compressed in an unknown way, or damaged.
        ClientDisconnect
            If the client closes the connection, or the server because the body comes too slowly.
        """
        limits = self.service.limits
        limit = min(limits.nbytes, limits.json_bytes) if text else limits.nbytes
        _check_length(int(self.fields.get(b"content-length", b"0")), limit)
        received, more = bytearray(), True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            received += message.get("body", b"")
            _check_length(len(received), limit)
            self._reserve(len(received))
            more = message.get("more_body", False)
        body = bytes(received)
        packing = self.fields.get(b"content-encoding", b"identity").lower()
        self.large = len(body) > _SMALL or packing != b"identity"
        if packing != b"identity":
            body = await self.service.compute(partial(_decompressed, body, packing, limit))
            self._reserve(len(body))
        return body

    def release(self) -> None:
        """Release the memory that the body has reserved."""
        if self._reserved:
            self.service.budget.reserve(-self._reserved)

    def _reserve(self, nbytes: int) -> None:
        if nbytes > _SMALL and nbytes > self._reserved:
            self.service.budget.reserve(nbytes - self._reserved)
            self._reserved = nbytes


def _fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers = list(headers)
    found = dict(headers)
    if len(found) < len(headers):
        names = [name for name, _ in headers]
        for name in _ONCE & found.keys():
            if names.count(name) > 1:
                raise ParameterError(
                    f"the header {name.decode().title()} must be given once, got it "
                    f"{names.count(name)} times. Send one of them."
                )
    return found


def _check_length(nbytes: int, limit: int) -> None:
    """Refuse a body that is too long."""
    if nbytes > limit:
        raise PayloadTooLargeError(
            f"the body must have at most {limit:,} bytes, decompressed too, got more. Send fewer "
            "rows at a time; Arrow and binary tensors may be longer than JSON."
        )


def _decompressed(body: bytes, packing: bytes, limit: int) -> bytes:
    name = packing.decode("latin-1")
    if packing not in {b"gzip", b"deflate"}:
        raise ParameterError(
            f"Content-Encoding must be gzip, deflate or identity, got {name[:40]!r}. Send the body "
            "as one of these."
        )
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise ParameterError(
            f"the body must be {name}, as Content-Encoding states, got: {error}. Compress it again."
        ) from error
    _check_length(len(found), limit)
    if not decoder.eof or decoder.unused_data:
        got = "bytes behind its end" if decoder.eof else "a truncated one"
        raise ParameterError(f"the body must be {name}, got {got}. Send it whole.")
    return found

"""HTTP requests: checked headers, and bodies within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from onepass.errors import ParameterError, PayloadTooLargeError
from onepass.service.http.context import Service
from onepass.service.registry import ModelServer

_ONCE = {b"authorization", b"content-encoding", b"content-length", b"content-type", b"host",
         b"idempotency-key", b"inference-header-content-length", b"origin"}  # fmt: skip
_SMALL = 1 << 16  # max bytes of a body that is decoded in the event loop, without the budget


class ServiceRequest(Request):
    """A request to the service.

    Parameters
    ----------
    scope, receive
        Arguments of an ASGI application.
    service : Service

    Attributes
    ----------
    fields : dict of bytes to bytes
        Headers by lower-case name.
    large : bool
        Whether decoding the body takes long; set by ``read``.

    Raises
    ------
    ParameterError
        If a header that affects security or decoding is sent more than once.
    """

    def __init__(self, scope: Scope, receive: Receive, service: Service) -> None:
        super().__init__(scope, receive)
        self.service, self.fields = service, _fields(scope["headers"])
        self.large = False
        self._reserved = 0

    @property
    def served(self) -> ModelServer:
        """Learner that the path names."""
        return self.service.registry[self.path_params["name"]]

    def field(self, name: bytes) -> str | None:
        """Return the header with a lower-case name; None if it is missing."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    async def read(self, *, text: bool) -> bytes:
        """Return the decompressed body; its size is limited before and after decompression.

        Parameters
        ----------
        text : bool
            Whether the body is JSON, which has a lower limit.

        Raises
        ------
        PayloadTooLargeError
            If the body is too long.
        BusyError
            If the bodies of all concurrent requests are too large.
        ParameterError
            If the compression is unknown, or the compressed body is damaged.
        ClientDisconnect
            If the client closes the connection, or the server does, as the body arrives too slowly.
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
        encoding = self.fields.get(b"content-encoding", b"identity").lower()
        self.large = len(body) > _SMALL or encoding != b"identity"
        if encoding != b"identity":
            body = await self.service.compute(partial(_decompressed, body, encoding, limit))
            self._reserve(len(body))
        return body

    def release(self) -> None:
        """Release the memory that was reserved for the body."""
        if self._reserved:
            self.service.budget.reserve(-self._reserved)

    def _reserve(self, nbytes: int) -> None:
        if nbytes > _SMALL and nbytes > self._reserved:
            self.service.budget.reserve(nbytes - self._reserved)
            self._reserved = nbytes


def _fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers = list(headers)
    fields = dict(headers)
    if len(fields) < len(headers):
        names = [name for name, _ in headers]
        for name in _ONCE & fields.keys():
            if names.count(name) > 1:
                raise ParameterError(
                    f"the header {name.decode().title()} must be sent once, got it "
                    f"{names.count(name)} times. Send one of these headers."
                )
    return fields


def _check_length(nbytes: int, limit: int) -> None:
    """Reject a body that is too long."""
    if nbytes > limit:
        raise PayloadTooLargeError(
            f"the body must have at most {limit:,} bytes before and after decompression, got more. "
            "Send fewer rows per request; Arrow and binary tensors may be longer than JSON."
        )


def _decompressed(body: bytes, encoding: bytes, limit: int) -> bytes:
    name = encoding.decode("latin-1")
    if encoding not in {b"gzip", b"deflate"}:
        raise ParameterError(
            f"Content-Encoding must be gzip, deflate or identity, got {name[:40]!r}. Send the body "
            "in one of these encodings."
        )
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        decompressed = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise ParameterError(
            f"the body must be {name}, as Content-Encoding states, got: {error}. Compress the body "
            "again, or remove the header."
        ) from error
    _check_length(len(decompressed), limit)
    if not decoder.eof or decoder.unused_data:
        got = "bytes after its end" if decoder.eof else "a truncated body"
        raise ParameterError(
            f"the body must be one complete {name} stream, got {got}. Send the whole stream, "
            "without further bytes."
        )
    return decompressed

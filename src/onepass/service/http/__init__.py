"""The HTTP server of durable learners."""

from onepass.errors import import_extra

__all__: list[str] = []

for _package in ("prometheus_client", "starlette", "uvicorn", "httptools"):
    import_extra(_package, extra="serve")

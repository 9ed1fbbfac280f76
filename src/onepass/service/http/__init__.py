"""The HTTP server of durable learners."""

__all__: list[str] = []

"""Web: durable learners behind HTTP."""

__all__: list[str] = []

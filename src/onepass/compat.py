"""Former module of the integrations."""

__all__: list[str] = []

raise ImportError("onepass.compat has moved. Import onepass.integrations.")

"""Neural networks: any torch.nn.Module learns a stream in one pass (the extra torch)."""

from onepass.extras import need

__all__: list[str] = []

need("torch", extra="torch", where="op.nn")

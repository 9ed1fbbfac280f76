"""Former module of the baselines."""

__all__: list[str] = []

raise ImportError("onepass.baselines has moved. Import onepass_experiments.baselines.")

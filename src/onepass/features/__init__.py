"""Features: one-pass transformers that stand before a learner in a Pipeline."""

from onepass.axes import Axes, View
from onepass.features.columns import Hashed, Number, Text
from onepass.features.dates import Date
from onepass.features.encode import Encode
from onepass.features.impute import Impute
from onepass.features.principal import IncrementalPCA
from onepass.features.scale import Scale

__all__ = ["Encode", "Impute", "IncrementalPCA", "Scale"]

STATES = (Number, Text, Hashed, Date, Axes, View)
"""What is learned but not public."""

"""Features: one-pass transformers that stand before a learner in a Pipeline."""

from onepass.axes import Axes, View
from onepass.features.columns import Hashed, Number, Text
from onepass.features.convolution import RandomConvolution
from onepass.features.dates import Date
from onepass.features.encode import Encode
from onepass.features.impute import Impute
from onepass.features.onnx_file import ONNXFeatures
from onepass.features.principal import IncrementalPCA
from onepass.features.random_units import RandomFourier, RandomReLU
from onepass.features.scale import Scale
from onepass.features.torch_module import TorchFeatures

__all__ = [
    "Encode",
    "Impute",
    "IncrementalPCA",
    "ONNXFeatures",
    "RandomConvolution",
    "RandomFourier",
    "RandomReLU",
    "Scale",
    "TorchFeatures",
]

STATES = (Number, Text, Hashed, Date, Axes, View)
"""What is learned but not public."""

"""One-pass transformers, used before a learner in a Pipeline."""

from onepass.features.columns import Date, Hashed, Number, Text
from onepass.features.convolution import RandomConvolution
from onepass.features.encode import Encode
from onepass.features.impute import Impute
from onepass.features.lag import Lag
from onepass.features.onnx import ONNXFeatures
from onepass.features.pca import IncrementalPCA
from onepass.features.pipeline import Pipeline
from onepass.features.random_features import RandomFourier, RandomReLU
from onepass.features.scale import Scale
from onepass.features.target_origin import TargetOrigin
from onepass.features.torch_module import TorchFeatures
from onepass.linalg.pca import IncrementalPCAState, PrincipalAxes
from onepass.serialization.codec import Role, register

__all__ = [
    "Encode",
    "Impute",
    "IncrementalPCA",
    "Lag",
    "ONNXFeatures",
    "RandomConvolution",
    "RandomFourier",
    "RandomReLU",
    "Scale",
    "TargetOrigin",
    "TorchFeatures",
]

STATES = (Number, Text, Hashed, Date, IncrementalPCAState, PrincipalAxes)
"""Classes of the learned state, which are not public."""

register(
    Role.FEATURE,
    Encode,
    Impute,
    IncrementalPCA,
    Lag,
    ONNXFeatures,
    RandomConvolution,
    RandomFourier,
    RandomReLU,
    Scale,
    TargetOrigin,
    TorchFeatures,
    *STATES,
)
register(Role.PIPELINE, Pipeline)

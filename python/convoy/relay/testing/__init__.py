"""Classic networks as Relay modules, under the names of `tvm.relay.testing`, and GoogLeNet,
MobileNet v2 and ResNeXt.

Each has `get_workload(...)`, which returns a module and random parameters, and a function that
returns the network alone.
"""

from convoy.relay.testing import (
    dcgan,
    densenet,
    googlenet,
    inception_v3,
    layers,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnext,
    squeezenet,
    vgg,
)
from convoy.relay.testing.init import Constant, Initializer, Xavier, create_workload

__all__ = [
    "Constant",
    "Initializer",
    "Xavier",
    "create_workload",
    "dcgan",
    "densenet",
    "googlenet",
    "inception_v3",
    "layers",
    "mlp",
    "mobilenet",
    "mobilenet_v2",
    "resnet",
    "resnext",
    "squeezenet",
    "vgg",
]

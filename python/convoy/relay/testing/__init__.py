"""Classic networks as Relay modules, under the names of `tvm.relay.testing`, and GoogLeNet,
MobileNet v2 and ResNeXt.

Each has `get_workload(...)`, which returns a module and random parameters, and a function that
returns the network alone.
"""

from convoy.relay.prelude import Prelude
from convoy.relay.testing import (
    byoc,
    dcgan,
    densenet,
    dqn,
    googlenet,
    inception_v3,
    layers,
    lstm,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnext,
    squeezenet,
    synthetic,
    temp_op_attr,
    vgg,
)
from convoy.relay.testing.checks import (
    TempOpAttr,
    _np_randn_from_type,
    check_grad,
    count_ops,
    ctx_list,
    enabled_targets,
    rand,
    run_infer_type,
    run_opt_pass,
)
from convoy.relay.testing.init import Constant, Initializer, Xavier, create_workload
from convoy.relay.testing.nat import (
    add_nat_definitions,
    count,
    make_nat_expr,
    make_nat_value,
)

__all__ = [
    "byoc",
    "Prelude",
    "add_nat_definitions",
    "count",
    "make_nat_expr",
    "make_nat_value",
    "Constant",
    "Initializer",
    "TempOpAttr",
    "Xavier",
    "_np_randn_from_type",
    "check_grad",
    "count_ops",
    "create_workload",
    "ctx_list",
    "dcgan",
    "densenet",
    "dqn",
    "enabled_targets",
    "googlenet",
    "inception_v3",
    "layers",
    "lstm",
    "mlp",
    "mobilenet",
    "mobilenet_v2",
    "rand",
    "resnet",
    "resnext",
    "run_infer_type",
    "run_opt_pass",
    "squeezenet",
    "synthetic",
    "temp_op_attr",
    "vgg",
]

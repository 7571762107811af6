"""Modules under paths that TVM gave them: `relay.op.nn.nn` is `relay.op.nn`."""

from __future__ import annotations

import sys
from importlib import import_module

_CONVERTED = "relay.frontend.converted"

#: Modules of Convoy by a name without `tvm.` that they had in some version up to 0.18.
FORMER = {
    "relay.analysis.analysis": "relay.analysis",
    "relay.analysis.annotated_regions": "relay.analysis",
    "relay.analysis.count_layers": "relay.analysis",
    "relay.analysis.feature": "relay.analysis",
    "relay.backend.graph_executor_factory": "relay.backend.executor_factory",
    "relay.backend.graph_runtime_factory": "relay.backend.executor_factory",
    "relay.backend.profiler_vm": "relay.vm",
    "relay.backend.vmobj": "relay.adt",
    "relay.feature": "relay.analysis",
    "relay.frontend.caffe": _CONVERTED,
    "relay.frontend.caffe2": _CONVERTED,
    "relay.frontend.coreml": _CONVERTED,
    "relay.frontend.darknet": _CONVERTED,
    "relay.frontend.mxnet": _CONVERTED,
    "relay.frontend.oneflow": _CONVERTED,
    "relay.frontend.paddlepaddle": _CONVERTED,
    "relay.op.algorithm": "relay.op.tensor",
    "relay.op.annotation.annotation": "relay.op.annotation",
    "relay.op.image.image": "relay.op.image",
    "relay.op.nn.nn": "relay.op.nn",
    "relay.op.random.kernel": "relay.op.random",
    "relay.op.reduce": "relay.op.tensor",
    "relay.op.transform": "relay.op.tensor",
    "relay.op.vision.multibox": "relay.op.vision",
    "relay.op.vision.nms": "relay.op.vision",
    "relay.op.vision.rcnn": "relay.op.vision",
    "relay.op.vision.yolo": "relay.op.vision",
    "relay.param_dict": "relay.params",
    "relay.parser": "relay.api",
    "relay.qnn.op.op": "relay.qnn.op",
    "relay.quantize._calibrate": "relay.quantize",
    "relay.quantize.quantize": "relay.quantize",
    "relay.transform.transform": "relay.transform",
    "relay.vmobj": "relay.adt",
}

#: Modules whose sources import classes of expressions and types, which scripts import from them.
_WITH_CLASSES = ("adt", "expr_functor", "function", "op.nn", "op.tensor", "type_functor")


def install(package: str) -> None:
    """Let Python find these modules, also as attributes where nothing else has the name.

    Args:
        package: What stands for `tvm`: "convoy", or the package of TVM 0.18's own names.
    """
    for former, present in FORMER.items():
        module = import_module(f"convoy.{present}")
        sys.modules[f"{package}.{former}"] = module
        parent, _, name = former.rpartition(".")
        vars(import_module(f"convoy.{parent}")).setdefault(name, module)
    classes = {n: v for n, v in vars(import_module("convoy.relay")).items() if isinstance(v, type)}
    for name in _WITH_CLASSES:
        for key, value in classes.items():
            vars(import_module(f"convoy.relay.{name}")).setdefault(key, value)

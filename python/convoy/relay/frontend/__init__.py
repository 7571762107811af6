"""`relay.frontend`: models of other frameworks as Relay, under TVM 0.18's names.

Every importer returns (module, parameters by name). A framework is imported when its importer is
called.
"""

from convoy.relay.frontend import common, tensorflow, tflite
from convoy.relay.frontend.converted import (
    from_caffe,
    from_caffe2,
    from_coreml,
    from_darknet,
    from_mxnet,
    from_oneflow,
    from_paddle,
    from_tensorflow,
    from_tflite,
)
from convoy.relay.frontend.keras import from_keras
from convoy.relay.frontend.onnx import from_onnx
from convoy.relay.frontend.pytorch import from_pytorch

__all__ = [
    "common",
    "from_caffe",
    "from_caffe2",
    "from_coreml",
    "from_darknet",
    "from_keras",
    "from_mxnet",
    "from_oneflow",
    "from_onnx",
    "from_paddle",
    "from_pytorch",
    "from_tensorflow",
    "from_tflite",
    "tensorflow",
    "tflite",
]

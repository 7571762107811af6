"""Names of TVM 0.18 that neither TVM nor Convoy has today, and their replacements."""

from __future__ import annotations

_TUNING = (
    "Convoy selects kernels by measured cost inside relay.build; `convoy tune` and "
    "convoy.place(...) measure more of them, and their records are reused"
)
_DEVICES = "Convoy compiles for the CPU of this machine and NVIDIA GPUs"

_SCHEDULES = (
    "Convoy computes operators by its own kernels and TVM's; relay.op.register and "
    "relay.op.register_compute make an operator of a script"
)
_EXPRESSIONS = (
    "te.create_prim_func([inputs and outputs]) makes a function of tensor expressions, "
    "tvm.s_tir.Schedule changes its loops and tvm.compile compiles it"
)
_LIBRARIES = (
    "Convoy computes with cuDNN, cuBLASLt, CUTLASS and its own kernels; relay.build chooses, "
    "and partition_for_cutlass and partition_for_cudnn restrict a module to one"
)
_INTERNALS = "It was a part of TVM's own compiler; convoy.relay.to_relax shows what Convoy compiles"
_IMPORTERS = "relay.frontend.from_onnx and from_pytorch import such a model"
_WINOGRAD = "relay.nn.conv2d and conv3d compute it, by the algorithm that costs least"
_VALUES = "relay.annotation.on_device marks a value; a module runs on one device"
_REMOTE = "rpc.LocalSession runs a network on this machine"
_AHEAD_OF_TIME = "relay.build exports one shared object that runs without a compiler"
_COMPILERS = (
    "arm_compute_lib", "bnns", "clml", "cmsisnn", "coreml", "cublas", "dnnl", "ethosn", "ethosu",
    "libtorch", "mrvl", "tensorrt", "uma", "vitis_ai",
)  # fmt: skip

#: Modules and names, with all that is below them, and what to use in their place.
REMOVED = {
    "autotvm": _TUNING,
    "auto_scheduler": _TUNING,
    "meta_schedule": _TUNING,
    "driver.tvmc": "The command `convoy` builds, measures and runs models",
    "micro": _DEVICES,
    **{
        f"relay.op.contrib.{name}": _LIBRARIES
        for name in (
            "ethosn_api_version", "partition_for_ethosn", "partition_for_tensorrt", "torchop",
        )
    },
    "relay.op.strategy": _SCHEDULES,
    **{
        f"te.{name}": _EXPRESSIONS
        for name in (
            "AXIS_SEPARATOR", "SpecializedCondition", "create_schedule", "decl_tensor_intrin",
            "hybrid",
        )
    },
    "runtime.profiler_vm": "contrib.debugger.debug_executor times the kernels of relay.build",
    **{
        f"relay.backend.{name}": (
            "relay.build compiles through Relax; convoy.relay.to_relax shows the result"
        )
        for name in (
            "_aot", "_backend", "_vm", "aot", "compile_engine", "contrib",
            "graph_executor_codegen", "name_transforms", "te_compiler", "utils",
        )
    },
    **{f"relay.op.contrib.{name}": _LIBRARIES for name in _COMPILERS},
    **{
        f"target.{name}": _DEVICES
        for name in (
            "arm_cpu", "bifrost", "hexagon", "intel_graphics", "mali", "micro", "opengl", "rasp",
            "riscv_cpu", "rocm", "vta",
        )
    },
    "contrib.hexagon": _DEVICES,
    "contrib.ethosu": _DEVICES,
    "contrib.tedd": "TE schedules are no longer part of TVM",
    **{
        f"contrib.relay_viz.{name}": "contrib.relay_viz.TermPlotter draws modules as text"
        for name in ("DotPlotter", "DotVizParser", "dot")
    },
    "lower": _EXPRESSIONS,
    "hybrid": _EXPRESSIONS,
    "relay.hybrid": "relay.ScopeBuilder and relay.parse write functions",
    **{
        f"tir.{name}": _EXPRESSIONS
        for name in (
            "Allocate", "BufferRealize", "expr.PrimExprWithOp", "ir_builder", "stmt.Allocate",
            "stmt_functor", "tensor_intrin", "transform.DefaultGPUSchedule",
            "transform.LowerCustomDatatypes", "transform.MakeUnpackedAPI", "usmp",
        )
    },
    **{
        f"topi.{name}": _SCHEDULES
        for name in (
            "adreno", "arm_cpu", "bifrost", "cuda", "generic", "hexagon", "hls", "intel_graphics",
            "mali", "random", "rocm", "sparse", "x86",
        )
    },
    "_ffi": "Functions of today's TVM are in tvm_ffi",
    "cl": _DEVICES,
    "contrib.miopen": _LIBRARIES,
    "contrib.mps": _LIBRARIES,
    "contrib.rocblas": _LIBRARIES,
    "contrib.mxnet": _IMPORTERS,
    "contrib.sparse": "relay.nn.sparse_dense takes the parts of a sparse matrix",
    "contrib.tflite_runtime": "relay.frontend.from_tflite imports a model",
    "driver.build_module": _EXPRESSIONS,
    "ir.diagnostics": "Errors of convoy.errors carry the position in the text",
    "ir.supply": _INTERNALS,
    "relax.testing.relay_translator": "convoy.relay.to_relax makes Relax of a Relay module",
    "rpc.proxy": _REMOTE,
    "rpc.tracker": _REMOTE,
    "runtime.name_transforms": _AHEAD_OF_TIME,
    **{
        f"runtime.vm.Executable.{name}": (
            "An executable is one file, which holds its constants; relay.vm.compile makes kernels, "
            "not bytecode"
        )
        for name in (
            "bytecode", "constants", "get_late_bound_consts", "globals", "load_late_bound_consts",
            "load_late_bound_consts_from_map", "move_late_bound_consts", "primitive_ops", "stats",
        )
    },
    "target.datatype": "relay.op.register makes an operator of a script",
    "testing.aot": _AHEAD_OF_TIME,
    "utils": "`convoy bench` shows the time of each layer beside its bound",
    "ConstantMemoryPools": _DEVICES,
    "ConstantPoolInfo": _DEVICES,
    "PoolInfoProperties": _DEVICES,
    "WorkspaceMemoryPools": _DEVICES,
    "WorkspacePoolInfo": _DEVICES,
    "ir.memory_pools": _DEVICES,
    "relax.TensorStructInfo": "Relax has relax.TensorType today",
    **{
        f"relay.{name}": _INTERNALS
        for name in (
            "StaticMemoryPlan", "StorageInfo", "TempExpr", "SpanCheck", "SequentialSpan",
            "analysis._ffi_api", "analysis.context_analysis", "analysis.operations_distribution",
            "analysis.sparse_conv2d", "analysis.sparse_dense", "copy_shape_func",
            "dataflow_pattern.register_df_node", "op._make", "op._reduce", "op._tensor",
            "op._tensor_grad", "op._transform", "op.bitpack", "op.dyn", "op.memory", "op.nn._make",
            "op.nn._nn", "op.vm", "quantize.QAnnotateKind",
            "quantize._partition",
            "quantize.QuantizeContext", "quantize.kind2str", "quantize.partition",
            "quantize.quantize_context", "transform._ffi_api", "transform.suffixes",
            "op.vision.all_class_nms_shape_func", "op.vision.compute_roi_pool",
            "op.vision.convert_roi_align", "op.vision.convert_roi_pool",
            "op.vision.get_valid_counts_shape_func", "op.vision.nms_shape_func",
            "op.vision.regular_nms_shape_func", "op.vision.roi_align_shape_func",
        )
    },
    **{
        f"relay.op.nn.contrib_{name}_without_weight_transform": _WINOGRAD
        for name in ("conv2d_gemm", "conv2d_winograd", "conv3d_winograd")
    },
    "relay.op.nn.contrib_conv2d_winograd_nnpack_weight_transform": _WINOGRAD,
    "relay.op.annotation.function_on_device": _VALUES,
    "relay.collage": "convoy.place selects kernels by measured cost",
    **{
        f"relay.frontend.{name}": "relay.transform.ToMixedPrecision and recast write casts"
        for name in ("ChangeDatatype", "change_datatype")
    },
    **{
        f"relay.frontend.{name}": _IMPORTERS
        for name in (
            "common.StrAttrsDict", "common.set_span", "from_nnvm", "mxnet_qnn_op_utils",
            "nnvm_common", "onnx.GraphProto", "onnx.OnnxOpConverter", "onnx.get_info",
            "pytorch.PyTorchOpConverter", "pytorch.get_graph_input_names", "pytorch_utils",
            "tensorflow2", "tensorflow_parser", "tflite.OperatorConverter",
            "tflite.get_pad_value", "tflite.get_tensor_name",
        )
    },
    **{
        f"relay.testing.{name}": _IMPORTERS
        for name in ("darknet", "resnet_3d", "tf", "tflite", "yolo_detection")
    },
    **{
        f"relay.testing.{name}": "relay.create_executor runs an expression"
        for name in ("py_converter", "run_as_python", "to_python")
    },
    **{
        f"relay.transform.{name}": remedy
        for remedy, passes in {
            "relay.create_executor and relay.vm.compile run closures as they are": (
                "Defunctionalization", "ToCPS", "to_cps", "un_cps",
            ),
            _VALUES: ("RewriteAnnotatedOps",),
            "relay.nn.sparse_dense and sparse_conv2d take the parts of a sparse matrix": (
                "Conv2dToSparse", "Conv2dToSparse2", "DenseToSparse",
            ),
            "relay.transform.FoldConstant computes transposed weights": ("SimplifyFCTranspose",),
            "convoy.place selects kernels by measured cost": (
                "CapturePostDfsIndexInSpans", "CollagePartition",
            ),
            "Convoy compiles functions with the attribute Compiler like all others": (
                "InlineCompilerFunctionsBoundTo", "MarkCompilerFunctionsAsExtern",
                "OutlineCompilerFunctionsWithExistingGlobalSymbols",
            ),
            "Convoy plans memory when it compiles": (
                "LiftConstants", "ManifestAlloc", "ManifestLifetimes", "MemoryPlan", "memory_alloc",
                "memory_plan",
            ),
        }.items()
        for name in passes
    },
    "relay.vm.VMExecutor": "relay.create_executor('vm') makes one",
    "relay.vm.invoke": "relay.vm.VirtualMachine.invoke runs a function",
    "relay.data_dep_optimization": (
        "Sparse weights are given by relay.nn.sparse_dense; FoldConstant computes transposed ones"
    ),
    "contrib.pipeline_executor": "Convoy runs independent operators on several CUDA streams",
    "contrib.pipeline_executor_build": "Convoy runs independent operators on several CUDA streams",
    "contrib.torch": "convoy.compile takes a PyTorch module",
    "contrib.target": "Networks are compiled by relay.build and relay.vm.compile alone",
    "contrib.msc": "Relay networks are compiled by relay.build",
}  # fmt: skip

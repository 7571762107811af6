"""Bring an imported model to the normal form that patterns are matched on.

Normal form: one dataflow block without control flow, static shapes, parameters bound as
constants, 2d convolutions and pools in NHWC with OHWI filters, 3d ones in NDHWC with ODHWI, batch
norms folded or as ``x * scale + shift`` with constants of shape ``(channels,)``, convolutions and
matrix products in the dtype of the policy. Function inputs and outputs keep the shapes, layouts
and dtypes that they were declared with.

The passes, in order:

    LiftKernels          TIR functions of an importer -> operators
    UnrollRecurrent      recurrent layers without a kernel -> their steps
    Simplify             one name for synonyms; no-ops removed (again after the layout, and last)
    RecognizeActivations several operators that are an activation -> one
    DecomposeBatchNorm   inference batch norm -> x * scale + shift
    MergeReductions      reductions over one axis after the other -> over all of them
    RecognizeMovedParts  concatenations of all parts of one tensor -> permutations
    RecognizeFolds       transposed convolutions that add up patches -> sums of the patches
    HeightOne            convolutions over one dimension -> over images of height 1
    TransposeWeights     values times transposed attention weights -> weights times values
    ChannelsLast         NHWC activations, OHWI filters
    EliminateCommonCalls what is computed twice -> computed once
    NestPools            maxima over large windows -> maxima of those over smaller ones
    LargePools           large windows -> rows, then columns, or reductions
    ShortProducts        linear layers over a few heads, permuted -> element-wise
    ShortSums            sums of a few elements along an axis -> element-wise
    ShortFilters         convolutions of one channel with a few taps -> element-wise
    RecognizeRowNorms    several operators that are a norm of the last axis -> one
    MoveNorms            norms of rows before the rows are permuted
    MovePermutations     permutations of rows behind linear layers, where they end
    FoldPaddings         zeros around the data of a convolution -> its own padding
    TrimFilters          filters without taps that see nothing but padding
    FlattenCovered       filters that cover all of the data -> products of all of it
    IntegerArithmetic    convolutions and matmuls of dequantized data and weights -> of int8
    MoveReshapes         reshapes of matrix products behind what is fused with them
    ExpandTrainingNorms  training batch norm -> statistics and elementwise parts
    SplitElementwise     scales, shifts and activations of concatenated convolutions -> of each
    FoldAffine           scales into weights
    MergeBranches        sums of convolutions of one tensor -> one convolution
    SumBeforeProducts    sums of matmuls with the same weights -> a matmul of the sum
    FoldData             scales and shifts of data into the weights that read it
    ScaleActivations     scales and shifts behind relus and clips -> in front of them
    PackProducts         linear layers that attention reads, or slices -> one
    ApplyPrecision       the dtype policy
    SplitLongFilters     long filters of groups -> sums of convolutions with shorter ones
    FoldFewOutputs       convolutions to few channels -> sums of patches with more channels
    SlicedChannels       pointwise convolutions of some channels -> of all of them
    WidenChannels        channels of convolutions and of tokens in 16 bit -> multiples of 8
    PadHeads             heads of attention in 16 bit -> multiples of 8 elements
    PadStemChannels      few input channels -> as many as tensor cores load
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm

from ..graph.bind import bind_params, check_static, straight_line
from ..progress import step
from . import layout_axes, layout_rules  # noqa: F401  (register their rules)
from .activations import RecognizeActivations
from .affine import FoldAffine
from .affine_data import FoldData
from .attention_heads import PadHeads
from .batch_norm import DecomposeBatchNorm
from .channels import PadStemChannels
from .common_calls import EliminateCommonCalls
from .common_weights import SumBeforeProducts
from .concatenated import SplitElementwise
from .covering_filters import FlattenCovered
from .few_outputs import FoldFewOutputs
from .height_one import HeightOne
from .integer_arithmetic import IntegerArithmetic
from .large_pools import LargePools
from .layout import ChannelsLast
from .lift import LiftKernels
from .linear_branches import MergeBranches
from .long_filters import SplitLongFilters
from .moved_parts import RecognizeMovedParts
from .name_layers import NameLayers
from .nested_pools import NestPools
from .norms_of_rows import MoveNorms
from .overlapping_patches import RecognizeFolds
from .packed_products import PackProducts
from .paddings import FoldPaddings
from .permuted_rows import MovePermutations
from .precision import ApplyPrecision, compute_dtype
from .recurrent import UnrollRecurrent
from .reductions import MergeReductions
from .reshapes import MoveReshapes
from .row_norms import RecognizeRowNorms
from .scaled_activations import ScaleActivations
from .shape_outputs import shape_outputs
from .short_filters import ShortFilters
from .short_products import ShortProducts
from .short_sums import ShortSums
from .simplify import Simplify
from .sliced_channels import SlicedChannels
from .taps import TrimFilters
from .training_norms import ExpandTrainingNorms
from .transposed_weights import TransposeWeights
from .wide_channels import WidenChannels

#: Module attribute with the dtype policy.
POLICY_ATTR = "convoy.dtype"

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def normalize(
    mod: tvm.IRModule,
    params: Mapping[str, object] | None = None,
    dtype: str = "float16",
    *,
    arch: int = 0,
    pad_channels: int = 4,
    pixels_as_channels: bool = False,
) -> tvm.IRModule:
    """Bring the entry function of ``mod`` to normal form.

    Args:
        params: Values by parameter name, or the parameters that a torch importer detached.
        dtype: One of :data:`PRECISIONS`; ``float32`` is strict.
        arch: Compute capability times ten of the GPU; 0 for a CPU.
        pad_channels: Multiple to which the input channels of 16-bit stem convolutions are padded;
            1 leaves them.
        pixels_as_channels: Present pixels of stems as channels: blocks of pixels where a stem is
            strided (space to depth), the columns of the filter where it is wide.

    Raises:
        DynamicShape: A symbolic dimension.
        UnsupportedOp: Control flow.
        UnsupportedLayout: A blocked layout.
        InvalidOption: An unknown dtype or parameter name, or a parameter of another shape.
    """
    shared = normalize_but_stems(mod, params, dtype, arch)
    return with_stems(shared, pad_channels, pixels_as_channels)[0]


def normalize_but_stems(
    mod: tvm.IRModule, params: Mapping[str, object] | None, dtype: str, arch: int
) -> tvm.IRModule:
    """All passes of :func:`normalize` that do not depend on how stems are presented."""
    compute_dtype(dtype)  # reject an unknown policy first
    if params:  # whose names are those of the layers
        mod = NameLayers()(straight_line(mod))
    mod = straight_line(bind_params(mod, params))
    mod = shape_outputs(mod)
    check_static(mod)
    run = passes(dtype, arch)
    for number, one in enumerate(run):
        step(type(one).__name__, number, len(run))
        mod = one(mod)
    return mod.with_attr(POLICY_ATTR, dtype)


def passes(dtype: str, arch: int) -> list[Pass]:
    """List the passes of :func:`normalize_but_stems`, in order."""
    return [
        LiftKernels(),
        UnrollRecurrent(dtype, arch),
        Simplify(),
        RecognizeActivations(),
        DecomposeBatchNorm(),
        MergeReductions(),
        RecognizeMovedParts(),
        RecognizeFolds(),
        HeightOne(),
        TransposeWeights(),
        ChannelsLast(),
        Simplify(),
        EliminateCommonCalls(),
        NestPools(),
        LargePools(),
        ShortProducts(),
        ShortSums(),
        ShortFilters(),
        RecognizeRowNorms(),
        MoveNorms(),
        MovePermutations(),
        FoldPaddings(),
        TrimFilters(),
        FlattenCovered(),
        IntegerArithmetic(),
        MoveReshapes(),
        ExpandTrainingNorms(),
        SplitElementwise(),
        FoldAffine(),
        MergeBranches(),
        SumBeforeProducts(),
        FoldData(dtype),
        ScaleActivations(dtype),
        PackProducts(),
        ApplyPrecision(dtype),
        SplitLongFilters(),
        FoldFewOutputs(),
        SlicedChannels(),
        WidenChannels(),
        PadHeads(),
    ]


def with_stems(
    mod: tvm.IRModule, pad_channels: int = 4, pixels_as_channels: bool = False
) -> tuple[tvm.IRModule, bool]:
    """The passes of :func:`normalize` behind those.

    Returns:
        The normal form, and whether it presents any stem in another way than ``mod`` does.
    """
    stems = PadStemChannels(pad_channels, pixels_as_channels)
    if pad_channels > 1 or pixels_as_channels:
        mod = stems(mod)
    return Simplify()(mod), stems.changed

"""Fusion kinds of operators, `TOpPattern` in TVM 0.18, for patterns and users' passes."""

from __future__ import annotations

ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE = 0, 1, 2, 3
OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE = 4, 7, 8

_ELEMWISE = (  # noqa: SIM905
    "abs acos acosh asin asinh atan atanh bitwise_not cast ceil clip copy cos cosh erf exp fast_erf"
    " fast_exp fast_tanh fixed_point_multiply fixed_point_multiply_per_axis floor full_like"
    " hardswish image.affine_grid isfinite isinf isnan log log10 log2 logical_not ndarray_size"
    " negative nn.leaky_relu nn.relu ones ones_like dyn.ones dyn.zeros reinterpret round rsqrt"
    " sigmoid sign sin sinh sqrt tan tanh trunc zeros zeros_like cast_like full dyn.full"
).split()
_BROADCAST = (  # noqa: SIM905
    "add bitwise_and bitwise_or bitwise_xor broadcast_to broadcast_to_like divide dyn.broadcast_to"
    " equal floor_divide floor_mod greater greater_equal left_shift less less_equal logical_and"
    " logical_or logical_xor maximum minimum mod multiply nn.bias_add nn.prelu not_equal power"
    " right_shift subtract tile dyn.tile repeat expand_dims dyn.expand_dims trunc_divide trunc_mod"
    " where"
).split()
_INJECTIVE = (  # noqa: SIM905
    "adv_index annotation.checkpoint arange auto_scheduler_layout_transform concatenate"
    " contrib_reverse_reshape device_copy dyn.image.resize2d dyn.nn.pad dyn.nn.upsampling"
    " dyn.nn.upsampling3d dyn.one_hot dyn.reshape dyn.sparse_to_dense dyn.squeeze"
    " dyn.strided_slice gather gather_nd image.crop_and_resize image.grid_sample image.resize1d"
    " image.resize2d image.resize3d layout_transform matrix_set_diag meshgrid"
    " meta_schedule_layout_transform nn.batch_flatten nn.batch_to_space_nd nn.depth_to_space"
    " nn.dilate nn.fifo_buffer nn.mirror_pad nn.pad nn.space_to_batch_nd nn.space_to_depth"
    " nn.upsampling nn.upsampling3d one_hot reshape reshape_like reverse reverse_sequence"
    " sequence_mask shape_of slice_like sliding_window sparse_to_dense split squeeze stack"
    " strided_set strided_slice take transpose trilu unravel_index vision.yolo_reorg"
).split()
_REDUCE = (  # noqa: SIM905
    "all any argmax argmin collapse_sum_like collapse_sum_to max mean min prod sum variance"
).split()
_FUSABLE = (  # noqa: SIM905
    "image.dilation2d nn.batch_matmul nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose"
    " nn.conv3d nn.conv3d_transpose nn.contrib_conv2d_NCHWc nn.contrib_depthwise_conv2d_NCHWc"
    " nn.contrib_conv2d_gemm_without_weight_transform"
    " nn.contrib_conv2d_winograd_without_weight_transform"
    " nn.contrib_conv3d_winograd_without_weight_transform nn.contrib_dense_pack nn.correlation"
    " nn.cross_entropy nn.cross_entropy_with_logits nn.deformable_conv2d nn.dense nn.matmul"
    " nn.fast_softmax nn.instance_norm nn.l2_normalize nn.lrn nn.nll_loss nn.log_softmax nn.softmax"
    " nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.max_pool1d nn.max_pool2d nn.max_pool3d"
    " nn.avg_pool2d_grad nn.max_pool2d_grad nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d"
    " nn.adaptive_avg_pool3d nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d"
    " nn.global_avg_pool2d nn.global_max_pool2d nn.conv2d_backward_weight nn.sparse_dense"
    " nn.bitserial_conv2d nn.bitserial_dense vision.roi_align vision.roi_pool"
).split()

_KINDS = {
    name: kind
    for kind, names in (
        (ELEMWISE, _ELEMWISE),
        (BROADCAST, _BROADCAST),
        (INJECTIVE, _INJECTIVE),
        (COMM_REDUCE, _REDUCE),
        (OUT_ELEMWISE_FUSABLE, _FUSABLE),
    )
    for name in names
}


def fusion_kind(name: str) -> int:
    """Return the kind of an operator; those that are never fused are OPAQUE."""
    return _KINDS.get(name, OPAQUE)

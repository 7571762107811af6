"""The fields of a workload: their values, also in JSON, and how they have to fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from ..errors import InvalidWorkload
from . import fields as checks
from .attention import Attention
from .bottleneck import Bottleneck
from .depth import Depth
from .dtypes import DTYPE_BYTES, FLOAT_DTYPES
from .epilogue import NO_EPILOGUE, Epilogue
from .expansion import Expansion
from .squeeze_excite import SqueezeExcite
from .stem import Stem

if TYPE_CHECKING:
    from .workload import Workload

Op = Literal[
    "fprop", "dgrad", "wgrad", "matmul", "attention", "stem", "expand_depthwise", "bottleneck",
    "squeeze_excite",
]  # fmt: skip
OPS: tuple[Op, ...] = get_args(Op)
_KNOWN: dict[str, tuple[str, ...]] = {
    "op": OPS,
    **dict.fromkeys(("dtype", "out_dtype", "acc_dtype"), tuple(DTYPE_BYTES)),
    "math": ("default", "tf32"),
}
_SIZE = checks.integer(1)
#: Along an axis: larger ones are no image's, and some rules count along it.
_EXTENT = checks.integer(1, 1 << 24)
#: The fields of a workload in JSON, and those that have no default.
FIELDS: dict[str, checks.Check] = {
    **{name: checks.one_of(known) for name, known in _KNOWN.items()},
    **dict.fromkeys(("n", "c", "k", "groups"), _SIZE),
    **dict.fromkeys(("h", "w", "r", "s"), _EXTENT),
    "stride": checks.tuple_of(_EXTENT, 2),
    "padding": checks.tuple_of(checks.integer(0, 1 << 24), 4),
    "dilation": checks.tuple_of(_EXTENT, 2),
    "epilogue": Epilogue.from_json,
    "attention": Attention.from_json,
    "depth": Depth.from_json,
    "stem": Stem.from_json,
    "expansion": Expansion.from_json,
    "bottleneck": Bottleneck.from_json,
    "squeeze_excite": SqueezeExcite.from_json,
}
#: The fields of one operator alone.
_OF_OP = {
    "attention": "attention",
    "stem": "stem",
    "expansion": "expand_depthwise",
    "bottleneck": "bottleneck",
    "squeeze_excite": "squeeze_excite",
}
REQUIRED = ("op", "n", "h", "w", "c", "k", "r", "s")


def check(workload: Workload) -> None:
    """Raise InvalidWorkload for a field that is out of range or does not fit the others."""
    w = workload
    for name, known in _KNOWN.items():
        if (value := getattr(w, name)) not in known:
            raise InvalidWorkload(f"{name} {value!r}", f"one of {', '.join(known)}")
    for name in ("n", "h", "w", "c", "k", "r", "s", "groups"):
        value = getattr(w, name)
        if not isinstance(value, int) or value < 1:
            raise InvalidWorkload(f"{name} = {value!r}", "a positive integer")
    if w.c % w.groups or w.k % w.groups:
        raise InvalidWorkload(
            f"groups = {w.groups} with C = {w.c}, K = {w.k}",
            "groups that divide both channel counts",
        )
    _check_window(w)
    _check_op(w)
    if w.attention is not None:
        _check_attention(w, w.attention)
    if "int8" in _dtypes(w) or "int32" in _dtypes(w):
        _check_integers(w)


def _check_window(w: Workload) -> None:
    if min(w.stride) < 1 or min(w.dilation) < 1 or min(w.padding) < 0:
        raise InvalidWorkload(
            f"stride {w.stride}, dilation {w.dilation}, padding {w.padding}",
            "strides and dilations of at least 1, padding of at least 0",
        )
    if w.p < 1 or w.q < 1:
        raise InvalidWorkload(
            f"an output of {w.p}x{w.q}", "a filter no larger than the padded input"
        )


def _check_op(w: Workload) -> None:
    if w.is_3d and w.op not in ("fprop", "dgrad"):
        raise InvalidWorkload(f"op {w.op} with a depth", "fprop or dgrad")
    for name, op in _OF_OP.items():
        has_field = getattr(w, name) is not None
        if has_field != (w.op == op):
            raise InvalidWorkload(
                f"op {w.op} {'with' if has_field else 'without'} {name}",
                f"the field {name} for the op {op} alone",
            )
    if w.stem is not None:
        _check_stem(w, w.stem)
    if w.expansion is not None:
        _check_expansion(w, w.expansion)
    if w.bottleneck is not None:
        _check_bottleneck(w, w.bottleneck)
    if w.squeeze_excite is not None:
        _check_squeeze_excite(w, w.squeeze_excite)
    if w.is_batched and (w.epilogue != NO_EPILOGUE or w.h * w.w > 1):
        raise InvalidWorkload(
            f"a batched matmul of {w.h}x{w.w} with epilogue {w.epilogue.name!r}",
            "rows (n) alone, without an epilogue",
        )


def _is_of_floats(w: Workload) -> bool:
    return w.dtype == w.out_dtype and w.dtype in FLOAT_DTYPES


def _is_simple(epilogue: Epilogue) -> bool:
    """Return whether an epilogue is a bias and an activation at most."""
    return not (epilogue.residual or epilogue.affine_relu)


def _check_stem(w: Workload, stem: Stem) -> None:
    is_simple = w.dtype in FLOAT_DTYPES and _is_simple(w.epilogue)
    if w.groups > 1 or stem.channels > w.c or not is_simple:
        raise InvalidWorkload(
            f"a stem with {stem.channels} of {w.c} channels, {w.groups} groups, epilogue "
            f"{w.epilogue.name!r}, {w.dtype}",
            "at most the channels of a convolution of floats without groups, and an epilogue of "
            "bias and activation alone",
        )
    if not stem.fits(w.p, w.q):
        raise InvalidWorkload(
            f"a pool with window {stem.window}, stride {stem.stride}, padding {stem.padding} of "
            f"{w.p}x{w.q} pixels",
            "windows with at least one pixel",
        )


def _check_expansion(w: Workload, expansion: Expansion) -> None:
    if not (w.is_depthwise and w.k == w.c and _is_of_floats(w) and _is_simple(w.epilogue)):
        raise InvalidWorkload(
            f"an expansion of {expansion.channels} channels before {w.c}→{w.k} channels in "
            f"{w.groups} groups, epilogue {w.epilogue.name!r}, {w.dtype} to {w.out_dtype}",
            "a depthwise convolution with as many results as channels, of floats of one type, and "
            "an epilogue of bias and activation alone",
        )


def _check_bottleneck(w: Workload, bottleneck: Bottleneck) -> None:
    if w.groups > 1 or w.stride != (1, 1) or not (_is_of_floats(w) and _is_simple(w.epilogue)):
        raise InvalidWorkload(
            f"a bottleneck {bottleneck.name} behind a convolution in {w.groups} groups, stride "
            f"{w.stride}, epilogue {w.epilogue.name!r}, {w.dtype} to {w.out_dtype}",
            "a convolution with neither groups nor a stride, of floats of one type, and an "
            "epilogue of bias and activation alone",
        )


def _check_squeeze_excite(w: Workload, block: SqueezeExcite) -> None:
    image = (w.k, w.r, w.s, *w.stride, *w.dilation, w.groups, *w.padding)
    plain = image == (w.c, *(1,) * 7, *(0,) * 4)
    others = w.epilogue.bias or w.epilogue.affine_relu or w.epilogue.residual_last
    if not plain or not _is_of_floats(w) or others:
        raise InvalidWorkload(
            f"a squeeze-and-excitation block {block.name} of {w.c}→{w.k} channels, a filter of "
            f"{w.r}x{w.s}, {w.groups} groups, stride {w.stride}, padding {w.padding}, epilogue "
            f"{w.epilogue.name!r}, {w.dtype} to {w.out_dtype}",
            "K = C and no filter, groups, stride nor padding, floats of one type, and an epilogue "
            "of a residual and the activation behind it alone",
        )


def _check_attention(w: Workload, attention: Attention) -> None:
    plain = (w.r, w.s, *w.stride, *w.dilation) == (1,) * 6 and not any(w.padding)
    if not plain or w.epilogue != NO_EPILOGUE:
        raise InvalidWorkload(
            "attention with a filter, stride, dilation, padding or epilogue", "none of them"
        )
    attention.check(w.n, w.groups, w.h, w.w, (w.c // w.groups, w.k // w.groups))


def _dtypes(w: Workload) -> tuple[str, str, str]:
    return w.dtype, w.out_dtype, w.acc_dtype


def _check_integers(w: Workload) -> None:
    forward = w.op == "fprop" or (w.op == "matmul" and w.groups == 1)
    typed = (w.dtype, w.acc_dtype) == ("int8", "int32")
    fits = _requantizes(w.epilogue) if w.out_dtype == "int8" else _is_exact(w)
    if not (forward and typed and fits):
        raise InvalidWorkload(
            f"{w.op} of {', '.join(_dtypes(w))} with epilogue {w.epilogue.name!r}",
            "fprop or matmul of int8 with acc_dtype int32, and out_dtype int32 with at most a "
            "bias or int8 with a bias and a clip within its range",
        )


def _is_exact(w: Workload) -> bool:
    """Return whether the result is the sums in int32, with at most a bias."""
    return w.out_dtype == "int32" and w.epilogue in (NO_EPILOGUE, Epilogue(bias=True))


def _requantizes(epilogue: Epilogue) -> bool:
    """Return whether an epilogue adds a bias and clips to integers within 255 of each other."""
    low, high = epilogue.clip_min, epilogue.clip_max
    clip = Epilogue(bias=True, activation="clip", clip_min=low, clip_max=high)
    whole = float(low).is_integer() and float(high).is_integer()
    return whole and high - 255 <= low <= high and 0 <= high <= 255 and epilogue == clip

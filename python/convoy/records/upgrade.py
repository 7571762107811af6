"""Translate the fields of records that earlier versions wrote.

A kernel source is named by its header and a hash of its code. Where headers were moved, or their
code was changed without a change of the compiled kernels (proven on the device code), the
measurements are as valid as before, so that old names and hashes are read as the present ones.
"""

from __future__ import annotations

#: HEADER=HASH as earlier versions wrote it -> the same kernels today.
KERNELS = {
    "cutlass/sm80_conv.cuh=04d72ff627a2": "cutlass/sm80_conv.cuh=88cce90ad93b",
    "cutlass/sm80_dgrad.cuh=1c7b723ce1a3": "cutlass/sm80_dgrad.cuh=635cc0b13ac4",
    "cutlass/sm80_strided_dgrad.cuh=47a3375280cd": "cutlass/sm80_strided_dgrad.cuh=11b012269f99",
    "cutlass/sm80_wgrad.cuh=af0605fa641a": "cutlass/sm80_wgrad.cuh=5cc65419e0f4",
    "cutlass/sm90_conv.cuh=be4c735d3f74": "cutlass/sm90_conv.cuh=cafc2d93d80c",
    "cutlass/sm90_dgrad.cuh=80dbd70e8311": "cutlass/sm90_dgrad.cuh=a09f8b50d7b6",
    "cutlass/sm90_dgrad_gemm.cuh=d999bdad23ad": "cutlass/sm90_dgrad_gemm.cuh=f111c6a3a1d4",
    "cutlass/sm90_gemm.cuh=d76b69d9950c": "cutlass/sm90_gemm.cuh=eb75c677a98a",
    "cutlass/sm90_wgrad.cuh=8d37f5a5a3c6": "cutlass/sm90_wgrad.cuh=fee52770d136",
    "hopper/dgrad_strided_library.cuh=e9eb1f7a5b13": "sm90/dgrad_strided_library.cuh=f2cc14cd9cf0",
    "hopper/stem_dgrad_library.cuh=88917e6041c4": "sm90/stem_dgrad_library.cuh=9d84a6221c55",
    "sm90/stem_dgrad_library.cuh=720e890dc577": "sm90/stem_dgrad_library.cuh=9d84a6221c55",
    "hopper/stem_fprop_library.cuh=eea762a042de": "sm90/stem_fprop_library.cuh=930077153fbd",
    "sm90/small_conv_library.cuh=bf9ffbc87837": "sm90/small_conv_library.cuh=cab2e2dbbcbf",
    "hopper/stem_wgrad_library.cuh=c5d63f4df02a": "sm90/stem_wgrad_library.cuh=1bf6dce89dc9",
}
_STORE_WARPS = '"store_warps":true'
_NO_STORE_WARPS = '"store_warps":false,'


def kernels(field: str) -> str:
    """Return the ``kernels`` field of an environment."""
    return " ".join(KERNELS.get(part, part) for part in field.split())


def candidate(data: object) -> object:
    """Return a candidate: kernels of the backend ``hopper`` had an option that none has any more.

    Raises ValueError for a kernel that was compiled with it.
    """
    if not isinstance(data, dict) or data.get("backend") != "hopper":
        return data
    config = data.get("config", "")
    if not isinstance(config, str):
        return data  # for Candidate.from_json to refuse
    if _STORE_WARPS in config:
        raise ValueError("a kernel with store warps, which no longer exists")
    return {**data, "config": config.replace(_NO_STORE_WARPS, "")}

"""Compiling a model to a package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from convoy.errors import InvalidOption
from convoy.relay import transform
from convoy.relay.build import build
from convoy.relay.tuning.history import History
from convoy.relay.tvm018.driver.tvmc.model import TVMCModel, TVMCPackage


def compile(
    tvmc_model: TVMCModel,
    target: Any,
    tuning_records: str | None = None,
    package_path: str | None = None,
    cross: Any = "",
    desired_layout: str | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_calculation_type: str | None = None,
    opt_level: int = 3,
    disabled_pass: Sequence[str] | None = None,
    **options: Any,
) -> TVMCPackage:
    """Compile a model.

    Args:
        tvmc_model: The model.
        target: As `relay.build` takes it.
        tuning_records: The file that `tune` returned.
        package_path: Where to write the package; a `.tar`, or a shared object.
        cross: Must be empty.
        desired_layout: "NCHW" or "NHWC": convolutions are converted to it.
        desired_layout_ops: Names of the operators to convert, if not those of convolutions.
        mixed_precision: Whether `ToMixedPrecision` writes casts into the module.
        mixed_precision_calculation_type: Its dtype; default: "float16".
        opt_level, disabled_pass: Of the PassContext.
        **options: Of TVM's command line, without effect.

    Raises:
        InvalidOption: A cross compiler.
        Error: Those of `relay.build`.
    """
    del options
    if cross:
        raise InvalidOption(f"cross={cross!r}", "none", "Build on the machine itself")
    mod = tvmc_model.mod
    if desired_layout:
        wanted = {
            name: [desired_layout, "default"]
            for name in desired_layout_ops or ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")
        }
        mod = transform.ConvertLayout(wanted)(mod)
    if mixed_precision:
        mod = transform.ToMixedPrecision(mixed_precision_calculation_type or "float16")(mod)
    context = tvm.transform.PassContext(
        opt_level=opt_level, disabled_pass=list(disabled_pass or ())
    )
    with context, History(tuning_records):
        built = build(mod, target, params=tvmc_model.params)
    return TVMCPackage(built.export_library(package_path or tvmc_model.default_package_path()))


compile_model = compile

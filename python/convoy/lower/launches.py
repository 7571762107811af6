"""The host's part of generated kernels as a table of launches, in place of machine code.

With static shapes a function of TVM's does nothing on the host but launch kernels with addresses of
its tensors and constants. The runtime does that from a table (``codegen/runtime/launches.cc``): of
code that does the same, LLVM's part in a build takes longer than NVRTC's of the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import tvm
from tvm import tirx
from tvm.ir.instrument import pass_instrument

from ..runtime.library import function

#: A kernel and its arguments: constants, and ``{"tensor": i}`` for the tensor of parameter i.
Launch = dict[str, object]
#: The number of parameters of a function, and its launches in order.
Table = dict[str, object]

_LAUNCH, _ADDRESS = "tirx.call_ffi_kernel", "tirx.buffer_data"

#: Passes behind the split that need the host's functions to have TVM's calling convention.
_STORAGE = (tirx.transform.FP8StorageLegalize, tirx.transform.BF16StorageLegalize)


@pass_instrument
class _WithoutPackedAPI:
    """Keeps functions of the host as they are before they get TVM's calling convention."""

    left_out = ("tirx.MakePackedAPI", *(f"tirx.{make.__name__}" for make in _STORAGE))

    def should_run(self, _: tvm.IRModule, info: tvm.transform.PassInfo) -> bool:
        return info.name not in self.left_out


def split(
    functions: tvm.IRModule, lower: Callable[[tvm.IRModule], tvm.IRModule]
) -> tuple[dict[str, Table], tvm.IRModule]:
    """Lower functions by TVM's passes and split them into launches, by name, and kernels.

    Returns an empty dictionary where the host does something else than to launch kernels.
    """
    context = tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=context.opt_level,
        config=dict(context.config),
        instruments=[*context.instruments, _WithoutPackedAPI()],
    ):
        lowered = lower(functions)
    names = {var.name_hint for var in functions.get_global_vars()}
    tables: dict[str, Table] = {}
    kernels = {}
    for var, func in lowered.functions_items():
        if var.name_hint not in names:
            kernels[var] = func
        elif (table := _table_of(func)) is not None:
            tables[var.name_hint] = table
        else:
            return {}, lowered
    legalize = tvm.transform.Sequential([make() for make in _STORAGE])
    return tables, legalize(tvm.IRModule(kernels, attrs=lowered.attrs))


def _table_of(func: tirx.PrimFunc) -> Table | None:
    """The launches of a function of the host; None where it does something else, such as to
    allocate memory."""
    position = {param: i for i, param in enumerate(func.params)}
    launches: list[Launch] = []
    for statement in func.body.seq if isinstance(func.body, tirx.SeqStmt) else [func.body]:
        if isinstance(statement, tirx.DeclBuffer):  # a view of a parameter
            if (viewed := _parameter(statement.data, position)) is None:
                return None
            position[statement.buffer] = viewed
        elif (launch := _launch(statement, position)) is not None:
            launches.append(launch)
        else:
            return None
    return {"parameters": len(func.params), "launches": launches}


def _parameter(address: tvm.ir.Expr, position: Mapping[tvm.ir.Expr, int]) -> int | None:
    """The parameter of whose tensor an expression is the address."""
    if isinstance(address, tvm.ir.Call) and getattr(address.op, "name", "") == _ADDRESS:
        return position.get(address.args[0])
    return None


def _launch(statement: tirx.Stmt, position: Mapping[tvm.ir.Expr, int]) -> Launch | None:
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    if not isinstance(call, tvm.ir.Call) or getattr(call.op, "name", "") != _LAUNCH:
        return None
    kernel, *given = call.args
    arguments: list[object] = []
    for one in given:
        if isinstance(one, tirx.IntImm | tirx.FloatImm):
            arguments.append(one.value)
        elif (parameter := _parameter(one, position)) is not None:
            arguments.append({"tensor": parameter})
        else:
            return None
    return {"kernel": str(kernel.value), "arguments": arguments}


def module_of(tables: Mapping[str, Table]) -> tvm.runtime.Module:
    """Make a module of functions by name, which is to import the modules with their kernels."""
    return function("launches.create")(json.dumps({"functions": tables}))

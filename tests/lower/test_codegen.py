"""Kernels are compiled as several programs, from sources that are quick to read."""

from __future__ import annotations

import itertools
import re
import threading

import pytest
import tvm
from tvm import te, tirx

from convoy.lower import codegen
from convoy.lower.compile import build_kernels
from convoy.lower.cuda_source import mended
from convoy.progress import Stages
from convoy.tir.rules import schedule_kernels

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})


def doubling(size: int) -> tirx.PrimFunc:
    x = te.placeholder((size,), "float16", name="x")
    return te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] * 2, name="y")])


def kernels(count: int) -> tvm.IRModule:
    functions = {f"double{i}": doubling(64 + i) for i in range(count)}
    named = {k: func.with_attr("global_symbol", k) for k, func in functions.items()}
    return schedule_kernels(TARGET)(tvm.IRModule(named))


@pytest.mark.parametrize(
    ("count", "cores", "programs"),
    [(1, 1, 1), (8, 1, 1), (9, 1, 2), (1, 4, 1), (5, 4, 2), (9, 4, 4), (9, 16, 4)],
)
def test_every_kernel_is_in_one_program(
    count: int, cores: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    steps: list[tuple[str, int, int]] = []
    with Stages(lambda *step: steps.append(step)).stage("compile kernels"):
        library = build_kernels(kernels(count), TARGET)
    for label, jobs in (("lower", count), ("compile", programs)):
        own = [step for step in steps if step[0] == label]
        assert own == [(label, done, jobs) for done in range(jobs + 1)]
    found = [
        re.findall(r"\b(double\d+)_kernel\([^;]*\{", program.inspect_source())
        for program in library.imports
    ]
    assert len(found) == programs
    names = [f"double{i}" for i in range(count)]
    assert sorted(itertools.chain(*found)) == sorted(names)
    assert all(library.implements_function(name) for name in names)


def test_programs_are_compiled_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    both = threading.Barrier(2, timeout=20)

    def compiled(program: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        if target.kind.name == "cuda":
            both.wait()
        return compile_one(program, target)

    compile_one = codegen._compiled
    monkeypatch.setattr(codegen, "_compiled", compiled)
    assert len(build_kernels(kernels(codegen.MOST + 1), TARGET).imports) == 2


def test_what_kernels_call_is_in_each_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})

    def function(launched: bool) -> tirx.PrimFunc:
        func = tirx.PrimFunc([], tirx.Evaluate(0))
        return func.with_attr("tirx.kernel_launch_params", ["blockIdx.x"]) if launched else func

    count = codegen.MOST + 1
    mod = tvm.IRModule({f"f{i}": function(i > 0) for i in range(count + 1)})
    parts = codegen.programs(mod)
    names = [{var.name_hint for var in part.get_global_vars()} for part in parts]
    assert len(parts) == 2 and names[0] & names[1] == {"f0"}
    assert names[0] | names[1] == {f"f{i}" for i in range(count + 1)}


def test_functions_are_lowered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    several = kernels(3)
    several["wide"] = te.create_prim_func([te.placeholder((4,), name=f"x{i}") for i in range(3)])
    names = [
        [var.name_hint for var in part.get_global_vars()] for part in codegen.portions(several)
    ]
    assert names == [["wide"], ["double0"], ["double1"], ["double2"]]
    sources = []
    for portions in (codegen.portions, lambda mod: [mod]):
        monkeypatch.setattr(codegen, "portions", portions)
        imports = build_kernels(kernels(9), TARGET).imports
        sources.append([program.inspect_source() for program in imports])
    assert sources[0] == sources[1]


def test_functions_whose_kernels_may_be_numbered_are_lowered_together() -> None:
    several = kernels(2)
    several["double1_kernel"] = several["double1"].with_attr("global_symbol", "double1_kernel")
    assert codegen.portions(several) == [several]
    library = build_kernels(several, TARGET)
    (source,) = {program.inspect_source() for program in library.imports}
    launched = re.findall(r"\b(double\w+)\([^;]*\{", source)
    assert len(launched) == len(set(launched)) == 3


def test_functions_that_call_others_are_lowered_together() -> None:
    several = kernels(2)
    callee = several.get_global_var("double0")
    call = tirx.Evaluate(tvm.ir.Call(callee, [], ret_ty="int32"))
    several["caller"] = tirx.PrimFunc([], call)
    assert codegen.portions(several) == [several]


def test_headers_that_nothing_uses_are_left_out() -> None:
    (program,) = build_kernels(kernels(1), TARGET).imports
    source = program.inspect_source()
    assert "cuda/std/cstdint" in source and "cuda/std/type_traits" not in source


def test_headers_that_are_used_stay() -> None:
    head = (
        "#include <cuda/std/type_traits>\n  namespace std {\n    using cuda::std::is_same;\n  }\n"
    )
    used = "static_assert(std::is_same<int, int>::value);"
    assert mended(head + "int x;") == "int x;"
    assert mended(head + used) == head + used

"""`relay.vm`: compiling and running modules that a graph executor cannot hold.

Modules with unknown sizes or control flow are compiled by TVM's own Relax pipeline, with TVM's own
kernels; all others are compiled as by `relay.build`. What TVM does not compile with unknown sizes
(sizes that depend on values, a size of 1 that broadcasts, recursion) is compiled when it runs, for
the sizes that occur: module `specialized`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import convoy
from convoy.errors import CorruptArtefact, DynamicShape, InvalidOption, UnsupportedOp
from convoy.graph_executor import timed
from convoy.ir.fields import parse_json
from convoy.relay.adt import ADT, ConstructorValue
from convoy.relay.ast import Constant, Function, Var
from convoy.relay.build import device_target, from_attributes, static_graph
from convoy.relay.builder import numpy_dtype
from convoy.relay.convert import to_relax
from convoy.relay.evaluate.features import needs_evaluator
from convoy.relay.evaluate.interpreter import Interpreter, to_user
from convoy.relay.evaluate.values import MISSING
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule, as_module
from convoy.relay.params import to_array
from convoy.relay.specialized import Specialized
from convoy.relay.tracing import parameter
from convoy.relay.types import TupleType, Type
from convoy.relay.visit import bind
from convoy.threads import one_at_a_time


class Executable:
    """A compiled module, for `VirtualMachine`.

    Attributes:
        compiled: A `convoy.CompiledModule`, or TVM's executable for modules beyond it; None where
            all is compiled when it runs.
        input_names: The inputs of `main`, in order.
        is_graph: Whether `compiled` is a CompiledModule.
        result: The structure of the result: None for a tensor, a list for a tuple.
        input_dtypes: Their dtypes by name, empty where the executable was loaded.
        specialized: Compiles for the sizes that occur; None where `compiled` runs all.
    """

    def __init__(
        self,
        compiled: Any,
        input_names: list[str],
        is_graph: bool,
        result: Any = None,
        specialized: Specialized | None = None,
    ) -> None:
        self.compiled, self.input_names, self.is_graph = compiled, input_names, is_graph
        self.result = result
        self.specialized = specialized
        self.input_dtypes: dict[str, str] = {}

    @property
    def mod(self) -> Executable:
        """The executable itself, as TVM names it."""
        return self

    @property
    def lib(self) -> Any:
        """The compiled module, which can be exported."""
        return self.compiled

    def export_library(self, file_name: str | os.PathLike[str], **options: Any) -> None:
        """Write the library; see `save` for the code that goes with it."""
        self.compiled.export_library(os.fspath(file_name), **options)

    def save(self) -> tuple[bytearray, Any]:
        """Return the code and the library, as TVM has it.

        `lib.export_library` writes the library; the code is a few bytes on how to call it.
        """
        if self.compiled is None:
            raise InvalidOption(
                "a module that is compiled when it runs, for the sizes that occur",
                "one of known sizes",
                "Save its source with relay.save_json",
            )
        about = {"inputs": self.input_names, "graph": self.is_graph, "result": self.result}
        return bytearray(json.dumps(about).encode()), self.compiled

    @staticmethod
    def load_exec(code: bytes | bytearray, lib: Any) -> Executable:
        """Make an executable of what `save` returned.

        Args:
            code: The code.
            lib: The library, or the loaded one: by `relay.load_module`, or, with unknown sizes or
                branches, by `tvm.runtime.load_module`.

        Raises:
            CorruptArtefact: Code that `save` did not write, or a library that does not go with it.
        """
        try:
            about = parse_json(bytes(code), "code", CorruptArtefact)
            names, is_graph = [str(n) for n in about["inputs"]], bool(about["graph"])
            result = _checked(about["result"])
        except (ValueError, TypeError, KeyError):
            raise CorruptArtefact("code that is none", "what Executable.save gave") from None
        loaded = is_graph and not hasattr(lib, "session")
        compiled = getattr(lib, "module", lib) if loaded else lib
        if is_graph and not hasattr(compiled, "session"):
            got = f"a library of type {type(lib).__name__}"
            raise CorruptArtefact(got, "one that relay.load_module loaded")
        return Executable(compiled, names, is_graph, result)


@one_at_a_time
def compile(
    mod: Any,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Executable:
    """Compile a module for VirtualMachine.

    Arguments and errors are those of `relay.build`, but unknown sizes and an `if` are allowed.

    Code that TVM does not compile with unknown sizes is compiled when it runs. Modules with
    algebraic data types, references, recursion or functions as values are evaluated in Python;
    their operators run as compiled kernels.
    """
    mod = as_module(mod)
    kind = device_target(target)
    if needs_evaluator(mod):
        return Interpreted(_bound(mod, params), kind)
    infer_module(mod)
    from_attributes(mod, kind, options)
    try:
        exe = _ahead_of_time(mod, params, kind, options)
    except (DynamicShape, UnsupportedOp):
        specialized = Specialized(mod, params, kind, options)
        exe = Executable(None, specialized.input_names, is_graph=False, specialized=specialized)
    exe.result = _structure(mod["main"].checked_type.ret_type)
    exe.input_dtypes = dict(zip(exe.input_names, _dtypes(mod, params), strict=False))
    return exe


def _ahead_of_time(
    mod: IRModule, params: Mapping[str, Any] | None, kind: str, options: Mapping[str, Any]
) -> Executable:
    """Compile for all sizes; raises DynamicShape or UnsupportedOp where that cannot be done."""
    try:
        mod = static_graph(mod, params)
    except (DynamicShape, UnsupportedOp):
        converted = to_relax(mod, params)
        names = [str(p.name) for p in converted["main"].params]
        compiled = _with_tvm_alone(converted, kind)
        # Sizes that turn out to broadcast are left to the second way.
        specialized = Specialized(mod, params, kind, options)
        return Executable(compiled, names, is_graph=False, specialized=specialized)
    converted = to_relax(mod, params)
    names = [str(p.name) for p in converted["main"].params]
    return Executable(convoy.build(converted, target=kind, **options), names, is_graph=True)


def _dtypes(mod: IRModule, params: Mapping[str, Any] | None) -> list[str]:
    """Return the dtypes of the inputs, in order."""
    found: dict[Var, Type] = {}
    for param in mod["main"].params:
        if param.name_hint not in (params or {}):
            parameter(param.name_hint, param.checked_type, found)
    return [t.dtype for t in found.values()]  # type: ignore[attr-defined]


class Interpreted(Executable):
    """A module for the evaluator, whose kernels are compiled when they are first called.

    Attributes:
        module: The Relay module.
        target: The kind of target.
    """

    def __init__(self, module: IRModule, target: str) -> None:
        names = [p.name_hint for p in module["main"].params]
        super().__init__(None, names, is_graph=False)
        self.module, self.target = module, target

    def save(self) -> tuple[bytearray, Any]:
        """Refuse to save.

        Raises:
            UnsupportedOp: Always.
        """
        raise UnsupportedOp(
            "a program with data types, references, recursion or functions as values, to be saved",
            "one that compiles as a whole",
            "Save the Relay module (relay.save_json) and compile it after loading",
        )

    def interpreter(self, device: Any) -> Interpreter:
        """Return an evaluator on a device."""

        def compile_kernel(function: Function) -> Any:
            executable = compile(IRModule.from_expr(function), target=self.target)
            return VirtualMachine(executable, device).run

        return Interpreter(self.module, device, self.target, compile_kernel)


def _bound(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    """Return a module with values for parameters of `main` as constants."""
    values = {
        p: Constant(to_array(params[p.name_hint], f"params['{p.name_hint}']"))
        for p in mod["main"].params
        if params and p.name_hint in params
    }
    if not values:
        return mod
    mod = mod.shallow_copy()
    mod["main"] = bind(mod["main"], values)
    return mod


def _with_tvm_alone(converted: Any, kind: str) -> Any:
    """Compile a Relax module that a graph cannot hold, by TVM alone."""
    try:
        return tvm.compile(_accumulating_in_float32(converted), tvm.target.Target(kind))
    except Exception as failure:  # TVM raises many classes
        words = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        raise UnsupportedOp(
            f"a module that TVM does not compile for {kind}: {words}",
            remedy="With every size known and without an if, relay.build takes it",
        ) from failure


def _accumulating_in_float32(mod: Any) -> Any:
    """Compute 16-bit convolutions and GEMMs in float32, rounded once at their end.

    `lower.accumulate` does more of this, for functions without control flow.
    """
    from tvm import relax  # the mutator is a class of TVM

    from convoy.graph.expr import call_like, dtype_of, op_name
    from convoy.lower.accumulate import NARROW, PRODUCTS

    @relax.expr_functor.mutator
    class Widen(relax.PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            new = super().visit_call_(call)
            if op_name(call) not in PRODUCTS or dtype_of(call) not in NARROW:
                return new
            wide = self.builder_.emit(call_like(new, list(new.args), out_dtype="float32"))
            return relax.op.astype(wide, dtype_of(call))

    widen = Widen(mod)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            widen.builder_.update_func(name, widen.visit_expr(function))
    return tvm.relax.transform.DeadCodeElimination()(widen.builder_.get())


class VirtualMachine:
    """Run an Executable on a device. Inputs may be numpy arrays or TVM tensors."""

    def __init__(self, exe: Executable, device: Any, memory_cfg: Any = None) -> None:
        if not isinstance(exe, Executable):
            raise InvalidOption(f"a {type(exe).__name__}", "what relay.vm.compile returns")
        del memory_cfg  # memory is planned when compiling
        self._exe = exe
        self._device = device[0] if isinstance(device, (list, tuple)) else device
        self._inputs: dict[str, Any] = {}
        self._result: list[Any] = []
        if isinstance(exe, Interpreted):
            self._interpreter = exe.interpreter(self._device)
        elif exe.is_graph:
            self._session = exe.compiled.session(self._device)
        elif exe.compiled is not None:
            self._machine = tvm.relax.VirtualMachine(exe.compiled, self._device)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set inputs for `invoke_stateful`, by position or by name."""
        self._check(func_name)
        self._inputs = self._named(args, kwargs)

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set one input for `invoke_stateful`: an index or a name and the value, or name=value."""
        self._check(func_name)
        if len(args) + 2 * len(kwargs) != 2:
            raise InvalidOption(f"{len(args) + 2 * len(kwargs)} arguments", "one input")
        key, value = args or next(iter(kwargs.items()))
        names = self._exe.input_names
        if isinstance(key, int) and 0 <= key < len(names):
            key = names[key]
        self._inputs.update(self._named((), {str(key): value}))

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Return the index of an input, -1 for an unknown name."""
        self._check(func_name)
        names = self._exe.input_names
        return names.index(input_name) if input_name in names else -1

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Run with inputs by name; copy the results into tensors.

        Raises:
            InvalidOption: Another number of tensors than of results.
        """
        self.invoke(func_name, **input_args)
        if len(output_args) != len(self._result):
            raise InvalidOption(f"{len(output_args)} tensors", f"{len(self._result)} for results")
        for tensor, result in zip(output_args, self._result, strict=True):
            tensor.copyfrom(result)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Run; return a tensor, or a list where the function returns a tuple, nested alike."""
        if isinstance(self._exe, Interpreted):
            return self._evaluate(func_name, args, kwargs)
        self._check(func_name)
        values = self._named(args, kwargs) if args or kwargs else self._inputs
        missing = [n for n in self._exe.input_names if n not in values]
        if missing:
            raise InvalidOption(f"no value for {', '.join(missing)}", "all inputs")
        self._result = self._run([values[n] for n in self._exe.input_names])
        return _nested(iter(self._result), self._exe.result)

    def _evaluate(self, func_name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a function of a module that is evaluated."""
        machine = self._interpreter
        function = machine.function(func_name)
        names = [p.name_hint for p in function.function.params]
        unknown = [name for name in kwargs if name not in names]
        if unknown:
            raise InvalidOption(f"input '{unknown[0]}'", ", ".join(names))
        rest = iter(args)
        values = [kwargs[n] if n in kwargs else next(rest, MISSING) for n in names]
        missing = [n for n, v in zip(names, values, strict=True) if v is MISSING]
        if missing or next(rest, MISSING) is not MISSING:
            raise InvalidOption(f"{len(args) + len(kwargs)} inputs", str(len(names)))
        types = [p.type_annotation for p in function.function.params]
        converted = [machine.value(v, t) for v, t in zip(values, types, strict=True)]
        result = machine.call(function, converted)
        self._result = _flat(result) if isinstance(result, tuple) else [result]
        return to_user(result)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run `main`."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Run with the inputs of set_input; get_outputs returns the results."""
        self.invoke(func_name, *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """Return the results of the last run."""
        return list(self._result)

    def benchmark(
        self,
        device: Any,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Time runs; return TVM's BenchmarkResult, in seconds.

        Arguments are those of `GraphModule.benchmark`; inputs are copied to the device in every
        run, and with `end_to_end` the results back.
        """
        del min_repeat_ms, limit_zero_time_iterations
        from tvm.runtime.module import BenchmarkResult

        values = self._named(args, kwargs) if args or kwargs else dict(self._inputs)
        self.invoke(func_name, **values)

        def once() -> None:
            self.invoke(func_name, **values)
            if end_to_end:
                for tensor in self._result:
                    tensor.numpy()

        return BenchmarkResult([timed(once, device, number) for _ in range(max(1, repeat))])

    def _check(self, func_name: str) -> None:
        if func_name != "main":
            raise InvalidOption(f"function '{func_name}'", "'main'")

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name; positional ones fill the other inputs in order.

        A tuple counts as its fields.
        """
        names = self._exe.input_names
        args = tuple(leaf for i, arg in enumerate(args) for _, leaf in _leaves(str(i), arg))
        kwargs = dict(leaf for name, value in kwargs.items() for leaf in _leaves(name, value))
        unknown = [n for n in kwargs if n not in names]
        if unknown:
            raise InvalidOption(f"input '{unknown[0]}'", ", ".join(names))
        rest = [n for n in names if n not in kwargs]
        if len(args) > len(rest):
            raise InvalidOption(f"{len(args) + len(kwargs)} inputs", str(len(names)))
        return {**kwargs, **dict(zip(rest, args, strict=False))}

    def _run(self, values: list[Any]) -> list[Any]:
        values = [
            cast_input(value, self._exe.input_dtypes.get(name), name)
            for name, value in zip(self._exe.input_names, values, strict=True)
        ]
        if self._exe.compiled is None:
            return self._run_specialized(values)
        if self._exe.is_graph:
            for position, value in enumerate(values):
                self._session.set_input(position, value)
            self._session.run()
            # The session keeps its outputs' memory for the next run.
            outputs = [self._session.output(i) for i in range(self._session.num_outputs)]
            return [_copy(tensor, self._device) for tensor in outputs]
        tensors = [
            tvm.runtime.tensor(to_array(value, f"input '{name}'"), self._device)
            for name, value in zip(self._exe.input_names, values, strict=True)
        ]
        try:
            return _flat(self._machine["main"](*tensors))
        except (RuntimeError, TypeError, ValueError) as error:
            if self._exe.specialized is not None:
                return self._run_specialized(values)
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidOption(f"inputs that do not fit: {words}") from error

    def _run_specialized(self, values: list[Any]) -> list[Any]:
        assert self._exe.specialized is not None
        arrays = [to_array(v) for v in values]
        return _flat(self._exe.specialized.run(arrays, self._device))


def cast_input(value: Any, dtype: str | None, name: str) -> Any:
    """Cast an array to the dtype of the input that it is for, as TVM does."""
    if dtype is None or str(getattr(value, "dtype", "")) == dtype:
        return value
    array = to_array(value, f"input '{name}'")
    return array.astype(numpy_dtype(dtype), copy=False)


def _copy(tensor: Any, device: Any) -> Any:
    return tvm.runtime.empty(tensor.shape, tensor.dtype, device).copyfrom(tensor)


def _structure(type_: Type) -> Any:
    """Return the structure of a type: None for a tensor, a list for a tuple."""
    return list(map(_structure, type_.fields)) if isinstance(type_, TupleType) else None


def _checked(result: Any) -> Any:
    """Check a structure from a file.

    Raises:
        TypeError: Something else.
    """
    if isinstance(result, list):
        return list(map(_checked, result))
    if result is not None:
        raise TypeError
    return None


def _nested(tensors: Iterator[Any], result: Any) -> Any:
    """Return the tensors in a structure."""
    if result is None:
        return next(tensors)
    return ADT(0, [_nested(tensors, field) for field in result])


def _leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the tensors of a value by their inputs' names: `t_0` and `t_1` of a tuple `t`."""
    if isinstance(value, Constant):
        return [(name, value.value)]
    if not isinstance(value, (tuple, ADT)) and not _is_list_of_tensors(value):
        return [(name, value)]
    return [leaf for i, field in enumerate(value) for leaf in _leaves(f"{name}_{i}", field)]


def _is_list_of_tensors(value: Any) -> bool:
    """Check for a list that stands for a tuple; one of numbers is a tensor."""
    return isinstance(value, list) and any(
        hasattr(part, "shape") or _is_list_of_tensors(part) for part in value
    )


def _flat(result: Any) -> list[Any]:
    """Return the tensors of nested tuples, in order."""
    if not isinstance(result, (list, tuple)) and not hasattr(result, "__len__"):
        return [result]
    if hasattr(result, "numpy") or isinstance(result, ConstructorValue):
        return [result]
    return [tensor for part in result for tensor in _flat(part)]

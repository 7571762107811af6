"""Running a compiled module: inputs that stay in place, the VM, outputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidOption
from ..ir.artifact import Meta, TensorInfo
from .faults import explained, raise_fault
from .timing import time_bursts


class Session:
    """One instance of a compiled module on one device. Not for use by two threads at once; make
    a session for each thread.

    Every input has a buffer on the device for as long as the session lives, and set_input copies
    into it, so weights that are swapped are seen by the next run.

    A module built for CUDA graphs is called as it is the first time; then the whole function is
    captured, all its streams included, and from there on replayed on the caller's current stream.
    A replay writes the same output tensors as the one before. bind_input puts a tensor of the
    caller in a buffer's place; for each set of such tensors a graph is captured.
    """

    #: Graphs kept by a session; the one not used for longest goes first.
    GRAPHS = 8

    @explained
    def __init__(self, module: Any, meta: Meta, device: Any, beside: Session | None = None) -> None:
        """``beside`` is a session of another function of the same module; they share weights and
        must not run at the same time."""
        import tvm
        from tvm.runtime.vm import VirtualMachine

        self.meta, self.device = meta, device
        self._vm: Any = VirtualMachine(module, device) if beside is None else beside._vm
        self._main = self._vm[meta.function]
        self._inputs = [tvm.runtime.empty(t.shape, t.dtype, device) for t in meta.inputs]
        self._index = {t.name: i for i, t in enumerate(meta.inputs)}
        for buffer, info in zip(self._inputs, meta.inputs, strict=True):
            buffer.copyfrom(np.zeros(info.shape, _numpy_dtype(info)))
        self._outputs: list[Any] = []
        self._warm = False
        self._graphs: OrderedDict[tuple[int, ...], tuple[Any, list[Any]]] = OrderedDict()
        self._replay: tuple[Any, list[Any]] | None = None  # of the present inputs

    @property
    def num_outputs(self) -> int:
        return len(self.meta.outputs)

    @property
    def input_info(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(name, shape, dtype) of every input."""
        return [(t.name, t.shape, t.dtype) for t in self.meta.inputs]

    @property
    def function(self) -> Any:
        """The compiled function itself, from input tensors to a tensor or an array of them. It
        takes tensors of PyTorch as well, and then gives such; inputs are not checked."""
        return self._main

    @property
    def outputs(self) -> list[Any]:
        """All output tensors of the last run; another list only where they are other tensors."""
        return self._outputs

    @property
    def output_info(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(name, shape, dtype) of every output."""
        return [(t.name, t.shape, t.dtype) for t in self.meta.outputs]

    def input(self, key: str | int) -> Any:
        """The device buffer of an input."""
        return self._inputs[self._position(key)]

    @explained
    def set_input(self, key: str | int, value: Any) -> None:
        """Copy an array (numpy, any with ``.numpy()`` or ``__dlpack__``) into an input's buffer.

        A dtype whose values the input's holds as they are (float16 for float32, int32 for int64) is
        widened; numbers that are no array take the input's.

        Raises InvalidOption for an unknown name, a wrong shape, a dtype that would be narrowed and
        numbers that the input's does not hold.
        """
        position = self._position(key)
        info = self.meta.inputs[position]
        array = _as_array(value, info)
        if tuple(array.shape) != info.shape:
            raise InvalidOption(
                f"shape {tuple(array.shape)} for input {info.name!r}", f"{info.shape}"
            )
        wanted = _numpy_dtype(info)
        if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "safe"):
            raise InvalidOption(
                f"{array.dtype} for input {info.name!r}", str(wanted), "Cast it before the call."
            )
        self._inputs[position].copyfrom(np.asarray(array, wanted, order="C"))

    def run(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Enqueue one inference; returns before the device has finished.

        Raises OutOfMemory and GpuLost, as do all methods that wait for the device; a fault shows at
        the first of these that comes after it.
        """
        if inputs:
            for name, value in inputs.items():
                self.set_input(name, value)
        # The host's time counts here: a small network's replay takes less than 10 us.
        try:
            if self._replay is not None and self._replay[0]():
                self._outputs = self._replay[1]
            else:
                self._run_otherwise()
        except RuntimeError as error:
            raise_fault(error)
            raise

    def _run_otherwise(self) -> None:
        """A run that does not replay the latest graph: a call, or a capture and a first replay."""
        if not self.meta.cuda_graph or not self._warm or self._in_capture():
            self._outputs = _flatten(self._main(*self._inputs))
            self._warm = True
            return
        launch, self._outputs = self._replay = self._graph()
        launch()

    def bind_input(self, key: str | int, tensor: Any) -> None:
        """Use a device tensor of the caller (TVM's, or any with ``__dlpack__``) as an input from
        now on, without a copy.

        Raises InvalidOption for an unknown name, another shape, dtype or device, and memory that
        kernels could not read.
        """
        import tvm

        position = self._position(key)
        info = self.meta.inputs[position]
        if not isinstance(tensor, tvm.runtime.Tensor):
            try:
                tensor = tvm.runtime.from_dlpack(tensor)
            except (RuntimeError, TypeError, AttributeError, BufferError) as err:
                raise InvalidOption(
                    f"{type(tensor).__name__} for input {info.name!r} ({err})",
                    "a compact tensor at an address that is a multiple of 64",
                ) from None
        got = (tuple(tensor.shape), str(tensor.dtype), str(tensor.device))
        wanted = (info.shape, info.dtype, str(self.device))
        if got != wanted:
            raise InvalidOption(f"{got} for input {info.name!r}", f"{wanted}")
        self._inputs[position] = tensor
        self._replay = None

    def _in_capture(self) -> bool:
        """Whether the caller captures the current stream: then the call itself is what counts."""
        from .library import function

        return bool(function("graph.capturing")(self.device.index))

    def _graph(self) -> tuple[Any, list[Any]]:
        """(launch, outputs) for the present input tensors, captured where they are new."""
        from .library import function

        key = tuple(tensor.data_ptr() for tensor in self._inputs)
        if key not in self._graphs:
            launch, result = function("graph.capture")(self._main, self._inputs, self.device.index)
            while len(self._graphs) >= self.GRAPHS:
                self._graphs.popitem(last=False)
            # The graph holds the input tensors, so their addresses stay theirs.
            self._graphs[key] = (launch, _flatten(result))
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def output(self, index: int | str = 0) -> Any:
        """Output tensor of the last run, by number or name; its ``.numpy()`` waits for the device.
        The next run may write the same tensor."""
        if isinstance(index, str):
            names = [info.name for info in self.meta.outputs]
            if index not in names:
                raise InvalidOption(f"output {index!r}", f"one of {', '.join(names)}")
            index = names.index(index)
        if not self._outputs:
            raise InvalidOption("an output before any run", "run() first")
        if not 0 <= index < len(self._outputs):
            raise InvalidOption(f"output {index}", f"0 to {len(self._outputs) - 1}")
        return self._outputs[index]

    @explained
    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Set all inputs in order, run, and return the outputs as numpy arrays."""
        if len(inputs) != len(self._inputs):
            raise InvalidOption(f"{len(inputs)} inputs", str(len(self._inputs)))
        for position, value in enumerate(inputs):
            self.set_input(position, value)
        self.run()
        return [output.numpy() for output in self._outputs]

    @explained
    def synchronize(self) -> None:
        """Wait for the device."""
        self.device.sync()

    def observe(self, watch: Callable[..., None] | None) -> None:
        """Have ``watch(function, name, before, result, *arguments)`` called before and after every
        call that the virtual machine makes, its own helpers ("vm.builtin...") included; None ends
        that. A replayed CUDA graph makes no calls: what is in it is seen when it is captured."""
        import tvm_ffi

        if watch is not None:
            self._vm.set_instrument(tvm_ffi.convert(watch))
            return
        # The machine takes a function or the name of one that returns it; null is no observer.
        tvm_ffi.register_global_func("convoy.session.nobody", lambda: None, override=True)
        self._vm.set_instrument("convoy.session.nobody")

    def time(self, repeat: int = 30, number: int = 10) -> list[float]:
        """Milliseconds of one run, ``repeat`` times, each the mean of ``number`` runs enqueued
        back to back and followed by one synchronisation. Warms up first."""
        for _ in range(3):
            self.run()
        self.synchronize()
        return [us / 1e3 for us in time_bursts(self.run, self.synchronize, repeat, number)]

    def _position(self, key: str | int) -> int:
        if isinstance(key, int) and 0 <= key < len(self._inputs):
            return key
        if key in self._index:
            return self._index[str(key)]
        raise InvalidOption(f"input {key!r}", f"one of {', '.join(self._index) or 'none'}")


def _numpy_dtype(info: TensorInfo) -> np.dtype[Any]:
    if info.dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(info.dtype)


def host_value(value: Any) -> Any:
    """A tensor of any library as a numpy array; numbers and lists of them stay.

    Raises InvalidOption for a tensor without values in memory, such as a sparse one.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "numpy"):
            value = value.detach() if hasattr(value, "detach") else value
            try:
                return np.asarray(value.numpy())
            except TypeError:  # of a dtype that the library has no numpy type for, such as bfloat16
                import tvm

                return tvm.runtime.from_dlpack(value).numpy()
        if isinstance(value, np.generic) or hasattr(value, "__array__"):
            return np.asarray(value)
    except (RuntimeError, TypeError, BufferError) as err:
        reason = (str(err).splitlines() or [""])[0]
        raise InvalidOption(
            f"a {type(value).__name__} that cannot be read ({reason})", "an array of numbers"
        ) from None
    return value


def _as_array(value: Any, info: TensorInfo) -> np.ndarray:
    """A numpy array of what a user gives for an input; numbers take the input's dtype.

    Raises InvalidOption for numbers that it does not hold, and lists of uneven lengths.
    """
    value = host_value(value)
    if isinstance(value, np.ndarray):
        return value
    try:
        plain = np.asarray(value)
    except ValueError:
        raise InvalidOption(
            f"lists of uneven lengths for input {info.name!r}", f"{info.shape}"
        ) from None
    wanted = _numpy_dtype(info)
    if plain.dtype.kind not in "biuf" or not np.can_cast(plain.dtype, wanted, "same_kind"):
        return plain
    with np.errstate(over="ignore"):
        cast = plain.astype(wanted)
    fits = (cast == plain) if wanted.kind in "biu" else np.isfinite(cast) | ~np.isfinite(plain)
    if not fits.all():
        raise InvalidOption(
            f"{plain[~fits].flat[0]} for input {info.name!r}", f"numbers that {wanted} holds"
        )
    return cast


def _flatten(result: Any) -> list[Any]:
    """Tensors of a nested tuple, in order."""
    if hasattr(result, "shape"):
        return [result]
    if isinstance(result, Sequence) or hasattr(result, "__len__"):
        return [tensor for item in result for tensor in _flatten(item)]
    return [result]

"""Run a compiled module: fixed input buffers, the VM, outputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ..errors import InvalidOption
from ..ir.artifact import Meta
from ..ir.dtypes import numpy_dtype
from .faults import raise_fault, raises_faults
from .timing import time_bursts
from .values import Value, as_array

if TYPE_CHECKING:
    import tvm
    import tvm_ffi

    #: Outputs of a function: a tensor, or nested tuples of them.
    Tensors: TypeAlias = "tvm.runtime.Tensor | Sequence[Tensors]"


class Replay(NamedTuple):
    """A captured graph: functions that launch it, the second one between copies, and its outputs.

    Both enqueue, and return False where they do not since the stream is being captured.
    """

    launch: Callable[[], bool]
    exchange: Callable[..., bool]
    outputs: list[tvm.runtime.Tensor]


class Session:
    """An instance of a compiled module on one device. Not thread-safe: use one session per thread.

    Every input has a fixed buffer on the device. set_input copies into it, so the next run sees
    weights that were replaced.

    With CUDA graphs, the first run calls the function, the second one captures it with all its
    streams, and later runs replay the graph on the caller's current stream, writing the same output
    tensors each time. bind_input replaces a buffer by a tensor of the caller; a graph is captured
    for each set of such tensors.
    """

    #: Number of graphs that a session keeps; the least recently used one is dropped first.
    GRAPHS = 8

    @raises_faults
    def __init__(
        self,
        module: tvm.runtime.Executable | tvm.runtime.Module,
        meta: Meta,
        device: tvm.runtime.Device,
        beside: Session | None = None,
    ) -> None:
        """Create a session; ``beside`` is one of another function of the same module, with which it
        shares weights, so that the two must not run at the same time."""
        import tvm
        from tvm.runtime.vm import VirtualMachine

        self.meta, self.device = meta, device
        self._vm: VirtualMachine = VirtualMachine(module, device) if beside is None else beside._vm
        self._main = self._vm[meta.function]
        self._inputs = [tvm.runtime.empty(t.shape, t.dtype, device) for t in meta.inputs]
        self._index = {t.name: i for i, t in enumerate(meta.inputs)}
        for buffer, info in zip(self._inputs, meta.inputs, strict=True):
            buffer.copyfrom(np.zeros(info.shape, numpy_dtype(info.dtype)))
        self._outputs: list[tvm.runtime.Tensor] = []
        self._warm = False
        self._graphs: OrderedDict[tuple[int, ...], Replay] = OrderedDict()
        self._replay: Replay | None = None  # of the present inputs

    @property
    def num_outputs(self) -> int:
        """Number of output tensors."""
        return len(self.meta.outputs)

    @property
    def input_info(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(name, shape, dtype) of every input."""
        return [(t.name, t.shape, t.dtype) for t in self.meta.inputs]

    @property
    def function(self) -> tvm_ffi.Function:
        """The compiled function, from input tensors to one tensor or an array of them. PyTorch
        tensors give PyTorch tensors. Inputs are not checked."""
        return self._main

    @property
    def outputs(self) -> list[tvm.runtime.Tensor]:
        """Output tensors of the last run; the same list if they are the same tensors."""
        return self._outputs

    @property
    def output_info(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(name, shape, dtype) of every output."""
        return [(t.name, t.shape, t.dtype) for t in self.meta.outputs]

    def input(self, key: str | int) -> tvm.runtime.Tensor:
        """Return the device buffer of an input."""
        return self._inputs[self._position(key)]

    @raises_faults
    def set_input(self, key: str | int, value: Value) -> None:
        """Copy an array (numpy, or with ``.numpy()`` or ``__dlpack__``) into an input's buffer.

        Narrower dtypes are widened (float16 for float32, int32 for int64); Python numbers and
        lists of them are converted to the input's dtype.

        Raises InvalidOption for an unknown name, a wrong shape, a dtype that would be narrowed, and
        numbers that the input's dtype cannot represent.
        """
        position = self._position(key)
        info = self.meta.inputs[position]
        array = as_array(value, info)
        if tuple(array.shape) != info.shape:
            raise InvalidOption(
                f"shape {tuple(array.shape)} for input {info.name!r}", f"{info.shape}"
            )
        wanted = numpy_dtype(info.dtype)
        if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "safe"):
            raise InvalidOption(
                f"{array.dtype} for input {info.name!r}", str(wanted), "Cast it before the call."
            )
        self._inputs[position].copyfrom(np.asarray(array, wanted, order="C"))

    def run(self, inputs: Mapping[str, Value] | None = None) -> None:
        """Enqueue one inference; returns before the device has finished.

        Raises OutOfMemory and GpuLost, as do all methods that wait for the device. A fault is
        reported by the first such call after it.
        """
        if inputs:
            for name, value in inputs.items():
                self.set_input(name, value)
        # Host time matters here: the replay of a small network takes less than 10 us.
        try:
            if self._replay is not None and self._replay.launch():
                self._outputs = self._replay.outputs
            else:
                self._run_otherwise()
        except RuntimeError as error:
            raise_fault(error)
            raise

    def _run_otherwise(self) -> None:
        """Run without replaying the latest graph: call the function, or capture it and replay."""
        from .library import function

        if not self.meta.cuda_graph or not self._warm or self._in_capture():
            self._outputs = _flatten(self._main(*self._inputs))
            self._warm = True
            if self.device.type == "cuda":  # what follows may be another library's
                function("graph.settle")(self.device.index)
            return
        self._replay = self._graph()
        self._outputs = self._replay.outputs
        self._replay.launch()

    def exchange(self, stream: int, *memory: int) -> bool:
        """Replay the graph of the latest run between copies from and to the caller's memory.

        Args:
            stream: The CUDA stream on which all of it is enqueued.
            memory: An address on the device and a number of bytes for each input and then for each
                output. An input's own address is not copied.

        Returns:
            Whether it was enqueued; not where there is no graph yet, or the stream is captured.
        """
        try:
            return self._replay is not None and self._replay.exchange(stream, *memory)
        except RuntimeError as error:
            raise_fault(error)
            raise

    def bind_input(self, key: str | int, tensor: Value) -> None:
        """Use a device tensor of the caller (TVM's, or with ``__dlpack__``) as an input of all
        following runs, without a copy.

        Raises InvalidOption for an unknown name, a wrong shape, dtype or device, and memory that
        kernels cannot read.
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
        """Return whether the caller is capturing the current stream."""
        from .library import function

        return bool(function("graph.capturing")(self.device.index))

    def _graph(self) -> Replay:
        """Return the graph of the current input tensors; capture it if they are new."""
        from .library import function

        key = tuple(tensor.data_ptr() for tensor in self._inputs)
        if key not in self._graphs:
            index = self.device.index
            launch, result, exchange = function("graph.capture")(self._main, self._inputs, index)
            while len(self._graphs) >= self.GRAPHS:
                self._graphs.popitem(last=False)
            # The graph owns the input tensors, so their addresses are not reused.
            self._graphs[key] = Replay(launch, exchange, _flatten(result))
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def output(self, index: int | str = 0) -> tvm.runtime.Tensor:
        """Return an output tensor of the last run, by index or name; its ``.numpy()`` waits for the
        device. The next run may overwrite it."""
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

    @raises_faults
    def __call__(self, *inputs: Value) -> list[np.ndarray]:
        """Set all inputs in order, run, and return the outputs as numpy arrays."""
        if len(inputs) != len(self._inputs):
            raise InvalidOption(f"{len(inputs)} inputs", str(len(self._inputs)))
        for position, value in enumerate(inputs):
            self.set_input(position, value)
        self.run()
        return [output.numpy() for output in self._outputs]

    @raises_faults
    def synchronize(self) -> None:
        """Wait for the device."""
        self.device.sync()

    def observe(self, watch: Callable[..., None] | None) -> None:
        """Call ``watch(function, name, before, result, *arguments)`` before and after every call of
        the virtual machine, including its helpers ("vm.builtin..."); None stops this. A replayed
        CUDA graph makes no calls: they are seen when it is captured."""
        import tvm_ffi

        if watch is not None:
            self._vm.set_instrument(tvm_ffi.convert(watch))
            return
        # The machine takes a function or the name of one that returns it; null is no observer.
        tvm_ffi.register_global_func("convoy.session.nobody", lambda: None, override=True)
        self._vm.set_instrument("convoy.session.nobody")

    def time(self, repeat: int = 30, number: int = 10) -> list[float]:
        """Return ``repeat`` times in milliseconds per run, after a warm-up. Each is the mean of
        ``number`` runs that are enqueued back to back and followed by one synchronization."""
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


def _flatten(result: Tensors) -> list[tvm.runtime.Tensor]:
    """Tensors of a nested tuple, in order."""
    if hasattr(result, "shape") or not hasattr(result, "__len__"):
        return [result]
    return [tensor for item in result for tensor in _flatten(item)]

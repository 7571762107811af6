"""PassContext: the settings under which passes run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convoy.errors import InvalidOption
from convoy.relay.lazy import tvm
from convoy.relay.source import nearest

if TYPE_CHECKING:
    from convoy.relay.transform.base import PassInfo

#: Relay's own keys, with the type of their values. Those in `EFFECTIVE` change what passes do.
RELAY_CONFIGS = {
    "relay.FuseOps.link_params": bool,
    "relay.FuseOps.max_depth": int,
    "relay.ToMixedPrecision.keep_orig_output_dtype": bool,
    "relay.backend.disable_memory_plan": bool,
    "relay.backend.tir_converter": str,
    "relay.backend.use_auto_scheduler": bool,
    "relay.backend.use_meta_schedule": bool,
    "relay.backend.use_meta_schedule_dispatch": int,
    "relay.backend.use_multitarget_pipeline": bool,
    "relay.collage.byoc_fusion_style": Sequence,
    "relay.collage.byoc_max_depth": int,
    "relay.collage.tvm_max_depth": int,
    "relay.fallback_device_type": int,
    "relay.frontend.fill_span": bool,
    "relay.remove_standalone_reshapes.enable": bool,
    "annotate_spans.enable": bool,
}


class _Stack(threading.local):
    """The contexts that are entered, innermost last, in each thread."""

    def __init__(self) -> None:
        self.entered: list[PassContext] = []
        self.default: PassContext | None = None


_stack = _Stack()


class _Traced:
    """An instrument that calls a function before and after each pass."""

    def __init__(self, function: Callable[[Any, Any, bool], None]) -> None:
        self._function = function

    def run_before_pass(self, mod: Any, info: Any) -> None:
        self._function(mod, info, True)

    def run_after_pass(self, mod: Any, info: Any) -> None:
        self._function(mod, info, False)


class PassContext:
    """Settings for all passes that run inside `with PassContext(...)`.

    Args:
        opt_level: Passes of a higher level are left out of a Sequential.
        required_pass: Names of passes that run at any level.
        disabled_pass: Names of passes that a Sequential leaves out.
        instruments: Objects called before and after each pass.
        config: Values by key; Relay's own keys and those that TVM knows today.
        trace: A function `(mod, info, is_before)` that is called around each pass, as before
            TVM 0.8 had instruments.

    Raises:
        InvalidOption: An unknown key, or a value of another type.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        trace: Any = None,
        trace_stack: Any = None,
        make_traceable: Any = None,
        num_evals: int = 0,
        tuning_api: Any = None,
    ) -> None:
        del trace_stack, make_traceable, num_evals, tuning_api  # of an unfinished tuner
        self.opt_level = int(opt_level)
        self.required_pass = _names("required_pass", required_pass)
        self.disabled_pass = _names("disabled_pass", disabled_pass)
        self.instruments = list(instruments or ())
        if callable(trace):
            self.instruments.append(_Traced(trace))
        self.config = dict(config or {})
        others = {}
        for key, value in self.config.items():
            if key in RELAY_CONFIGS:
                _check(key, value)
            elif key.startswith("relay.ext."):
                continue  # of an external compiler
            elif key.startswith("relay."):
                raise InvalidOption(f"config '{key}'", "a key that Relay has", _near(key))
            else:
                others[key] = value
        self._entered: list[Any] = []
        # TVM's passes, which compile the network after Relay's, see its own keys.
        names = {"required_pass": self.required_pass, "disabled_pass": self.disabled_pass}
        self._tvm = lambda: tvm.transform.PassContext(
            opt_level=self.opt_level, config=_of_tvm(others), **names
        )
        if others:
            self._tvm()

    def __enter__(self) -> PassContext:
        self._enter_instruments()
        context = self._tvm()
        context.__enter__()
        self._entered.append(context)
        _stack.entered.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _stack.entered.pop()
        self._entered.pop().__exit__(*exc)
        self._exit_instruments()

    def _enter_instruments(self) -> None:
        """Enter the instruments; where one fails, leave those before it and drop all."""
        entered: list[Any] = []
        try:
            for instrument in self.instruments:
                _call(instrument, "enter_pass_ctx")
                entered.append(instrument)
        except Exception:
            for instrument in entered:
                _call(instrument, "exit_pass_ctx")
            self.instruments = []
            raise

    def _exit_instruments(self) -> None:
        try:
            for instrument in self.instruments:
                _call(instrument, "exit_pass_ctx")
        except Exception:
            self.instruments = []
            raise

    def override_instruments(self, instruments: Sequence[Any] | None) -> None:
        """Leave the instruments, and enter others in their place."""
        self._exit_instruments()
        self.instruments = list(instruments or ())
        self._enter_instruments()

    @staticmethod
    def current() -> PassContext:
        """Return the innermost context, or one with the defaults."""
        if _stack.entered:
            return _stack.entered[-1]
        outer = tvm.transform.PassContext.current()
        if _stack.default is None:
            _stack.default = PassContext()
        if outer.opt_level == 2 and not (outer.required_pass or outer.disabled_pass):
            return _stack.default
        # A context that was entered through the installed TVM.
        found = PassContext(
            int(outer.opt_level),
            [str(name) for name in outer.required_pass],
            [str(name) for name in outer.disabled_pass],
        )
        found.config = dict(outer.config.items())
        return found

    @staticmethod
    def list_configs() -> dict[str, Any]:
        """Return the keys of `config`, each with the type of its value."""
        kinds = {bool: "IntImm", int: "IntImm", str: "runtime.String", Sequence: "Array"}
        found = {key: {"type": kinds[kind]} for key, kind in RELAY_CONFIGS.items()}
        return {**found, **dict(tvm.transform.PassContext.list_configs())}

    def pass_enabled(self, info: PassInfo) -> bool:
        """Check whether a Sequential runs a pass."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level


def build_config(
    opt_level: int = 2,
    required_pass: Sequence[str] | None = None,
    disabled_pass: Sequence[str] | None = None,
    trace: Any = None,
    *,
    fallback_device: Any = None,
    add_pass: Collection[str] | None = None,
) -> PassContext:
    """Make a PassContext, under the name it had before TVM 0.7; a module runs on one device.

    `add_pass` is the name that `required_pass` had before TVM 0.6.
    """
    del fallback_device
    return PassContext(opt_level, required_pass or list(add_pass or ()), disabled_pass, trace=trace)


def run_instrumented(info: PassInfo, run: Any, mod: Any) -> Any:
    """Run a pass between the calls of the current context's instruments."""
    context = _stack.entered[-1] if _stack.entered else _stack.default
    if context is None or not context.instruments:
        return run(mod)
    for instrument in context.instruments:
        if _call(instrument, "should_run", mod, info) is False:
            return mod
    for instrument in context.instruments:
        _call(instrument, "run_before_pass", mod, info)
    result = run(mod)
    for instrument in context.instruments:
        _call(instrument, "run_after_pass", result, info)
    return result


def _call(instrument: Any, method: str, *args: Any) -> Any:
    found = getattr(instrument, method, None)
    return found(*args) if callable(found) else None


def _names(what: str, names: Any) -> list[str]:
    if names is None:
        return []
    if isinstance(names, str) or not isinstance(names, Sequence | set | frozenset):
        raise TypeError(f"{what} is expected to be the type of list/tuple/set.")
    return [str(name) for name in names]


def _check(key: str, value: Any) -> None:
    kind = RELAY_CONFIGS[key]
    good = isinstance(value, (bool, int)) if kind in (bool, int) else isinstance(value, kind)
    if not good and not hasattr(value, "value"):  # an IntImm
        raise InvalidOption(f"config '{key}'={value!r}", f"a value of type {kind.__name__}")


def _near(key: str) -> str:
    return nearest(key, RELAY_CONFIGS)


def _of_tvm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return TVM's keys as it spells them today: `tir.X` is `tirx.X` or `s_tir.X`."""
    if not config:
        return {}
    known = tvm.transform.PassContext.list_configs()
    found = {}
    for key, value in config.items():
        tail = key.removeprefix("tir.")
        names = [key, f"tirx.{tail}", f"s_tir.{tail}"] if key.startswith("tir.") else [key]
        found[next((name for name in names if name in known), key)] = value
    return found

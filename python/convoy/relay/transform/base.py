"""Passes: named functions from modules to modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from convoy.errors import InvalidOption, RelayTypeError
from convoy.relay.ast import Function
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.context import PassContext, run_instrumented


@dataclass(frozen=True)
class PassInfo:
    """Description of a pass.

    Attributes:
        opt_level: The lowest level of a PassContext at which a Sequential runs it.
        name: Its name.
        required: The names of passes that run before it.
        traceable: As in TVM, without a meaning here.
    """

    opt_level: int
    name: str
    required: Sequence[str] = ()
    traceable: bool = False


class Pass:
    """A named function from modules to modules.

    Args:
        info: Its name and level; a name alone has level 0.
        run: Returns the new module.
    """

    def __init__(self, info: PassInfo | str, run: Callable[[IRModule], IRModule]) -> None:
        self.info = PassInfo(0, info) if isinstance(info, str) else info
        self._run = run

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.info.name

    def __call__(self, mod: IRModule) -> IRModule:
        return run_instrumented(self.info, self._run, mod)

    def __repr__(self) -> str:
        return f"Run {type(self).__name__}: {self.info.name} at the optimization level " + str(
            self.info.opt_level
        )


class ModulePass(Pass):
    """A pass over a whole module."""


class FunctionPass(Pass):
    """A pass over each function of a module."""


#: Makes a pass by name: those that `required` of another one may name.
REGISTERED: dict[str, Callable[[], Pass]] = {}


def register_pass(make: Callable[..., Pass]) -> Callable[..., Pass]:
    """Make a pass available to `required`, by the name of the function that makes it."""
    REGISTERED[make.__name__] = make
    return make


class Sequential(Pass):
    """Run passes one after the other, those that the current PassContext allows.

    Args:
        passes: Passes of this module or of users, or other functions of modules.
        opt_level, name, required, traceable: As in PassInfo.
    """

    def __init__(
        self,
        passes: Sequence[Callable[[IRModule], IRModule]] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None:
        self.passes = list(passes or ())
        for step in self.passes:
            if not callable(step):
                raise TypeError("passes must be a list of pass objects.")
        super().__init__(PassInfo(opt_level, name, required or (), traceable), self._all)

    def _all(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        for step in self.passes:
            info = getattr(step, "info", None)
            if isinstance(info, PassInfo):
                if not context.pass_enabled(info):
                    continue
                for name in info.required:
                    mod = _by_name(name)(mod)
            mod = step(mod)
        return mod


def _by_name(name: str) -> Pass:
    if name not in REGISTERED:
        raise InvalidOption(f"a required pass '{name}'", ", ".join(sorted(REGISTERED)))
    return REGISTERED[name]()


def module_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a pass of a function `(mod, ctx) -> mod`, or of a class with `transform_module`.

    A decorator, with or without arguments.

    Args:
        pass_func: The function or class.
        opt_level: See PassInfo; must be given.
        name: Its name; None is that of the function or class.
        required: See PassInfo.
        traceable: See PassInfo.
    """
    make = _decorator(ModulePass, "transform_module", _over_module)
    return make(pass_func, opt_level, name, required, traceable)


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Make a pass of `(func, mod, ctx) -> func`, or of a class with `transform_function`.

    Types are inferred after it. Arguments are those of `module_pass`.
    """
    make = _decorator(FunctionPass, "transform_function", over_functions)
    return make(pass_func, opt_level, name, required, traceable)


def _over_module(transform: Callable[..., IRModule]) -> Callable[[IRModule], IRModule]:
    def run(mod: IRModule) -> IRModule:
        result = transform(mod, PassContext.current())
        if not isinstance(result, IRModule):
            raise RelayTypeError(f"a {type(result).__name__} from a module pass", "an IRModule")
        return result

    return run


def over_functions(transform: Callable[..., Function]) -> Callable[[IRModule], IRModule]:
    """Apply a function `(func, mod, ctx) -> func` to each function, then infer types.

    Functions of external compilers and those marked `SkipOptimization` stay as they are.
    """

    def run(mod: IRModule) -> IRModule:
        context = PassContext.current()
        result = mod.shallow_copy()
        for var, function in mod.items():
            attrs = function.attrs or {}
            if "Compiler" in attrs or attrs.get("SkipOptimization"):
                continue
            result[var] = transform(function, result, context)
        return run_instrumented(PassInfo(0, "InferType"), infer_module, result)

    return run


def _decorator(kind: type[Pass], method: str, over: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(
        pass_func: Any, opt_level: int | None, name: str | None, required: Any, traceable: bool
    ) -> Any:
        if opt_level is None:
            raise ValueError("Please provide opt_level for the pass.")
        if required is not None and not isinstance(required, (list, tuple)):
            raise TypeError("Required is expected to be the type of list/tuple.")

        def create(func: Any) -> Any:
            info = PassInfo(opt_level, name or func.__name__, tuple(required or ()), traceable)
            if inspect.isclass(func):
                return _of_class(kind, func, method, over, info)
            if not callable(func):
                raise TypeError("pass_func must be a callable for a pass")
            return kind(info, over(func))

        return create if pass_func is None else create(pass_func)

    return decorate


def _of_class(kind: type[Pass], cls: type, method: str, over: Any, info: PassInfo) -> type:
    """Make a class of passes of a user's class with a method that transforms."""

    class PyPass(kind):  # type: ignore[valid-type, misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._inst = cls(*args, **kwargs)
            super().__init__(info, over(getattr(self._inst, method)))

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self._inst, name)

    PyPass.__name__, PyPass.__doc__, PyPass.__module__ = cls.__name__, cls.__doc__, cls.__module__
    return PyPass

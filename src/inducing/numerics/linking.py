"""Compiler pipelines for Numba that halve the time to compile, for which first calls wait.

Numba optimises every function by itself, and again as a part of each that calls it. Here a helper is only
translated; a function that Python calls gets private copies of its helpers and is optimised once, so that the
same code runs in a process that compiled it and in one that found it in the cache. Numba resolves an operator
anew wherever it stands, and compares all options of two functions for that: here both are remembered. And it
passes a tuple as all numbers of all its arrays: a `Handed` one is passed by its address.
"""

from __future__ import annotations

import gc
import operator
import sys
import threading
import time
from functools import cache
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import base, cgutils, codegen, errors, event, postproc, types
from numba.core.compiler import Compiler, Flags
from numba.core.datamodel.models import PrimitiveModel
from numba.core.environment import lookup_environment
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.lowering import Lower
from numba.core.types.functions import BaseFunction
from numba.core.typing.typeof import typeof_impl
from numba.extending import NativeValue, register_model, unbox

from . import ahead
from .compiling import name_of

OPERATORS = {function for function in vars(operator).values() if callable(function)}
ARGUMENTS = types.Number, types.Boolean, types.Array, types.SliceType, types.BaseAnonymousTuple
HAS_LOC, LOCK = "_has_loc", "_lock"  # a private function of Numba and a private object of llvmlite
PALETTE = SimpleNamespace(**dict.fromkeys("code errmsg filename indicate highlight reset".split(), str))
LONG_HELPER = 600  # instructions, as Numba writes them, from which a helper is not copied into its callers
_resolve, _resolved = BaseFunction.get_call_type, dict[Any, Any]()
_analyse, _delete = postproc.PostProcessor.run, Lower.delvar


class _Part(codegen.JITCodeLibrary):
    """The code of a helper, for its callers alone: neither optimised nor made to run by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # there is none

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Leave a helper's environment to its callers."""


class _Whole(codegen.JITCodeLibrary):
    """The code of a function with its own copies of its helpers. Long ones are not inlined: it would take
    LLVM twice the time, and the time of a call is nothing beside that of a long helper.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = "internal"
                if sum(1 for block in function.blocks for _ in block.instructions) >= LONG_HELPER:
                    function.add_function_attribute("noinline")
        super()._optimize_final_module()

    def _finalize_specific(self) -> None:
        super()._finalize_specific()
        for name in [variable.name for variable in self._final_module.global_variables]:
            if (environment := lookup_environment(name)) is not None:
                self.codegen.set_env(name, environment)


class _Options(Flags):
    """The options of a function, compared by those that are set."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1  # Numba's own hashes the options' names, which are the same for all

    def __eq__(self, other: object) -> bool:
        return self.chosen() == other.chosen() if isinstance(other, _Options) else super().__eq__(other)

    def chosen(self) -> dict[str, Any]:
        return self._values


def _remembered(function: Any, context: Any, args: Any, named: Any) -> Any:
    """Return the type of a call; that of an operator on plain arguments is resolved only once."""
    plain = not named and function.typing_key in OPERATORS
    if not plain or not all(isinstance(kind, ARGUMENTS) for kind in args):
        return _resolve(function, context, args, named)
    if _resolved.get((function, args)) is None:
        _resolved[function, args] = _resolve(function, context, args, named)
    return _resolved[function, args]


def _plain(kind: Any) -> Any:
    """Return a type that is neither literal nor read-only."""
    kind = types.unliteral(kind)
    return kind.copy(readonly=False) if isinstance(kind, types.Array) and not kind.mutable else kind


def shared(helper: Any) -> Any:
    """Return the helper, to be compiled once for arguments that differ only in being literal or read-only."""
    own = helper.get_call_template
    helper.get_call_template = lambda args, named: own([_plain(kind) for kind in args], named)
    return helper


def _without_unrolling(machine: Any, opt: int, loop_vectorize: bool, slp_vectorize: bool) -> Any:
    """Return LLVM's passes without unrolling loops, which took a quarter of its time and gains nothing."""
    tuning = llvm.create_pipeline_tuning_options(opt)
    tuning.loop_vectorization, tuning.slp_vectorization = loop_vectorize, slp_vectorize
    tuning.loop_unrolling = False
    return llvm.create_pass_builder(machine, tuning)


def _without_lifetimes(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Analyse a function after a pass; only after the last one is it asked how long variables live."""
    if emit_dels:
        _analyse(processor, emit_dels, extend_lifetimes)
        return
    code = processor.func_ir
    code.blocks = postproc.transforms.canonicalize_cfg(code.blocks)
    code.variable_lifetime, code.generator_info = postproc.VariableLifetime(code.blocks), None


def _delete_counted(lowering: Any, name: str) -> None:
    """Let go of a variable, which where no references are counted is nothing to do."""
    if lowering.context.enable_nrt:
        _delete(lowering, name)


# changes to Numba while this package's own functions are compiled: it need not resolve an operator again and
# again, look at signatures, colour messages that nobody will see, report every call of LLVM, check what it
# wrote, find lifetimes after each pass, or clear variables that count nothing
QUICK: list[tuple[Any, str, Any]] = [
    (codegen, "create_pass_builder", _without_unrolling),
    (BaseFunction, "get_call_type", _remembered),
    (base, HAS_LOC, cache(getattr(base, HAS_LOC))),
    (errors, "_termcolor_inst", PALETTE),
    (getattr(llvm.ffi.lib, LOCK), "_cblist", []),
    (llvm.ModuleRef, "verify", lambda module: None),
    (postproc.PostProcessor, "run", _without_lifetimes),
    (Lower, "delvar", _delete_counted),
]
QUICK = [change for change in QUICK if hasattr(*change[:2])]  # not all versions have all of them


class Handed(types.NamedTuple):
    """The type of a named tuple that is passed by its address; caches on disk know it by this name."""


@register_model(Handed)
class _HandedModel(PrimitiveModel):
    """The address of a structure that is written once, before the first function that gets it."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, cgutils.voidptr_t)

    def from_argument(self, builder: Any, value: Any) -> Any:
        value.add_attribute("noalias")
        return value


@cache
def _offsets(kind: Any) -> list[int]:
    """Return the places of the parts, and the end of the last one, in bytes: numbers take eight."""
    words = [5 + 2 * part.ndim if isinstance(part, types.Array) else 1 for part in kind.types]
    return [8 * place for place in accumulate(words, initial=0)]


def _place(context: Any, builder: Any, kind: Any, address: Any, i: int) -> Any:
    place = cgutils.gep_inbounds(builder, address, _offsets(kind)[i])
    return builder.bitcast(place, context.get_value_type(kind[i]).as_pointer())


@lower_getattr_generic(Handed)
def _part(context: Any, builder: Any, kind: Any, address: Any, name: str) -> Any:
    i = kind.fields.index(name)
    value = builder.load(_place(context, builder, kind, address, i))
    return impl_ret_borrowed(context, builder, kind[i], value)


@unbox(Handed)
def _structure(kind: Any, given: Any, c: Any) -> Any:
    """Write a Python tuple, which has as many parts as its class says, into a structure."""
    room = cgutils.alloca_once(c.builder, ir.IntType(64), _offsets(kind)[-1] // 8)
    address, wrong, cleanups = c.builder.bitcast(room, cgutils.voidptr_t), cgutils.false_bit, []
    for i, part in enumerate(kind.types):
        native = c.unbox(part, c.pyapi.tuple_getitem(given, i))
        c.builder.store(native.value, _place(c.context, c.builder, kind, address, i))
        wrong = c.builder.or_(wrong, native.is_error)
        cleanups += [native.cleanup] if native.cleanup is not None else []
    return NativeValue(address, is_error=wrong, cleanup=lambda: [free() for free in reversed(cleanups)])


def hold(named: type) -> None:
    """Pass tuples of this class to compiled functions by address, of one type whether read-only or not."""

    def kind_of(value: Any, c: Any) -> Handed:
        return Handed([_plain(typeof_impl(part, c)) for part in value], named)

    typeof_impl.register(named)(kind_of)


class WholeCompiler(Compiler):
    """Numba's compiler for functions that Python calls, or that are called by address."""

    library: type = _Whole

    def __init__(
        self, typing: Any, target: Any, given: Any, args: Any, result: Any, options: Any, *rest: Any
    ) -> None:
        super().__init__(typing, target, given, args, result, _Options(options), *rest)
        if given is None:
            self.state.library = self.library(target.codegen(), "inducing")
            self.state.library.enable_object_caching()

    def _compile_core(self) -> Any:
        before, collects = [getattr(place, name) for place, name, _ in QUICK], gc.isenabled()
        gc.disable()  # it would search all that Numba builds up a hundred times, and find little
        try:
            for place, name, value in QUICK:  # by one thread
                setattr(place, name, value)
            return super()._compile_core()
        finally:
            for (place, name, _), value in zip(QUICK, before, strict=True):
                setattr(place, name, value)
            if collects:
                if not gc.get_freeze_count():  # what Numba built joins the old objects, rarely searched
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


class PartCompiler(WholeCompiler):
    """Numba's compiler for helpers."""

    library = _Part


class Notice(event.Listener):
    """A listener that says once on stderr that functions of this package are compiled, if that takes long."""

    def __init__(self, text: str, patience: float) -> None:
        self.text, self.patience = text, patience
        self.open, self.began, self.spent = 0, 0.0, 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if self._is_ours(event) and dispatcher.stats.cache_path:  # it has a cache, but was not in it
            ahead.missed(name_of(dispatcher.py_func))
        if self.open == 0 and self._is_ours(event) and self.spent < self.patience:
            self.began = time.monotonic()
            self.timer = threading.Timer(self.patience - self.spent, self.say)
            self.timer.daemon = True
            self.timer.start()
        self.open += 1

    def on_end(self, event: Any) -> None:
        self.open -= 1
        if self.open == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer, self.spent = None, self.spent + time.monotonic() - self.began

    def say(self) -> None:
        self.spent = self.patience
        print(self.text, file=sys.stderr, flush=True)

    @staticmethod
    def _is_ours(event: Any) -> bool:
        return event.data["dispatcher"].py_func.__module__.startswith("inducing.")

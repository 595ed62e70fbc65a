"""Compiler pipelines for Numba: the code of helpers joins that of the functions that call them.

Numba optimises every function by itself, and again as a part of each that calls it, which takes most of the
time of compiling functions of many parts. Here a helper is only translated; a function that Python calls gets
private copies of its helpers and is optimised once, so that the same code runs in a process that compiled it
and in one that found it in the cache.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from llvmlite.binding import Linkage
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment


class _Part(JITCodeLibrary):
    """The code of a helper, for its callers alone: neither optimised nor made to run by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # for none

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Leave a helper's environment to its callers."""


class _Whole(JITCodeLibrary):
    """The code of a function, with copies of its helpers that are its own."""

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = "internal"
        super()._optimize_final_module()

    def _finalize_specific(self) -> None:
        super()._finalize_specific()
        for name in [variable.name for variable in self._final_module.global_variables]:
            if (environment := lookup_environment(name)) is not None:
                self.codegen.set_env(name, environment)


class WholeCompiler(Compiler):
    """Numba's compiler for functions that Python calls, or that are called by address."""

    library: type = _Whole

    def __init__(self, typing: Any, target: Any, given: Any, *rest: Any) -> None:
        super().__init__(typing, target, given, *rest)
        if given is None:
            self.state.library = self.library(target.codegen(), "inducing")
            self.state.library.enable_object_caching()


class PartCompiler(WholeCompiler):
    """Numba's compiler for helpers."""

    library = _Part


class Notice(event.Listener):
    """Says once on stderr that functions of this package are being compiled, when that takes long."""

    def __init__(self, text: str, patience: float) -> None:
        self.text, self.patience = text, patience
        self.open, self.began, self.spent = 0, 0.0, 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
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

"""What a process that only compiles leaves out. Numba has no ways in: what is replaced here is inside of it."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

from llvmlite import binding
from llvmlite.binding import ffi
from numba.core import codegen, ir
from numba.core.targetconfig import TargetConfig

_CALLED = "_ZN7cpython"  # how names of functions that Python calls begin
_ENVIRONMENT = "_ZN08NumbaEnv"  # and those of the places for what Numba has a function keep of Python
_library: Any = codegen.CPUCodeLibrary
_optimize, _finalize = _library._optimize_final_module, _library._finalize_final_module  # noqa: SLF001


def compile_faster() -> None:
    """Have this process compile the kernels faster; nothing but compiling should be its work."""
    # Numba makes millions of objects that live on: the collector would look through them again and again.
    gc.disable()
    # It looks its options up by all of their values, each time; there are few, so one hash for all will do.
    options: Any = TargetConfig
    options.__eq__ = same_options
    options.__hash__ = lambda _: 0
    # It notes the time of each call of LLVM once for each kernel whose compiling waits for the one at hand.
    with suppress(AttributeError):
        locks: Any = ffi.lib
        locks._lock._cblist.clear()  # noqa: SLF001 - what stands there is known inside a function alone
    statements: Any = ir.Inst
    statements._rec_list_vars = variables  # noqa: SLF001
    # Four of five functions are called by compiled ones alone, and become part of them. Numba optimizes each on its
    # own, and makes machine code of it, before it does the same with each of its callers.
    if hasattr(codegen.CPUCodegen, "_pass_builder"):  # older versions of Numba have other passes
        _library._optimize_final_module = _optimize_called  # noqa: SLF001
        _library._finalize_final_module = _finalize_called  # noqa: SLF001


def _is_inner(library: Any) -> bool:
    """Whether compiled functions alone call what a library defines."""
    names = [function.name for function in library._final_module.functions if not function.is_declaration]  # noqa: SLF001
    return any(name.startswith("_ZN") for name in names) and not any(name.startswith(_CALLED) for name in names)


def _optimize_called(library: Any) -> None:
    """Optimize a library; one that goes into others by the first, cheap half of it, which makes it small."""
    if not _is_inner(library):
        _optimize(library)
        return
    cheap = {"loop_vectorize": False, "slp_vectorize": False, "opt": 0, "cost": "cheap"}
    passes, builder = library._codegen._module_pass_manager(**cheap)  # noqa: SLF001
    passes.run(library._final_module, builder)  # noqa: SLF001


def _finalize_called(library: Any) -> None:
    """Make machine code of a library; of one that goes into others, only the place that Numba writes to."""
    if _is_inner(library):
        whole = library._final_module  # noqa: SLF001
        library._finalize_dynamic_globals()  # noqa: SLF001
        library._finalized = True  # noqa: SLF001 - or what is to be linked asks for this again
        library._shared_module = library._get_module_for_linking()  # noqa: SLF001
        text = str(library._codegen._create_empty_module(library.name))  # noqa: SLF001
        for place in whole.global_variables:
            if place.name.startswith(_ENVIRONMENT) and not place.is_declaration:
                text += f'@"{place.name}" = common global {{}}* null\n'
        library._final_module = binding.parse_assembly(text)  # noqa: SLF001
        library._final_module.name = whole.name  # noqa: SLF001
    _finalize(library)


def same_options(one: Any, other: Any) -> bool:
    """Whether two sets of Numba's options are the same, defaults included, which Numba copies out to see."""
    given, others, known = one._values, other._values, one.options  # noqa: SLF001
    return given == others or (
        type(one) is type(other)
        and all(
            given.get(name, known[name].default) == others.get(name, known[name].default)
            for name in given.keys() | others.keys()
        )
    )


def variables(_: object, part: object) -> list[ir.Var]:
    """The variables in a part of a statement, in the order of Numba's own function, without a list at each level."""
    found: list[ir.Var] = []
    _find_variables(part, found)
    return found


def _find_variables(part: Any, found: list[ir.Var]) -> None:
    kind = type(part)
    if kind is ir.Var:
        found.append(part)
    elif kind is list or kind is tuple:
        for one in part:
            _find_variables(one, found)
    elif kind is dict:
        for one in part.values():
            _find_variables(one, found)
    elif isinstance(part, ir.Inst):
        statement: Any = part
        found.extend(statement.list_vars())
    elif isinstance(part, (list, tuple, dict)):
        _find_variables(list(part.values() if isinstance(part, dict) else part), found)

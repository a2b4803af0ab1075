"""What the code of a module may call, read from its functions: whether it attends, and by which names."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

__all__ = ["INTERFACE", "SDPA", "Code", "code_of"]

INTERFACE, SDPA = "get_interface", "scaled_dot_product_attention"
SOFTMAX = "softmax"
KERNELS = re.compile(
    r"softmax|logsumexp|entmax|sparsemax|get_interface|scaled_dot_product|multi_head_attention_forward"
    r"|fla?sh_?att|flex_att|efficient_att|paged_att|ring_att|attn_(?:func|varlen|kernel)",
    re.IGNORECASE,
)
"""What must be called, in one way or another, where shares of attention are made."""
PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum", "__matmul__"})
"""Functions and methods that multiply matrices, beside the sign `@`."""
LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME")
MAKER = "__init__"
BASES = ("builtins", "transformers.modeling_utils")
"""Homes of classes whose code is the same for all models."""
DEPTH = 3
"""Functions that are called by functions are read so deep."""


@dataclass
class Code:
    """What was found.

    Args:
        names: of what is called in the class, in functions of its module, and in functions that the module holds.
        far: of what functions of other modules call that it calls.
        running: of both, what is called when it runs, and not only when it is made.
        products: how many times matrices are multiplied, as it is written.
        weighs_first: whether a function takes a softmax before any of several products, as routers of experts do.
        bound: names that modules have for what is called, by module and name.
        opaque: whether it may call what cannot be read.
    """

    names: set[str] = field(default_factory=set)
    far: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    products: int = 0
    weighs_first: bool = False
    bound: set[tuple[str, str]] = field(default_factory=set)
    opaque: bool = False

    @property
    def may_attend(self) -> bool:
        """Whether shares of attention may be made; not where there is no softmax at all, as in recurrences."""
        return self.opaque or any(KERNELS.search(name) for name in (*self.names, *self.far))

    @property
    def multiplies_shares(self) -> bool:
        """Whether a softmax is taken, and matrices multiplied twice: queries with keys, and shares with values."""
        return SOFTMAX in self.names and self.products > 1 and not self.weighs_first


def code_of(module: nn.Module, known: dict[type, Code] | None = None) -> Code:
    """Return what the code of a module calls: of its class and its ancestors down to torch's, and of what it holds.

    Args:
        module: the module.
        known: what was found of classes before; this one's is added.

    Example:
        >>> class Head(nn.Module):
        ...     def forward(self, q, k, v):
        ...         return (q @ k.mT).softmax(-1) @ v
        >>> code = code_of(Head())
        >>> code.multiplies_shares, code.may_attend, code_of(nn.Linear(2, 2)).may_attend
        (True, True, False)
    """
    kind, known = type(module), {} if known is None else known
    if kind not in known:
        reader = _Reader(kind.__module__)
        for each in kind.__mro__:
            if not _is_base(each.__module__):
                reader.read_class(each)
        known[kind] = reader.code
    held = [each for name, each in vars(module).items() if not name.startswith("_") and callable(each)]
    softmax = any(isinstance(child, nn.Softmax) for child in module.children())
    if not held and not softmax:
        return known[kind]
    reader = _Reader(kind.__module__, known[kind])
    reader.code.names.update([SOFTMAX] if softmax else ())
    for each in held:
        reader.read_held(each)
    return reader.code


class _Reader:
    """Follows code from function to function.

    Args:
        home: name of the module whose functions count as the class's own.
        known: what was found before; it is copied.
    """

    def __init__(self, home: str, known: Code | None = None) -> None:
        before = known or Code()
        self.code = replace(before, names={*before.names}, far={*before.far}, bound={*before.bound})
        self.code.running = {*before.running}
        self._making = False
        self._home = home
        self._read: set[CodeType] = set()

    def read_class(self, kind: type, *, depth: int = 0) -> None:
        parts = vars(kind)
        for name in sorted(parts, key=lambda name: name == MAKER):  # what is called later too is read as such
            self._making, function = name == MAKER, parts[name]
            plain = getattr(function, "__func__", function)  # of static and class methods
            plain = plain.fget if isinstance(plain, property) else plain
            unwrapped = inspect.unwrap(plain) if callable(plain) else None
            if isinstance(unwrapped, FunctionType):
                self.read(unwrapped, depth=depth, own=kind.__module__ == self._home or not depth)

    def read_held(self, held: object) -> None:
        """Follow what a module holds beside its parts, where that can be called."""
        held = held.__func__ if isinstance(held, MethodType) else held
        while isinstance(held, partial):
            held = held.func
        if isinstance(held, FunctionType):
            self.read(inspect.unwrap(held), depth=0, own=True)
        elif callable(held) and not isinstance(held, (nn.Module, type)):
            self.code.opaque = True

    def read(self, function: Any, *, depth: int, own: bool) -> None:
        """Take note of what a function calls, and read on there."""
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType) or code in self._read:
            return
        self._read.add(code)
        for part in _parts(code):
            (self.code.names if own else self.code.far).update(part.co_names)
            self.code.running.update(() if self._making else part.co_names)
            if own:
                self._count(part)
            known = _known(function)
            for name in {*part.co_names, *part.co_freevars} & known.keys():
                self._follow(name, known[name], function, set(part.co_names), depth)

    def _count(self, code: CodeType) -> None:
        """Count products, and see whether a softmax comes before any."""
        before = after = 0
        softmax = False
        for each in dis.get_instructions(code):
            named = each.opname.startswith(LOADS)
            softmax |= named and each.argval == SOFTMAX
            if _multiplies(each) or (named and each.argval in PRODUCTS):
                before, after = before + (not softmax), after + softmax
        self.code.products += before + after
        self.code.weighs_first |= softmax and not before and after > 1

    def _follow(self, name: str, value: Any, function: FunctionType, names: set[str], depth: int) -> None:
        home = getattr(value, "__module__", None) or ""
        if isinstance(value, ModuleType):
            if not _is_base(value.__name__):
                for each in names & vars(value).keys():
                    self._go(vars(value)[each], depth)
            return
        globals_of = sys.modules.get(function.__module__)
        if name in function.__globals__ and globals_of is not None and vars(globals_of) is function.__globals__:
            self.code.bound.add((function.__module__, name))
        if not _is_base(home):
            self._go(value, depth)

    def _go(self, value: Any, depth: int) -> None:
        if depth >= DEPTH:
            return
        if isinstance(value, type):
            if issubclass(value, torch.autograd.Function):
                self.read_class(value, depth=depth + 1)
            return
        plain = inspect.unwrap(value) if callable(value) else None
        if isinstance(plain, FunctionType) and not _is_base(plain.__module__ or ""):
            self.read(plain, depth=depth + 1, own=plain.__module__ == self._home)


def _is_base(home: str) -> bool:
    """Return whether code of a module says nothing about one model: torch's, Python's, a library's base."""
    first = home.partition(".")[0]
    return first == "torch" or home in BASES or first in sys.stdlib_module_names


def _known(function: FunctionType) -> dict[str, Any]:
    """Return what a function knows by name: of its module, and of functions around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    held = {}
    for name, cell in cells:
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not there yet
            continue
    return {**function.__globals__, **held}


def _parts(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _multiplies(each: dis.Instruction) -> bool:
    sign = each.opname == "BINARY_OP" and each.argrepr in ("@", "@=")
    return sign or "MATRIX_MULTIPLY" in each.opname  # of Python 3.10

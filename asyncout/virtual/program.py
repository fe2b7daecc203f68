"""The host's calls, written down as Python that can be pasted into a test and run again."""

from __future__ import annotations

import cmath
import math
from collections import deque
from typing import Any

import torch

from asyncout.virtual.engine import HISTORY_LENGTH

#: Values that a tensor's data is written out with; longer data is replaced by a count.
MAX_PRINTED_VALUES = 256

#: The count that replaces long data starts over here: all dtypes hold the numbers below.
STAND_IN_RANGE = 128


class Program:
    """Lines of Python, the last :data:`~asyncout.virtual.engine.HISTORY_LENGTH`."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=HISTORY_LENGTH)
        self._names: dict[str, int] = {}
        self._unbound: set[str] = set()

    def new_name(self, prefix: str) -> str:
        """Give a name that no other object of this program has."""
        number = self._names.get(prefix, 0)
        self._names[prefix] = number + 1
        return f"{prefix}{number}"

    def add(self, line: str, comment: str = "") -> None:
        """Add a call, and a comment behind it."""
        if "torch.arange(" in line:
            comment = f"{comment}; data too long to print: a count stands in".removeprefix("; ")
        self._lines.append(f"{line}  # {comment}" if comment else line)

    def last_raised(self) -> None:
        """Say that the last call raised: the program goes on behind it."""
        line = self._lines.pop()
        if line.startswith("try:"):
            self._lines.append(line)
            return
        target, assigns, _ = line.partition(" = ")
        if assigns:
            self._unbound.add(target)
        self._lines.append(f"try:\n    {line}\nexcept Exception:\n    pass")

    def bind_last(self, targets: str) -> None:
        """Give names to the results of the last call."""
        self._lines.append(f"{targets} = {self._lines.pop()}")

    def forget(self, names: list[str]) -> None:
        """Drop the program's references to an object, as the host has."""
        if bound := [name for name in names if name not in self._unbound]:
            self._lines.append(f"del {', '.join(bound)}")
        self._unbound.difference_update(names)

    def text(self, header: list[str]) -> str:
        """Give the whole program behind its first lines."""
        if len(self._lines) == HISTORY_LENGTH:
            header = [*header, f"# Only the last {HISTORY_LENGTH} calls are known."]
        return "\n".join([*header, *self._lines])


def spell_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Write a call of a torch operator."""
    named = [f"{name}={spell(value)}" for name, value in kwargs.items()]
    return f"torch.ops.{func}({', '.join([*map(spell, args), *named])})"


def spell(value: Any) -> str:
    """Write an operator's argument: by its name what the program has made, else by value.

    What has no value to write (a random generator) becomes None.
    """
    if isinstance(value, torch.Tensor):
        return _name_of(value) or spell_data(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spell, value))}]"
    if isinstance(value, float | complex):
        return _spell_number(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, bool | int | str | torch.dtype | torch.layout | torch.memory_format):
        return repr(value)
    return "None"


def spell_results(value: Any) -> str:
    """Write the names that an operator's results are given, as the target of an assignment."""
    if isinstance(value, torch.Tensor):
        return _name_of(value) or "_"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(spell_results, value))},)"
    return "_"


def _name_of(tensor: torch.Tensor) -> str | None:
    """Give the name of a device tensor; a host tensor has none."""
    return getattr(tensor, "program_name", None)


def spell_data(tensor: torch.Tensor) -> str:
    """Write a host tensor by its values, or by a stand-in of the same shape and layout."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if not tensor.numel():
        return f"torch.empty({shape}, dtype={dtype})"
    if tensor.numel() <= MAX_PRINTED_VALUES:
        data = f"torch.tensor({_spell_values(tensor.tolist())}, dtype={dtype})"
    else:
        count = f"torch.arange({tensor.numel()}).remainder({STAND_IN_RANGE})"
        data = f"{count}.to({dtype}).view({shape})"
    if not tensor.is_contiguous():
        data = f"torch.empty_strided({shape}, {tensor.stride()}, dtype={dtype}).copy_({data})"
    return data


def _spell_values(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_spell_values, values))}]"
    return _spell_number(values)


def _spell_number(value: Any) -> str:
    if isinstance(value, complex) and not cmath.isfinite(value):
        return f"complex({_spell_number(value.real)}, {_spell_number(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def spell_error(error: Exception) -> str:
    """Write an error: of its own class if Python has it built in, else of a general one."""
    kind = type(error)
    if kind.__module__ == "builtins" and all(isinstance(arg, str | int) for arg in error.args):
        return repr(error)
    return f"RuntimeError({str(error)!r})"

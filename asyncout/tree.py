"""Reads from a value which tensors it holds, and rebuilds it with others.

A *record* is a dataclass or a named tuple, of this package or of an engine: its
fields are read from its type, once. What an output copies is what :func:`gather`
finds, so a field added to a data type needs no other line anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from asyncout import hot

#: Fields of each record type seen so far; None for types that are no record.
_fields_of_type: dict[type, tuple[str, ...] | None] = {}

# Looked up without a call of a function: gather asks for each field of each step.
_known_fields = _fields_of_type.get
_UNSEEN: Any = object()

#: A record's fields that never leave the device by themselves: engines keep these
#: counts there for the next step's kernels, and an output gets them by hand.
DEVICE_ONLY_FIELDS = frozenset({"num_sampled", "num_rejected"})


def record_fields(kind: type) -> tuple[str, ...] | None:
    """Name a record type's fields in the order of its constructor's arguments.

    Parameters
    ----------
    kind : type

    Returns
    -------
    tuple of str or None
        None when `kind` is neither a dataclass nor a named tuple.
    """
    try:
        return _fields_of_type[kind]
    except KeyError:
        pass
    names: tuple[str, ...] | None = None
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = tuple(kind._fields)
    _fields_of_type[kind] = names
    return names


def gather_in_python(value: Any, found: list[torch.Tensor]) -> None:
    """Append to `found` every tensor of `value` that has to be copied, in field order.

    Records, and dicts of them, are walked; anything else that is no tensor holds
    nothing to copy. A record that holds tensors and no records, all of them on the
    host, is left alone.

    Parameters
    ----------
    value : tensor, record, dict or any other object
    found : list of torch.Tensor
        Grows by the tensors found.
    """
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if isinstance(value, dict):
        for part in value.values():
            gather_in_python(part, found)
        return
    names = _known_fields(type(value), _UNSEEN)
    if names is _UNSEEN:
        names = record_fields(type(value))
    if names is None:
        return
    before, is_on_host = len(found), True
    for name in names:
        if name in DEVICE_ONLY_FIELDS:
            continue
        part = getattr(value, name)
        if part is None:
            continue
        if isinstance(part, torch.Tensor):
            found.append(part)
            if is_on_host and not part.is_cpu:
                is_on_host = False
        elif _known_fields(type(part), _UNSEEN) is not None:
            # A dict or a record, or a type not seen before. A record of records is walked,
            # wherever its tensors are.
            if isinstance(part, dict) or record_fields(type(part)):
                is_on_host = False
            gather_in_python(part, found)
    if is_on_host:
        del found[before:]


def rebuild_in_python(value: Any, replacements: Iterator[Any]) -> Any:
    """Make a twin of `value` with each gathered tensor replaced by the next one.

    Parameters
    ----------
    value : tensor, record, dict or any other object
        What :func:`gather` was given.
    replacements : iterator
        As many items as were gathered, in that order.

    Returns
    -------
    object
        Same type as `value`. What was not gathered is the same object as before,
        but for the fields in :data:`DEVICE_ONLY_FIELDS`, which are None.
    """
    if isinstance(value, torch.Tensor):
        return next(replacements)
    if isinstance(value, dict):
        return {key: rebuild_in_python(part, replacements) for key, part in value.items()}
    names = record_fields(type(value))
    if names is None or _is_on_host(value, names):
        return value
    parts: list[Any] = []
    for name in names:
        part = getattr(value, name)
        if part is None or name in DEVICE_ONLY_FIELDS:
            parts.append(None)
        elif isinstance(part, torch.Tensor):
            parts.append(next(replacements))
        else:
            parts.append(rebuild_in_python(part, replacements))
    return type(value)(*parts)


gather, rebuild = gather_in_python, rebuild_in_python
if hot.COMPILED is not None:
    hot.COMPILED.learn_types(torch.Tensor, _fields_of_type, record_fields, DEVICE_ONLY_FIELDS)
    gather, rebuild = hot.COMPILED.gather, hot.COMPILED.rebuild


def named_tensors(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Give every tensor of `value` with its dotted name; for error messages.

    Parameters
    ----------
    value : tensor, record, dict or any other object
    name : str
        What to call `value` itself.

    Yields
    ------
    (str, torch.Tensor)
    """
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from named_tensors(part, f"{name}[{key!r}]" if name else str(key))
    else:
        for field in record_fields(type(value)) or ():
            yield from named_tensors(getattr(value, field), f"{name}.{field}".lstrip("."))


def _is_on_host(record: Any, names: tuple[str, ...]) -> bool:
    """Whether a record that holds tensors directly, and no record, has all on the host.

    A record of records is walked on, so that its lone host tensors are copied: they
    belong to the caller, who may write to them again.
    """
    holds_tensor = False
    for name in names:
        if name in DEVICE_ONLY_FIELDS:
            continue  # gather does not look at them either
        part = getattr(record, name)
        if isinstance(part, torch.Tensor):
            if not part.is_cpu:
                return False
            holds_tensor = True
        elif isinstance(part, dict) or record_fields(type(part)):
            return False
    return holds_tensor

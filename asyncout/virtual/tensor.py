"""The virtual device's tensor: speaks torch, runs in virtual time.

Views are made at once, as they cost a device nothing; what computes becomes a kernel
on the current stream, and what crosses between host and device becomes a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from asyncout.errors import DeviceMismatchError
from asyncout.virtual.program import spell_call, spell_results

if TYPE_CHECKING:
    from asyncout.virtual.machine import VirtualMachine
    from asyncout.virtual.memory import DeviceMemory

_aten = torch.ops.aten


class VirtualTensor(torch.Tensor):
    """A tensor on a virtual device. Make one with :meth:`VirtualMachine.tensor`.

    Attributes
    ----------
    contents : torch.Tensor
        The backing memory on the CPU, as far as the host has seen work done.
    program_name : str
        In the machine's program.
    """

    contents: torch.Tensor
    machine: VirtualMachine
    memory: DeviceMemory
    program_name: str

    @staticmethod
    def __new__(
        cls, contents: torch.Tensor, machine: VirtualMachine, memory: DeviceMemory
    ) -> VirtualTensor:
        tensor: VirtualTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            contents.shape,
            strides=contents.stride(),
            storage_offset=contents.storage_offset(),
            dtype=contents.dtype,
            device=torch.device("meta", memory.index),
        )
        return tensor

    def __init__(
        self, contents: torch.Tensor, machine: VirtualMachine, memory: DeviceMemory
    ) -> None:
        self.contents = contents
        self.machine = machine
        self.memory = memory
        # All views of one part of a memory have one name, and the first of them is all of it.
        part = (contents.shape, contents.stride(), contents.storage_offset(), contents.dtype)
        name = memory.views.get(part)
        if name is None:
            name = machine.new_name("v") if memory.views else memory.name
            memory.views[part] = name
        self.program_name = name

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        machine = _machine_of(func, args, kwargs)
        with machine.lock:
            return _dispatch(machine, func, args, kwargs)

    def tolist(self) -> Any:
        """Copy to the host, wait, and give nested lists."""
        return self.cpu().tolist()

    def record_stream(self, stream: Any) -> None:
        """Tell the allocator that `stream` uses this memory, as torch's method does."""
        self.machine.record_stream(self, stream)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"VirtualTensor(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device})"


def _machine_of(func: Any, args: tuple[Any, ...], kwargs: Any) -> VirtualMachine:
    """Give the one machine of an operation's tensors; refuse those of another one."""
    tensors = list(_virtual([*args, *kwargs.values()]))
    if not tensors:
        raise TypeError(f"{func} has no virtual tensor among its arguments")
    machine = tensors[0].machine
    for tensor in tensors:
        if tensor.machine is not machine:
            raise DeviceMismatchError(
                f"{func} mixes tensors of two virtual machines: {tensor!r} is of another one than "
                f"{tensors[0]!r}; make both with one VirtualMachine, or take one through the host"
            )
    return machine


def _dispatch(machine: VirtualMachine, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if func is _aten._to_copy.default:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cpu":
            return machine.copy_to_host(
                args[0], kwargs.get("dtype") or args[0].dtype, bool(kwargs.get("non_blocking"))
            )
    if func is _aten.copy_.default:
        return _copy(machine, *args, **kwargs)
    if func is _aten._foreach_copy_.default:
        for target, source in zip(args[0], args[1], strict=True):
            _copy(machine, target, source, *args[2:], **kwargs)
        return None
    if func is _aten._local_scalar_dense.default:
        return machine.copy_to_host(args[0], args[0].dtype, False).item()
    if _is_view(func):
        return _view(machine, func, args, kwargs)
    return _kernel(machine, func, args, kwargs)


def _copy(
    machine: VirtualMachine, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    if not isinstance(target, VirtualTensor):
        machine.copy_into_host(target, source, non_blocking)
    elif not isinstance(source, VirtualTensor):
        machine.copy_to_device(target, source, non_blocking)
    else:
        contents, other = target.contents, source.contents
        machine.log_work(f"{target.program_name}.copy_({source.program_name})")
        machine.run_kernel("copy_", lambda: contents.copy_(other), [target, source], [target])
    return target


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returns
    )


def _contents(value: Any) -> Any:
    return value.contents if isinstance(value, VirtualTensor) else value


def _view(machine: VirtualMachine, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    base = next(value for value in args if isinstance(value, VirtualTensor))
    known = len(base.memory.views)
    result = func(*tree_map(_contents, args), **tree_map(_contents, kwargs))
    views = tree_map(
        lambda part: (
            VirtualTensor(part, machine, base.memory) if isinstance(part, torch.Tensor) else part
        ),
        result,
    )
    if len(base.memory.views) > known:
        machine.log(f"{spell_results(views)} = {spell_call(func, args, kwargs)}")
    return views


def _kernel(machine: VirtualMachine, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Enqueue a computation; its results' shapes are known now, their contents later."""
    call = spell_call(func, args, kwargs)
    kwargs = {**kwargs, "device": "cpu"} if "device" in kwargs else dict(kwargs)
    kwargs.pop("pin_memory", None)
    # A host tensor among the arguments is read when the kernel is launched.
    args = tree_map(
        lambda v: (
            v.clone() if isinstance(v, torch.Tensor) and not isinstance(v, VirtualTensor) else v
        ),
        args,
    )
    tensors = list(_virtual([*args, *kwargs.values()]))
    inner_args, inner_kwargs = tree_map(_contents, args), tree_map(_contents, kwargs)
    name = str(func).removeprefix("aten.")
    if func._schema.is_mutable:
        written = _written(func, args, kwargs)
        machine.log_work(call)
        machine.run_kernel(name, lambda: func(*inner_args, **inner_kwargs), tensors, written)
        if not func._schema.returns:
            return None
        return kwargs["out"] if "out" in kwargs else args[0]
    machine.log_work(call)
    try:
        shapes = _shapes(machine, func, tensors[0], inner_args, inner_kwargs)
    except Exception:
        machine.log_raised()
        raise
    index = tensors[0].memory.index
    results = tree_map(
        lambda part: (
            machine.unnamed(part.shape, part.dtype, index, part.stride())
            if isinstance(part, torch.Tensor)
            else part
        ),
        shapes,
    )

    def effect() -> None:
        computed = _flat([func(*inner_args, **inner_kwargs)])
        for target, value in zip(targets, computed, strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(value)

    targets = [_contents(part) for part in _flat([results])]
    machine.log_results(spell_results(results))
    new = list(_virtual([results]))
    machine.run_kernel(name, effect, [*tensors, *new], new)
    return results


def _written(func: Any, args: tuple[Any, ...], kwargs: Any) -> list[VirtualTensor]:
    """Give the tensors that an operator writes to, as its schema says."""
    values = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            values.append(args[place] if place < len(args) else kwargs.get(argument.name))
    return list(_virtual(values))


def _shapes(
    machine: VirtualMachine, func: Any, first: VirtualTensor, args: Any, kwargs: Any
) -> Any:
    def to_meta(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    meta_kwargs = {**kwargs, "device": "meta"} if "device" in kwargs else kwargs
    try:
        return func(*tree_map(to_meta, args), **tree_map(to_meta, meta_kwargs))
    except (NotImplementedError, RuntimeError):
        # The shape depends on the contents (a boolean index, say): like a real device,
        # this one has to wait for them, and for what is ahead of them in their stream.
        machine.wait_for_stream_of(first)
        return func(*args, **kwargs)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [item for part in value for item in _flat(part)]
    return [value]


def _virtual(values: Any) -> Iterator[VirtualTensor]:
    """Find the virtual tensors among an operator's arguments."""
    for value in values:
        if isinstance(value, VirtualTensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _virtual(value)

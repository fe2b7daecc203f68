"""What a device's work and the host's calls cost: a JSON file, fitted from a machine."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncout.errors import ProfileError

#: Version of the file format; a file of another one is refused, not guessed at.
FORMAT = 2

_SHIPPED = Path(__file__).parent / "profiles"

#: The profile of a virtual machine that is given none.
DEFAULT_PROFILE = "h200-pcie5-vm16"

_TEXTS = ("machine", "source")
_FLAGS = ("pageable_batch_holds",)


@dataclass(frozen=True)
class CostProfile:
    """Costs of one machine, in seconds and bytes per second.

    Attributes
    ----------
    machine, source : str
        Which machine this is, and where the values come from.
    d2h_pinned_bytes_per_s, d2h_pageable_bytes_per_s : float
        Bandwidth to the host, by kind of destination.
    h2d_pinned_bytes_per_s, h2d_pageable_bytes_per_s : float
        Bandwidth to the device, by kind of source.
    copy_latency_s : float
        Device time of a copy beside its bytes.
    kernel_s, kernel_bytes_per_s : float
        Device time of a small kernel: a fixed part, and one per byte it touches.
    block_wake_s, block_cpu_s : float
        How late a sleeping thread wakes, and the CPU time of such a wait.
    spin_wake_s : float
        How late a spinning thread notices.
    sleep_late_s : float
        How much longer than asked the host sleeps.
    pageable_batch_holds : bool
        Whether the batched call into pageable memory returns only when its copies are done,
        as a pageable copy of its own does.
    call_copy_s, call_kernel_s, call_host_allocation_s, call_new_event_s : float
    call_record_s, call_wait_event_s, call_set_stream_s, call_query_s : float
        Host time of one call of each kind.
    pageable_copy_s : float
        What a copy of its own into pageable memory takes longer than a pinned one, beside its
        bytes: it goes through a buffer of the driver, in whose call the host is held. Default 0,
        of profiles from before it was known.
    pageable_batch_copy_s : float
        Device time of each copy of a batch into pageable memory beside its bytes. Default 0, of
        profiles from before it was known: such a batch then takes one latency, as pinned ones do.
    new_page_s : float
        What each page adds to a copy into pageable memory that is new: the system makes the page
        when it is first written to. Default 0, of profiles from before it was known: new memory
        is then as fast as any.
    """

    machine: str
    source: str
    d2h_pinned_bytes_per_s: float
    d2h_pageable_bytes_per_s: float
    h2d_pinned_bytes_per_s: float
    h2d_pageable_bytes_per_s: float
    copy_latency_s: float
    kernel_s: float
    kernel_bytes_per_s: float
    block_wake_s: float
    block_cpu_s: float
    spin_wake_s: float
    sleep_late_s: float
    pageable_batch_holds: bool
    call_copy_s: float
    call_kernel_s: float
    call_host_allocation_s: float
    call_new_event_s: float
    call_record_s: float
    call_wait_event_s: float
    call_set_stream_s: float
    call_query_s: float
    pageable_copy_s: float = 0.0
    pageable_batch_copy_s: float = 0.0
    new_page_s: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _TEXTS:
                if not isinstance(value, str):
                    raise ProfileError(f"profile field {field.name} is {value!r}; give a text")
                continue
            if field.name in _FLAGS:
                if not isinstance(value, bool):
                    raise ProfileError(
                        f"profile field {field.name} is {value!r}; give true or false"
                    )
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ProfileError(f"profile field {field.name} is {value!r}; give a number")
            least = "above 0" if field.name.endswith("bytes_per_s") else "0 or more"
            if not math.isfinite(value) or value < 0 or (value == 0 and least == "above 0"):
                raise ProfileError(f"profile field {field.name} is {value}; must be {least}")

    @classmethod
    def load(cls, name_or_path: str | Path = DEFAULT_PROFILE) -> CostProfile:
        """Read a profile: one that is shipped, by its name, or any file.

        Raises
        ------
        ProfileError
            There is no such profile, or the file is cut, foreign, of another format,
            or has a value that cannot be. Names the file and the field.
        """
        shipped = _SHIPPED / f"{name_or_path}.json"
        path = shipped if shipped.is_file() else Path(name_or_path)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            known = ", ".join(sorted(file.stem for file in _SHIPPED.glob("*.json")))
            raise ProfileError(
                f"no profile {str(name_or_path)!r}: shipped are {known}; or give a file's path"
            ) from error
        except ValueError as error:
            raise ProfileError(f"{path} is no whole JSON file: {error}") from error
        return cls._from_data(data, path)

    @classmethod
    def _from_data(cls, data: Any, path: Path) -> CostProfile:
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ProfileError(f"{path} is no cost profile of format {FORMAT}")
        names = {field.name for field in dataclasses.fields(cls)}
        needed = {f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}
        missing, unknown = sorted(needed - data.keys()), sorted(data.keys() - names)
        if missing or unknown:
            raise ProfileError(f"{path}: missing fields {missing}, unknown fields {unknown}")
        try:
            return cls(**data)
        except ProfileError as error:
            raise ProfileError(f"{path}: {error}") from None

    def to_json(self, path: str | Path) -> None:
        """Write the profile so that :meth:`load` reads the same."""
        Path(path).write_text(self.as_json() + "\n", encoding="utf-8")

    def as_json(self) -> str:
        """Give what :meth:`to_json` writes."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2)

    def replace(self, **changes: Any) -> CostProfile:
        """Give a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

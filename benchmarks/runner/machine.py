"""How a machine is called in ``results/``, and what asv is told of it.

asv draws one graph per distinct set of machine fields, so the fields hold only
what makes figures differ and does not change by itself: no kernel version, and
no memory size, which a virtual machine reports as it pleases.
"""

from __future__ import annotations

import re
from pathlib import Path

from asv.machine import MachineCollection  # type: ignore[import-untyped]

from benchmarks.runner.errors import MachineNameError
from benchmarks.runner.facts import Facts

#: A machine's name, which becomes a folder's; no dot at an end, no hidden folder.
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")

#: Names that some systems keep for devices.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")

#: Words in a GPU's product name that tell nothing apart.
_NOISE = ("nvidia", "geforce", "tesla", "graphics")

_ARCH_NAMES = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm"}


def default_name(facts: Facts) -> str:
    """Name a machine after what it is, for example ``h200-pcie5-vm16`` or ``nogpu-x86-2``.

    Parts that are not known are left out.
    """
    cpus = facts.get("cpus", "")
    if "cuda_device" not in facts:
        arch = facts.get("arch", "")
        return "-".join(part for part in ("nogpu", _ARCH_NAMES.get(arch, arch), cpus) if part)
    pcie = facts.get("pcie_gen_max", "")
    parts = (
        short_gpu_name(facts["cuda_device"]),
        f"pcie{pcie}" if pcie else "",
        f"{facts.get('host', 'cpu')}{cpus}",
    )
    return "-".join(part for part in parts if part)


def is_name(text: str) -> bool:
    """Whether a machine may be called so."""
    return bool(_NAME.fullmatch(text)) and not _DEVICES.fullmatch(text)


def chosen_name(wanted: str | None, facts: Facts) -> str:
    """Give the name that is asked for, or else the default one.

    Raises
    ------
    MachineNameError
        It cannot be a folder's everywhere, or would leave ``results/``.
    """
    if not wanted:
        return default_name(facts)
    if not is_name(wanted):
        raise MachineNameError(
            f"{wanted!r} is no name of a machine: at most 64 small letters, digits and - . _ within"
        )
    return wanted


def short_gpu_name(product: str) -> str:
    """Shorten a product name: "NVIDIA H200" gives "h200"."""
    words = re.findall(r"[a-z0-9]+", product.lower())
    return "-".join(word for word in words if word not in _NOISE)


def asv_fields(name: str, facts: Facts) -> dict[str, str]:
    """Give the fields that asv keeps of a machine in every result."""
    return {
        "machine": name,
        "os": facts.get("kernel", "").partition(" ")[0],
        "arch": facts.get("arch", ""),
        "cpu": facts.get("cpu", ""),
        "num_cpu": facts.get("cpus", ""),
        "ram": "",
    }


def register(fields: dict[str, str], home: Path | None = None) -> None:
    """Make a machine known to asv, which asks questions about one that it does not know.

    Written as asv would: its own command drops each field that it would have guessed.

    Parameters
    ----------
    fields : dict
        As from :func:`asv_fields`.
    home : Path, optional
        The home folder that asv will look in; default: the user's.
    """
    path = str(home / ".asv-machine.json") if home is not None else None
    MachineCollection.save(fields["machine"], fields, _path=path)

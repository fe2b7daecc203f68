"""Facts of the software between the library and the GPU."""

from __future__ import annotations

import json
import sys

from asyncout.doctor.facts.reading import Facts, output_of, without_blanks

_TORCH_PROBE = """
import json, torch
facts = {"torch": torch.__version__, "cuda": torch.version.cuda or ""}
if torch.cuda.is_available():
    facts["cuda_device"] = torch.cuda.get_device_name(0)
print(json.dumps(facts))
"""


def torch_facts() -> Facts:
    """Read torch's version, its CUDA, and ``cuda_device`` if it sees one.

    Torch is asked in a process of its own: the name of a device costs a CUDA context.
    """
    return without_blanks(json.loads(output_of([sys.executable, "-c", _TORCH_PROBE]) or "{}"))

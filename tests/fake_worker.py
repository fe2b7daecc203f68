"""A worker of the gate without torch: answers what its arguments say.

``fake_worker.py SIDE JSON``: the object may have ``factor`` (of every value), ``spread``
(of a process's own factor), ``virtual``, ``lacks`` and ``breaks`` (probes by index),
``no_device``, ``unsettled``, ``notes`` (a file: where it was put), ``opened`` (a file:
which probes were opened and closed), ``holds`` (a FIFO that it and a process of its own
keep open), and ``dies``, ``hangs``, ``babbles``, ``terminates`` (what it does when asked
so; the last one to the gate).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

#: Values of a visit before any factor; as many as a probe has metrics at most.
VALUES = (1e-4, 2e-4)


def answer(question: dict, wanted: dict, factor: float) -> dict:
    do, probe = question["do"], question.get("probe")
    if do == "greet":
        if wanted.get("no_device"):
            return {"ok": False, "error": "NoDeviceError: no CUDA device", "lacking": False}
        return {"ok": True, "device": "a fake", "modelled": bool(wanted.get("virtual"))}
    if do == "settle":
        return settle(question, wanted)
    if do in ("open", "close") and "opened" in wanted:
        with open(wanted["opened"], "a", encoding="utf-8") as notes:
            notes.write(json.dumps([do, probe]) + "\n")
    if do == "open" and probe in wanted.get("lacks", ()):
        return {"ok": False, "error": "ImportError: no such name", "lacking": True}
    if do == "open" and probe in wanted.get("breaks", ()):
        return {"ok": False, "error": "AssertionError: wrong bytes", "lacking": False}
    noise = 1 + wanted.get("spread", 0.0) * random.gauss(0, 1)
    return {"ok": True, "values": [value * factor * noise for value in VALUES]}


def settle(question: dict, wanted: dict) -> dict:
    """Note where it was put, and answer with a pace of its own unless one is given."""
    if wanted.get("unsettled"):
        return {"ok": False, "error": "OSError: no such processor", "lacking": False}
    pace = question["cycles_per_second"] or os.getpid()
    if "notes" in wanted:
        with open(wanted["notes"], "a", encoding="utf-8") as notes:
            notes.write(json.dumps([question["cpu"], pace]) + "\n")
    return {"ok": True, "cycles_per_second": pace}


def main() -> None:
    wanted = json.loads(sys.argv[2])
    factor = wanted.get("factor", 1.0) * (1 + wanted.get("spread", 0.0) * random.gauss(0, 1))
    if "holds" in wanted:
        held = os.open(wanted["holds"], os.O_WRONLY)
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        subprocess.Popen(["sleep", "60"], pass_fds=[held], **nothing)
    for line in sys.stdin:
        question = json.loads(line)
        if wanted.get("dies") == question["do"]:
            print("the GPU has fallen off the bus", file=sys.stderr, flush=True)
            os._exit(7)
        if wanted.get("terminates") == question["do"]:
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(600)
        if wanted.get("hangs") == question["do"]:
            time.sleep(600)
        if wanted.get("babbles") == question["do"]:
            print("not JSON", flush=True)
            continue
        print(json.dumps(answer(question, wanted, factor)), flush=True)


if __name__ == "__main__":
    main()

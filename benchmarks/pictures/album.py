"""All pictures of one machine, in the order in which its page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asyncout.errors import ProfileError
from asyncout.virtual import CostProfile
from benchmarks import timeline, trace
from benchmarks.fit.fitting import fitted_name
from benchmarks.pictures import breakeven, factorial, library, look, memory, streams, waits
from benchmarks.pictures import timeline as timeline_picture
from benchmarks.pictures.look import Picture
from benchmarks.results import Gain

#: Pictures of rows alone.
_OF_ROWS = (streams, memory, waits, factorial, library)

#: The three that the README shows: one for each of the first three questions.
IN_README = ("streams", "memory", "waits")


def build(gains: Sequence[Gain], folder: Path) -> list[Picture]:
    """Draw everything that one machine's newest results allow.

    Parameters
    ----------
    gains : sequence of Gain
        Of one machine and commit. Measured rows are drawn; only where there are none,
        the modelled ones, which then say so.
    folder : Path
        Where the pictures go; a measured trace that lies there becomes the timeline.

    Returns
    -------
    list of Picture
        Without those whose rows, or whose machine's cost profile, are missing.

    Raises
    ------
    look.PictureError
        matplotlib is not there.
    timeline.TraceError
        The trace in `folder` is cut or foreign.
    """
    shown = [gain for gain in gains if not gain.modelled] or list(gains)
    profile = profile_of(shown[0].machine) if shown else None
    with look.style():
        drawn = [module.draw(shown) for module in _OF_ROWS]
        found = [picture for picture in drawn if picture is not None]
        if profile is not None:
            measured = [gain for gain in shown if not gain.modelled]
            found.append(breakeven.draw(measured, profile, fitted_name(shown[0].machine)))
        if (steps := _timeline(folder, profile)) is not None:
            found.append(timeline_picture.draw(steps))
    return found


def profile_of(machine: str) -> CostProfile | None:
    """Give the profile that was fitted from a machine's results, if one is shipped."""
    try:
        return CostProfile.load(fitted_name(machine))
    except ProfileError:
        return None


def _timeline(folder: Path, profile: CostProfile | None) -> timeline.Trace | None:
    """Give the measured trace if there is one, else the model's."""
    path = folder / trace.TRACE_FILE
    if path.exists():
        measured = timeline.parse(timeline.load(path))
        if not measured.modelled:
            return measured
    if profile is None:
        return None
    return timeline.parse(trace.record_modelled(trace.WORKLOAD, profile))

"""The pictures: what they say, that nothing is cut off, and that the committed ones are current."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from asyncout.doctor.workloads import SHAPES
from asyncout.virtual import CostProfile
from asyncout.virtual.memory import PAGE_BYTES
from benchmarks import names
from benchmarks.fit.fitting import fitted_commit
from benchmarks.pictures import (
    __main__ as command,
)
from benchmarks.pictures import (
    album,
    breakeven,
    library,
    look,
    memory,
    model,
    page,
    rows,
    streams,
    waits,
)
from benchmarks.pictures.look import PictureError
from benchmarks.pictures.model import Curve
from benchmarks.results import Gain, machines

pytestmark = pytest.mark.commands

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def gain(question: int, metric: str, workload: str, arm: str, ratio: float, **more: Any) -> Gain:
    """Make a row whose baseline took 1 ms."""
    values: dict[str, Any] = {
        "baseline": "baseline",
        "unit": "seconds",
        "arm_value": ratio * 1e-3,
        "baseline_value": 1e-3,
        "ratio": ratio,
        "low": ratio * 0.98,
        "high": ratio * 1.03,
        "bound": None,
        "verdict": "faster",
        "pairs": 24,
        "machine": "h200-pcie5-vm16",
        "commit": "c" * 40,
        "modelled": False,
        "arm_interval": (ratio * 0.9e-3, ratio * 1.2e-3),
        "baseline_interval": (0.95e-3, 1.05e-3),
        **more,
    }
    return Gain(question=question, metric=metric, workload=workload, arm=arm, **values)


@pytest.fixture
def gains() -> list[Gain]:
    step = [("decode R=1 K=0", 1.02, 0.99), ("logits 256 x 128256 fp32", 0.6, 0.55)]
    found = [
        gain(1, "step time", name, "two streams", ratio, baseline="one stream", bound=bound)
        for name, ratio, bound in step
    ]
    for name, copy in (("decode R=1 K=0", 1e-5), ("logits 256 x 128256 fp32", 2e-3)):
        extra = {"baseline": "one stream"}
        found += [
            gain(1, "exposed copy time", name, "two streams", 0.3, baseline_value=copy, **extra),
            gain(
                1,
                "exposed share of the copy",
                name,
                "two streams",
                0.3,
                baseline_value=1.0,
                **extra,
            ),
        ]
    for name, ratio in (("64 B", 0.7), ("4 KiB", 0.5), ("1 MiB", 0.25), ("256 MiB", 0.02)):
        for metric, factor in ((memory.COPY_TIME, 1.0), (memory.HOST_HELD, 0.01)):
            found.append(gain(2, metric, name, "pinned", ratio * factor, baseline="pageable"))
    for name in ("1 ms", "5 ms", "20 ms"):
        for wait in ("spin", "hybrid"):
            found.append(gain(3, waits.WAKE_UP, name, wait, 0.1, baseline="block"))
        for wait, ratio in (("block", 0.01), ("hybrid", 0.03)):
            share = {"unit": "share", "baseline_value": 1.0, "arm_value": ratio}
            share["baseline_interval"], share["arm_interval"] = (0.99, 1.0), (ratio, ratio * 1.2)
            found.append(gain(3, waits.CPU_SHARE, name, wait, ratio, baseline="spin", **share))
    for workload, loop, length, ratio in (
        ("decode R=256 K=20", "pipelined", "2 ms", 0.9),
        ("decode R=256 K=20", "synchronous", "2 ms", 0.7),
        ("pooling 256 x 4096 fp32", "pipelined", "30 ms", 1.05),
        ("a shape that nobody knows", "pipelined", "2 ms", 0.5),
    ):
        block = names.block(workload, loop, length)
        found.append(gain(4, "step time by policy", block, "pinned", ratio, baseline="pageable"))
        found.append(gain(4, "step time by policy", block, "dual", 0.8, baseline="single"))
    for metric, ratio in (("enqueue", 0.8), ("get_output after arrival", 3.0)):
        for arm in library.LOOKS:
            found.append(gain(5, metric, "decode R=256 K=20", arm, ratio, baseline="original"))
    return found


def texts(figure: Any) -> list[Any]:
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


# --- what they say ----------------------------------------------------------------------------


def test_titles_say_what_the_numbers_say_and_losses_are_no_gains(gains) -> None:
    with look.style():
        said = {p.name: p.message.replace(rows.GAP, " ") for p in album.build(gains, Path("none"))}
    assert said["streams"] == (
        "A second stream saves up to 40 % of a step (logits 256 x 128256 fp32), and costs 2 % with "
        "decode R=1 K=0"
    )
    assert said["memory"] == (
        "Pinned memory copies 1.4× as fast at 64 B and 50× at 256 MiB; its call returns in 0.2 µs "
        "instead of 1 ms"
    )
    assert said["waits"] == (
        "After 5 ms, hybrid is back in 100 µs for 3 % of a core; block takes 1 ms, spin 100 µs and "
        "a whole core"
    )
    assert said["library"] == (
        "The default policy's cost, the original's being 1: enqueue 0.8, get_output after arrival 3"
    )
    assert said["breakeven"].startswith("Modelled: a second stream saves 1 % of a 2 ms step from")
    assert said["breakeven"].endswith("at the median of 2 loops, where 2.5 % was measured")
    assert said["timeline"].startswith("Modelled: 4 steps take")


def test_modelled_rows_are_drawn_only_where_nothing_is_measured_and_say_so(gains) -> None:
    modelled = [replace(one, modelled=True) for one in gains]
    with look.style():
        both = streams.draw([one for one in [*gains, *modelled] if not one.modelled])
        only = streams.draw(modelled)
    assert both is not None
    assert only is not None
    assert "MODELLED in virtual time, not measured" in " ".join(
        text.get_text() for text in texts(only.figure)
    )
    assert "MODELLED" not in " ".join(text.get_text() for text in texts(both.figure))
    album_names = [p.name for p in album.build([*gains, *modelled], Path("none"))]
    assert album_names == ["streams", "memory", "waits", "library", "breakeven", "timeline"]


def test_bounds_intervals_and_values_are_in_the_picture(gains) -> None:
    with look.style():
        picture = streams.draw(gains)
    assert picture is not None
    shown = [text.get_text().replace(rows.GAP, " ") for text in texts(picture.figure)]
    assert "40 %  (bound 45 %)" in shown
    assert any("h200-pcie5-vm16 · commit cccccccc · bars: 95 % intervals" in text for text in shown)
    (axes,) = picture.figure.axes
    (bars,) = [c for c in axes.collections if type(c).__name__ == "LineCollection"]
    ends = sorted(segment[:, 0].tolist() for segment in bars.get_segments())
    assert ends[1] == pytest.approx([100 * (1 - 0.6 * 1.03), 100 * (1 - 0.6 * 0.98)])


def test_a_machine_without_a_question_or_a_profile_has_no_picture_of_it(gains) -> None:
    assert [module.draw([]) for module in (streams, memory, waits, library)] == [None] * 4
    elsewhere = [replace(one, machine="a-box") for one in gains if one.question == 1]
    assert [picture.name for picture in album.build(elsewhere, Path("none"))] == ["streams"]
    assert album.build([], Path("none")) == []


# --- how they look ----------------------------------------------------------------------------


def test_no_text_is_cut_off_and_no_title_runs_into_another(gains) -> None:
    for picture in album.build(gains, Path("none")):
        width, height = picture.figure.canvas.get_width_height()
        for text in texts(picture.figure):
            box = text.get_window_extent()
            inside = box.x0 > -2 and box.y0 > -2 and box.x1 < width + 2 and box.y1 < height + 2
            # Ticks beyond an axis's ends keep a text that is not drawn.
            assert inside or text.get_text() in _tick_texts(picture.figure), (
                picture.name,
                text.get_text(),
            )


def _tick_texts(figure: Any) -> set[str]:
    return {
        label.get_text()
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels(which="both")
    }


def test_series_differ_by_shape_too_not_by_colour_alone() -> None:
    for looks in (memory.GAIN_LOOKS, memory.KIND_LOOKS, waits.LOOKS, library.LOOKS):
        assert len({drawn[0] for drawn in looks.values()}) == len(looks)
        assert len({drawn[1] for drawn in looks.values()}) == len(looks)
    lengths = {*model.STEPS_S, *names.STEP_LENGTHS.values()}
    assert breakeven.STEP_LOOKS.keys() == lengths
    for kind in zip(*breakeven.STEP_LOOKS.values(), strict=True):
        assert len(set(kind)) == len(lengths)


def test_the_same_numbers_give_the_same_bytes_without_a_date(gains, tmp_path) -> None:
    written = []
    for run in ("one", "two"):
        with look.style():
            picture = memory.draw(gains)
        assert picture is not None
        written.append([path.read_bytes() for path in look.save(picture, tmp_path / run)])
    assert written[0] == written[1]
    svg, png = written[0]
    assert b"<dc:date>" not in svg
    assert b"Matplotlib" not in svg
    assert b"matplotlib" not in png.lower()
    assert b'style="fill: #ffffff"' in svg  # a light ground, also on a dark page
    assert not re.search(rb"[ \t]$", svg, re.MULTILINE)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import of it fails
    with (
        pytest.raises(PictureError, match="not installed; install the extra 'bench'"),
        look.style(),
    ):
        pass
    assert command.main(["--machine", "h200-pcie5-vm16"]) == 1
    assert "pictures need matplotlib" in capsys.readouterr().err


# --- the model's curves -----------------------------------------------------------------------


def test_modelled_curves_stay_below_what_can_be_saved() -> None:
    for curve, step in zip(model.second_stream(CostProfile.load()), model.STEPS_S, strict=True):
        for copy, saved in zip(curve.x, curve.saved, strict=True):
            gaps = 0.03 * step + 25e-6  # launches, which the bound leaves out
            assert saved <= (min(copy, step) + gaps) / (copy + step)
            assert saved > -0.01


def test_a_curve_tells_where_it_crosses_a_level() -> None:
    curve = Curve("", (1.0, 10.0, 100.0, 1000.0), (0.0, 0.02, 0.02, 0.0))
    first, last = curve.crossings(0.01)
    assert first == pytest.approx(10**0.5)
    assert last == pytest.approx(10**2.5)
    assert curve.crossings(0.5) == []


def test_measured_points_lie_where_the_rows_say(gains) -> None:
    small, large = breakeven.stream_points(gains)
    assert small[:2] == pytest.approx((1e-5, -0.02))
    assert large[:2] == pytest.approx((2e-3, 0.4))
    # Block is 1 ms late after 1 ms; spin saves nine tenths of that.
    assert breakeven.wait_points(gains)["spin"][0] == pytest.approx((1e-3, 0.45, 0.4485, 0.451))


def test_pinned_memorys_points_are_question_4s_pipelined_blocks(gains) -> None:
    small, large = breakeven.memory_blocks(gains, fitted())
    assert (small.seconds, large.seconds) == (2e-3, 30e-3)
    assert small.point == pytest.approx((48128, 0.1, 1 - 0.9 * 1.03, 1 - 0.9 * 0.98))
    assert large.point[:2] == pytest.approx((4 << 20, -0.05))
    # Their rows' baseline took 1 ms: the model knows that 2 ms of kernels take longer.
    pinned, pageable = model.step_by_memory(fitted(), 48128, 6, 2e-3)
    assert small.modelled == pytest.approx(1 - pinned / pageable)
    assert small.pinned_error == pytest.approx(pinned / 0.9e-3 - 1)
    assert small.pageable_error == pytest.approx(pageable / 1e-3 - 1)
    assert breakeven.memory_blocks([one for one in gains if one.question != 4], fitted()) == []


def test_a_modelled_step_by_memory_is_the_mean_over_the_other_axes() -> None:
    pinned, pageable = model.step_by_memory(fitted(), 8 << 20, 1, 2e-3)
    copy = (8 << 20) / fitted().d2h_pinned_bytes_per_s
    slow_copy = (8 << 20) / fitted().d2h_pageable_bytes_per_s
    # Half of the policies hide a pinned copy behind the next step's kernels, half do not.
    assert 2e-3 < pinned < 2e-3 + copy
    assert pinned < pageable < 1.1 * (2e-3 + slow_copy)
    # One call a tensor, in half of the policies: more tensors of as many bytes take longer.
    assert model.step_by_memory(fitted(), 8 << 20, 48, 2e-3)[1] > pageable


@pytest.mark.parametrize("new_page_s", [0.0, 2e-6])
def test_pinned_memory_saves_more_of_shorter_steps_up_to_the_ratio_of_a_bytes_costs(
    new_page_s: float,
) -> None:
    profile = fitted().replace(new_page_s=new_page_s)
    curves = model.pinned_memory(profile)
    pageable = 1 / profile.d2h_pageable_bytes_per_s + new_page_s / PAGE_BYTES
    most = 1 - 1 / profile.d2h_pinned_bytes_per_s / pageable
    for shorter, longer in pairwise(curves):
        assert all(a > b for a, b in zip(shorter.saved, longer.saved, strict=True) if a > 0)
    for curve in curves:
        assert curve.saved[-1] == max(curve.saved) < most
        assert min(curve.saved) > -1e-3  # a host that was held need not be woken
        assert curve.x[0] < min(size for size, _ in SHAPES.values())
        assert curve.x[-1] > max(size for size, _ in SHAPES.values())


def test_what_the_model_misses_is_said_beside_its_curves(gains) -> None:
    with look.style():
        picture = breakeven.draw(gains, fitted(), "the-file")
        alone = breakeven.draw([], fitted(), "the-file")
        by_hand = breakeven.draw([], CostProfile.load(), "another")
    shown = _plain(picture)
    assert "% with pinned memory and +" in shown
    assert "holds the host" not in shown  # these rows' pageable steps are shorter than modelled
    assert "step times are off" not in _plain(alone)
    assert "where" not in alone.message
    commit = fitted_commit(fitted())
    assert f"profile the-file, fitted at {commit} · points: nothing" in _plain(alone)
    assert "profile another, not fitted" in _plain(by_hand)


def test_steps_with_pageable_memory_that_take_longer_than_modelled_are_explained() -> None:
    block = breakeven.Block(2e-3, (1.0, 0.1, 0.1, 0.1), 0.02, 0.01, -0.2)
    said = breakeven._missed([block, replace(block, pageable_error=-0.1)]).replace(rows.GAP, " ")
    assert "+1 % with pinned memory and -20 % with pageable: a pageable copy holds" in said
    assert "holds the host" not in breakeven._missed([replace(block, pinned_error=0.3)])
    assert breakeven._missed([]) == ""


def test_the_curves_are_of_the_profile_that_was_fitted_from_the_machines_results() -> None:
    profile = album.profile_of("h200-pcie5-vm16")
    assert profile == fitted()
    assert fitted_commit(profile)
    assert album.profile_of("a-box") is None


def fitted() -> CostProfile:
    return CostProfile.load("h200-pcie5-vm16-fitted")


def _plain(picture: look.Picture) -> str:
    """Give all text of a picture in one line."""
    shown = " ".join(text.get_text() for text in texts(picture.figure))
    return " ".join(shown.replace(rows.GAP, " ").split())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(29.73e-6, "30 µs"), (147.2e-6, "147 µs"), (1.365e-3, "1.4 ms"), (2.0, "2 s"), (9.96, "10 s")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert rows.short(seconds).replace(rows.GAP, " ") == text


# --- pages ------------------------------------------------------------------------------------


def embedded(path: Path) -> list[tuple[str, Path]]:
    found = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    return [(alt, path.parent / target) for alt, target in found]


def test_the_committed_pages_and_the_readmes_pictures_are_those_of_the_results() -> None:
    for machine in machines(RESULTS):
        readme = ["--readme", str(ROOT / "README.md")] if machine in shown_in_readme() else []
        assert command.main(["--machine", machine, *readme, "--check"]) == 0


def shown_in_readme() -> set[str]:
    return {target.parent.parent.name for _, target in embedded(ROOT / "README.md")}


def test_every_embedded_picture_is_there_as_svg_and_png_and_has_a_text_beside_it() -> None:
    documents = [ROOT / "README.md", *RESULTS.glob("*/REPORT.md")]
    assert len(embedded(documents[0])) == len(album.IN_README) == 3
    for alt, target in (found for document in documents for found in embedded(document)):
        assert len(alt) > 60
        assert target.exists(), target
        assert target.with_suffix(".png").exists()


def test_a_page_is_written_beside_its_pictures_and_checked(tmp_path, gains, monkeypatch) -> None:
    monkeypatch.setattr(command, "read", lambda *_: gains)
    monkeypatch.setattr(album, "profile_of", lambda _: None)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{page.README_BEGIN}\nold\n{page.README_END}\nafter\n")
    out = tmp_path / "results" / "box" / "pictures"
    arguments = ["--machine", "box", "--out", str(out), "--readme", str(readme)]
    assert command.main([*arguments, "--check"]) == 2
    assert not out.exists()
    assert command.main(arguments) == 0
    assert command.main([*arguments, "--check"]) == 0
    assert readme.read_text().startswith("before\n")
    assert readme.read_text().endswith("\nafter\n")
    assert "](results/box/pictures/streams.svg)" in readme.read_text()
    shown = embedded(out.parent / "REPORT.md")
    assert [path.name for _, path in shown] == [
        f"{name}.svg" for name in ("streams", "memory", "waits", "library")
    ]
    assert all(path.exists() for _, path in shown)
    assert "## All gains" in (out.parent / "REPORT.md").read_text()
    readme.write_text("no markers")
    assert command.main(arguments) == 1


def test_out_and_readme_are_for_one_machine(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        command.main(["--results", str(tmp_path), "--readme", "README.md"])
    assert "name it with --machine" in capsys.readouterr().err
    assert command.main(["--results", str(tmp_path)]) == 1
    assert "run `make bench` first" in capsys.readouterr().err

"""The built site in a headless Chromium: nothing fails or leaves this machine, all can be used.

Skipped where there is no Chromium, unless ASYNCOUT_REQUIRE_BROWSER=1 says that there must be.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.pages import preview, site
from tests import browser, pages_project
from tests.browser import Browser

#: Set where the browser must be there: a run without it fails then.
REQUIRED = "ASYNCOUT_REQUIRE_BROWSER"

TAB, ENTER = "\ue004", "\ue007"

#: A page of the site, and the script that tells that it is there.
PAGES = {
    "index.html": "return document.querySelectorAll('tbody tr').length",
    "commits.html": "return document.querySelectorAll('tbody tr').length",
    "asv/index.html#/": "return document.querySelectorAll('.benchmark-plot canvas').length",
    "asv/index.html#/summarylist": (
        "return document.querySelectorAll('#summarylist-body tbody tr').length"
    ),
    "asv/index.html#/regressions": (
        "return document.querySelectorAll('#regressions-body tbody tr').length"
    ),
    "asv/index.html#bench_streams.StepTime.track_ratio": (
        "return document.querySelectorAll('#main-graph canvas').length"
    ),
}

SCHEMES = ("light", "dark")

#: Wide and narrow, in CSS pixels.
SIZES = {"wide": (1280, 900), "narrow": (390, 800)}

#: What asv's pages get in dark colours is a filter over the whole page, which keeps the
#: contrast of what is computed here for light colours.
CHECKS = Path(__file__).with_name("accessibility.js")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site that is served on this machine."""
    if (why := browser.missing()) is not None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, and {why}")
        pytest.skip(why)
    project = pages_project.make(tmp_path_factory.mktemp("project"))
    pictures = project / "results" / "box-a" / "pictures"
    pictures.mkdir()
    (pictures / "streams.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="20"/>'
    )
    built = tmp_path_factory.mktemp("built") / "site"
    site.build(built, project, lambda folder: pages_project.publish(project, folder))
    with preview.server(built, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium(address: str) -> Iterator[Browser]:
    with browser.start() as started:
        yield started


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    """The browser as a new visitor has it; fails a test after which something was amiss."""
    chromium.scheme("light")
    chromium.size(*SIZES["wide"])
    chromium.messages()
    chromium.hosts()
    yield chromium
    assert chromium.messages() == []
    assert chromium.hosts() <= browser.LOCAL


def show(page: Browser, address: str, name: str) -> None:
    page.open(address + name)
    page.wait(PAGES[name])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_without_an_error_or_a_request_that_leaves_this_machine(
    page: Browser, address: str, name: str, size: str
) -> None:
    page.size(*SIZES[size])
    show(page, address, name)
    assert page.run("return document.documentElement.lang") == "en"
    # Nothing but what scrolls by itself is wider than the screen.
    assert page.run("return document.documentElement.scrollWidth") <= SIZES[size][0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_images_controls_and_contrast_are_as_a_reader_needs_them(
    page: Browser, address: str, name: str, scheme: str
) -> None:
    page.scheme(scheme)
    show(page, address, name)
    for details in range(page.run("return document.querySelectorAll('details').length")):
        page.run("document.querySelectorAll('details')[arguments[0]].open = true", details)
    assert page.run(CHECKS.read_text()) == []


def test_the_check_for_readers_finds_what_is_amiss(page: Browser, address: str) -> None:
    show(page, address, "commits.html")
    page.run(
        "document.querySelector('main').innerHTML = "
        '\'<img src="asv/swallow.png"><button></button><input>'
        '<a href="index.html"></a><p class="pale">pale</p><table><tr><th>x</th></tr></table>'
        '<div role="button">not reached</div><p id="main"></p>\';'
        "document.querySelector('.pale').style.color = '#bbb';"
    )
    found = " | ".join(page.run(CHECKS.read_text()))
    for said in (
        "img without alt", "button without a name", "input without a name", "a without a name",
        "contrast", "th without scope", "cannot be focused", "id twice: main",
    ):  # fmt: skip
        assert said in found, (said, found)


def test_a_click_leads_from_the_start_page_to_a_graph(page: Browser, address: str) -> None:
    show(page, address, "index.html")
    page.click("#measured-machine-box-b-question-1 ~ .scroll a[href^='asv/']")
    page.wait(PAGES["asv/index.html#bench_streams.StepTime.track_ratio"])
    assert page.run("return document.getElementById('title').textContent") == (
        "bench_streams.StepTime.track_ratio"
    )
    state = page.run("return decodeURIComponent(location.hash)")
    assert "machine=box-b" in state
    assert "p-workload='decode R=1 K=0'" in state
    assert active(page, "workload") == ["decode R=1 K=0"]
    assert active(page, "machine") == ["box-b"]


def test_a_switched_parameter_changes_the_graph(page: Browser, address: str) -> None:
    page.open(
        address + "asv/index.html#bench_streams.StepTime.track_arm?machine=box-a"
        "&p-workload=%27decode%20R%3D1%20K%3D0%27"
    )
    page.wait(PAGES["asv/index.html#bench_streams.StepTime.track_ratio"])
    before = labels(page)
    page.run(f"{FIND} return button('workload', 'logits 256 x 128256 fp32').click()")
    page.until(lambda: len(active(page, "workload")) == 2, "two workloads")
    page.run(f"{FIND} return button('workload', 'decode R=1 K=0').click()")
    page.until(lambda: active(page, "workload") == ["logits 256 x 128256 fp32"], "one workload")
    page.until(lambda: labels(page) != before, "another axis")
    assert "p-workload='logits 256 x 128256 fp32'" in page.run(
        "return decodeURIComponent(location.hash)"
    )


def test_the_list_of_regressions_names_the_step_and_its_commits(
    page: Browser, address: str
) -> None:
    show(page, address, "asv/index.html#/regressions")
    rows = page.run(
        "return [...document.querySelectorAll('#regressions-body tbody tr')].map("
        "row => [...row.cells].map(cell => cell.textContent))"
    )
    steps = [row for row in rows if row[0].startswith("bench_streams.StepTime.track_arm(")]
    assert len(steps) == 2 * len(
        pages_project.listed()["bench_streams.StepTime.track_arm"]["params"][0]
    )
    assert {row[3] for row in steps} == {"1.50x"}
    assert all(row[0].startswith("bench_streams.StepTime.") for row in rows)
    # A click on its first cell leads to its graph.
    page.click("#regressions-body tbody td a")
    page.wait(PAGES["asv/index.html#bench_streams.StepTime.track_ratio"])


def test_the_commits_that_asv_names_are_on_their_page(page: Browser, address: str) -> None:
    show(page, address, "asv/index.html#/summarylist")
    href = page.run(
        "return [...document.querySelectorAll('#summarylist-body td.change-date a')]"
        ".map(a => a.href).find(Boolean)"
    )
    assert href.startswith(f"{address}commits.html#commit-")
    page.open(href)
    assert page.wait("return document.querySelector(':target') !== null")


def test_the_keyboard_reaches_the_content_and_every_control(page: Browser, address: str) -> None:
    show(page, address, "index.html")
    page.press(TAB)
    assert page.run("return document.activeElement.className") == "skip"
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press(ENTER)
    assert page.run("return document.activeElement.id") == "main"

    show(page, address, "asv/index.html#bench_streams.StepTime.track_ratio")
    page.press(TAB)
    page.press(ENTER)
    assert page.run("return document.activeElement.id") == "main"
    assert page.run("return document.querySelectorAll('#main-graph canvas').length")  # still there
    page.run("document.getElementById('log-scale').focus()")
    page.press(ENTER)
    page.wait("return location.hash.includes('y-axis-scale=log')")
    page.wait("return document.getElementById('log-scale').getAttribute('aria-pressed') === 'true'")


def test_the_dark_scheme_is_dark(page: Browser, address: str) -> None:
    page.scheme("dark")
    for name in PAGES:
        show(page, address, name)
        shot = page.command("Page.captureScreenshot")["data"]
        bright = page.run(
            "const done = arguments[0]; return createImageBitmap(new Blob([Uint8Array.from("
            "atob(done), c => c.charCodeAt(0))])).then(image => {"
            "const canvas = new OffscreenCanvas(image.width, image.height);"
            "const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);"
            "const data = context.getImageData(0, 0, image.width, image.height).data;"
            "let sum = 0; for (let i = 0; i < data.length; i += 4) sum += data[i];"
            "return sum / (data.length / 4) / 255; })",
            shot,
        )
        assert bright < 0.4, name


#: Finds a button in one of asv's panels by the panel's heading and its own text.
FIND = """
const panel = (heading) => [...document.querySelectorAll('#graphdisplay-navigation .panel')].find(
  panel => panel.querySelector('.panel-heading').textContent.trim() === heading);
const button = (heading, text) => [...panel(heading).querySelectorAll('a')].find(
  a => a.textContent.trim() === text);
"""


def active(page: Browser, heading: str) -> list[str]:
    """Give which buttons of a panel are on."""
    return page.run(
        f"{FIND} return [...panel(arguments[0]).querySelectorAll('a.active')]"
        ".map(a => a.textContent.trim())",
        heading,
    )


def labels(page: Browser) -> list[str]:
    """Give the labels of the graph's axis."""
    return page.run(
        "return [...document.querySelectorAll('#main-graph .flot-y-axis .flot-tick-label')]"
        ".map(label => label.textContent)"
    )

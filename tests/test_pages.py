"""The pages' pure parts, on a project whose results were written by hand."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import asv
import pytest
from asv.graph import Graph

from benchmarks.pages import (
    __main__,
    asv_page,
    bars,
    commits,
    gallery,
    links,
    machines,
    markup,
    preview,
    site,
    start,
    vendored,
    words,
)
from benchmarks.pages.errors import PagesError, VendoredError
from benchmarks.results import ResultsError, read
from benchmarks.runner.errors import RepositoryError
from tests import pages_project

#: asv's page as asv ships it.
ASV_PAGE = Path(asv.__file__).parent / "www" / "index.html"

HOSTILE = "<script>alert(1)</script>\"'&"


class Outline(HTMLParser):
    """What a test asks of a page: its elements with their attributes, its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> list[str]:
        return [a["id"] for _, a in self.elements if a.get("id")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages_project.make(tmp_path_factory.mktemp("project"))


@pytest.fixture
def results(project: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(project / "results", tmp_path / "results"))


def tell(results: Path) -> start.Story:
    return start.tell(results, frozenset(pages_project.listed()))


def only(results: Path, *kept: str) -> Path:
    for folder in results.iterdir():
        if folder.is_dir() and folder.name not in kept:
            shutil.rmtree(folder)
    return results


# What reaches a page


def test_every_text_is_escaped_unless_it_is_markup_already() -> None:
    made = markup.tag("p", HOSTILE, markup.tag("b", "<"), title=HOSTILE, class_="a", hidden=True)
    assert "<script>" not in made
    assert made.startswith('<p title="&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;"')
    assert made.endswith("<b>&lt;</b></p>")
    assert ' class="a" hidden' in made
    assert markup.tag("img", src="a", alt="") == '<img src="a" alt="">'
    assert markup.tag("a", title=None, hidden=False) == "<a></a>"
    assert markup.join(["<", markup.trusted("<br>")], " & ") == "&lt; &amp; <br>"


def test_a_template_takes_no_text_that_was_not_escaped(tmp_path) -> None:
    template = tmp_path / "page.html"
    template.write_text("<p>$what</p>")
    with pytest.raises(TypeError, match="what is not Markup"):
        markup.fill(template, what=HOSTILE)  # type: ignore[arg-type]
    assert markup.fill(template, what=markup.escape("<")) == "<p>&lt;</p>"
    with pytest.raises(KeyError):
        markup.fill(template, other=markup.escape(""))


def test_what_results_say_reaches_the_start_page_as_text(results) -> None:
    machine = results / "box-a"
    for path in machine.glob("facts-*"):
        path.write_text(pages_project.facts_lines("box-a", driver=HOSTILE, kernel=HOSTILE))
    fields = json.loads((machine / "machine.json").read_text())
    (machine / "machine.json").write_text(json.dumps({**fields, "cpu": HOSTILE}))
    for path in machine.glob("*-inherit-*"):
        path.write_text(path.read_text().replace("decode R=1 K=0", "<img src=x onerror=y>"))
    (machine / "pictures").mkdir()
    (machine / "pictures" / "streams.svg").write_text("<svg/>")
    (machine / "REPORT.md").write_text(f"![{HOSTILE}](pictures/streams.svg)")
    page = start.page(tell(results))
    outline = Outline(page)
    assert not outline.all("script")
    assert all(image["src"].startswith("pictures/") for image in outline.all("img"))
    assert not any(name.startswith("on") for _, a in outline.elements for name in a)
    assert page.count("&lt;script&gt;alert(1)") >= 3
    assert "<img src=x onerror=y>" in outline.text


def test_a_commits_message_reaches_the_list_as_text(project, tmp_path) -> None:
    hashes = pages_project._git(project, "log", "--format=%H").splitlines()
    index = {
        "revision_to_hash": {str(i): h for i, h in enumerate(reversed(hashes))},
        "revision_to_date": {str(i): 1e12 for i in range(len(hashes))},
    }
    (tmp_path / "index.json").write_text(json.dumps(index))
    found = commits.read(tmp_path, project / "results", project)
    assert [commit.hash for commit in found] == hashes  # the newest first
    assert found[0].machines == tuple(sorted(pages_project.MACHINES))
    page = commits.page(found)
    outline = Outline(page)
    assert not outline.all("script")
    assert not outline.all("b")
    assert "<script>alert('0')</script>" in outline.text
    for short in (hashes[0][:8], hashes[0]):  # asv points to either
        assert f"commit-{short}" in outline.ids()


def test_commits_without_an_index_say_what_to_run(tmp_path) -> None:
    with pytest.raises(PagesError, match="run `make pages`"):
        commits.read(tmp_path, tmp_path, tmp_path)


# The start page


def test_the_start_page_answers_each_question_of_each_machine_in_a_sentence_and_a_table(
    results,
) -> None:
    story = tell(results)
    assert [run.machine.name for run in story.measured] == ["box-a", "box-b"]
    outline = Outline(start.page(story))
    text = " ".join(outline.text.split())
    assert "Step time with two streams is 0.75 of that with one stream" in text
    assert "Step time: two streams against one stream (measured)" in text
    assert "Wake-up latency with hybrid is 0.5 of that with block" in text
    assert "Measured on NVIDIA Alpha (box-a)" in text
    assert "0.75 [0.75, 0.75]" in text
    assert "3.0" not in outline.text.split("one stream (measured)")[0]


def test_measured_and_modelled_stand_apart_and_say_which_they_are(results) -> None:
    page = start.page(tell(results))
    measured, modelled = page.split('id="modelled"')
    measured = measured.split('id="measured"')[1]
    assert "(measured)" in measured
    assert "(modelled)" not in measured
    assert "(modelled)" in modelled
    assert "(measured)" not in modelled
    # A machine without a GPU has no measured rows.
    assert "nogpu-x86-2" not in measured.split("Machines compared")[0]
    assert "Modelled rows of nogpu-x86-2" in modelled


def test_machines_are_compared_by_their_measured_ratios_where_there_are_several(results) -> None:
    page = start.page(tell(results))
    assert "Machines compared" in page
    section = page.split('id="compared"')[1].split("</section>")[0]
    assert [name in section for name in ("box-a", "box-b", "nogpu")] == [True, True, False]
    assert "0.75 [" in section  # box-a
    assert "1.35 [" in section  # box-b, slower from the step on
    assert "modelled" not in section
    one = start.page(tell(only(results, "box-a", "nogpu-x86-2")))
    assert "Machines compared" not in one


def test_without_a_gpu_the_page_says_that_nothing_was_measured(results) -> None:
    page = start.page(tell(only(results, "nogpu-x86-2")))
    outline = Outline(page)
    assert "Nothing here was measured" in outline.text
    assert "(measured)" not in outline.text
    assert all("open" in details for details in outline.all("details"))


def test_a_machines_facts_are_shown_and_a_throttled_run_is_named(results) -> None:
    for path in (results / "box-a").glob("facts-*"):
        path.write_text(
            pages_project.facts_lines(
                "box-a", host="vm", clock_reasons="clocks_event_reason_hw_thermal_slowdown"
            )
        )
    text = " ".join(Outline(start.page(tell(results))).text.split())
    assert "PCIe 5 × 16" in text
    assert "virtual machine" in text
    assert "To be measured again: the GPU was held back before the run" in text


def test_facts_that_changed_during_a_run_are_both_shown(tmp_path) -> None:
    folder = tmp_path / "box-a"
    pages_project.write_machine(folder, None)
    lines = [{"when": "before", "clock_sm": "345 MHz"}, {"when": "after", "clock_sm": "1980 MHz"}]
    (folder / "facts-aaaaaaaa.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    found = machines.read(folder, "a" * 40)
    assert found.facts["clock of the multiprocessors"] == "345 MHz before, 1980 MHz after"
    assert found.device == "no GPU"


@pytest.mark.parametrize("content", ['{"when": "befo', "[1]", "\xff"])
def test_facts_that_are_cut_are_refused_by_name(tmp_path, content: str) -> None:
    folder = tmp_path / "box-a"
    pages_project.write_machine(folder, None)
    (folder / "facts-aaaaaaaa.jsonl").write_bytes(content.encode("latin-1"))
    with pytest.raises(PagesError, match=r"facts-aaaaaaaa\.jsonl"):
        machines.read(folder, "a" * 40)


def test_pictures_are_shown_with_their_description_where_there_are_any(results) -> None:
    assert not Outline(start.page(tell(results))).all("img")
    folder = results / "box-a" / "pictures"
    folder.mkdir()
    for name in ("waits.svg", "streams.svg", "other.svg", "notes.txt", "streams.png"):
        (folder / name).write_text("<svg/>")
    (results / "box-a" / "REPORT.md").write_text(
        "![Bars. Much less.](pictures/streams.svg)\n![../x](pictures/../../secret.svg)\n"
    )
    story = tell(results)
    page = start.page(story)
    images = Outline(page).all("img")
    assert images[0] == {
        "src": "pictures/box-a/streams.svg",
        "alt": "Bars. Much less.",
        "loading": "lazy",
    }
    assert sorted(image["src"] for image in images) == [
        f"pictures/box-a/{name}.svg" for name in ("other", "streams", "waits")
    ]
    assert all(image["alt"] for image in images)
    at = [
        page.index(text) for text in ("stream or two?</h3>", "streams.svg", "while waiting?</h3>")
    ]
    assert at == sorted(at)
    target = results / "site"
    gallery.copy_into(target, start.pictures(story))
    assert (target / "pictures" / "box-a" / "streams.svg").is_file()


def test_the_page_can_be_walked_by_keyboard_and_read_by_a_screen_reader(results) -> None:
    outline = Outline(start.page(tell(results)))
    assert outline.all("html") == [{"lang": "en"}]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(outline.all(landmark)) == 1
    assert outline.elements[[t for t, _ in outline.elements].index("body") + 1] == (
        "a", {"class": "skip", "href": "#main"}
    )  # fmt: skip
    assert {cell.get("scope") for cell in outline.all("th")} == {"col", "row"}
    assert len(outline.all("caption")) == len(outline.all("table"))
    ids = outline.ids()
    assert len(ids) == len(set(ids))
    for link in outline.all("a"):
        target = link["href"]
        assert not target.startswith("#") or target[1:] in ids, target
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_rows_link_to_their_graph_by_asvs_own_names(results) -> None:
    (gain, *_) = [g for g in read(results) if g.metric == "step time" and g.machine == "box-a"]
    assert links.graph(gain) == (
        "asv/index.html#bench_streams.StepTime.track_ratio?machine=box-a"
        "&p-workload=%27decode%20R%3D1%20K%3D0%27"
        "&p-comparison=%27two%20streams%20%2F%20one%20stream%27"
    )
    hrefs = [a["href"] for a in Outline(start.page(tell(results))).all("a")]
    assert links.graph(gain) in hrefs
    unlisted = start.page(start.tell(results, frozenset()))
    assert "track_ratio?" not in unlisted


def test_the_start_page_names_no_other_host(results) -> None:
    page = start.page(tell(results))
    assert not re.search(r"https?:|//[a-z]", page)
    assert "default-src 'none'" in page


# Words and bars


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (None, "–"),
        (0.591, "41 % less"),
        (0.995, "0.5 % less"),
        (1.07, "7 % more"),
        (1.0, "the same"),
        (4.957, "4.96 times as much"),
        (0.0233, "1/42.9 of it"),
        (-0.1, "less than nothing"),
    ],
)
def test_a_change_is_said_in_plain_words(ratio: float | None, said: str) -> None:
    assert words.change(ratio) == said


def test_verdicts_are_counted_and_none_is_left_out(results) -> None:
    rows = [gain for gain in read(results) if gain.machine == "box-b" and not gain.modelled]
    faster = sum(row.verdict == "faster" for row in rows)
    slower = sum(row.verdict == "slower" for row in rows)
    assert faster + slower == len(rows)
    assert words.verdicts(rows) == f"{len(rows)} rows: {faster} faster, {slower} slower."
    assert words.verdicts(rows[:1]) in ("1 row: 1 faster.", "1 row: 1 slower.")


def test_a_bar_ends_at_the_edge_and_is_hidden_from_screen_readers() -> None:
    beyond = bars.bar(1e-6, 1e-7, 1e-5)
    assert 'x="0.0"' in beyond
    assert 'width="60.0"' in beyond
    assert 'aria-hidden="true"' in beyond
    assert 'class="more"' in bars.bar(2.0, 1.9, 2.1)
    assert bars.bar(-1.0, -2.0, 1.0)  # a ratio of a difference may be negative


# asv's page and what it loads


def test_asvs_page_is_rewritten_to_load_only_what_is_shipped() -> None:
    page = asv_page.rewrite(ASV_PAGE.read_text())
    assert not re.search(r"https?://", page)
    outline = Outline(page)
    shipped = {f"../{vendored.SITE_FOLDER}/{item.path}" for item in vendored.manifest()}
    own = {asv_page.SCRIPT, asv_page.STYLE}
    www = {path.name for path in ASV_PAGE.parent.iterdir()}
    loaded = [script["src"] for script in outline.all("script")]
    loaded += [link["href"] for link in outline.all("link") if link.get("rel") == "stylesheet"]
    assert all(path in shipped | own | www for path in loaded)
    assert len(loaded) == len(set(loaded))
    assert {f"../vendor/{path}" for path in asv_page.loaded()} <= set(loaded)
    assert outline.all("html") == [{"lang": "en"}]
    assert len(outline.all("main")) == len(outline.all("nav")) == 1
    assert all(image.get("alt") for image in outline.all("img"))
    assert "onerror" not in page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jquery-3.3.1.min.js", "jquery-9.min.js", "loads https.*jquery-9.min.js"),
        ('id="overview"', 'id="view"', "has 0 places"),
        ("<h4", '<a href="https://elsewhere.example/">x</a><h4', "still names https://elsewhere"),
    ],
)
def test_a_page_of_another_asv_is_refused(old: str, new: str, message: str) -> None:
    page = ASV_PAGE.read_text()
    assert old in page
    with pytest.raises(PagesError, match=message):
        asv_page.rewrite(page.replace(old, new))


def test_the_shipped_scripts_are_the_ones_of_their_packages(tmp_path) -> None:
    copied = vendored.copy_into(tmp_path)
    manifest = json.loads((vendored.FOLDER / vendored.MANIFEST).read_text())
    assert set(manifest) == {
        "jquery", "flot", "flot-orderbars", "bootstrap", "blueimp-md5", "stupid-table-plugin"
    }  # fmt: skip
    assert all((tmp_path / path).is_file() for path in copied)
    assert {f"vendor/{path}" for path in asv_page.loaded()} <= set(copied)
    for package, entry in manifest.items():
        assert entry["integrity"].startswith("sha512-")
        assert any("LICENSE" in name or name == "package.json" for name in entry["files"]), package
    lying = {path.relative_to(vendored.FOLDER).as_posix() for path in vendored.FOLDER.rglob("*.*")}
    assert lying - {"manifest.json", ".gitattributes"} == {
        item.path for item in vendored.manifest() if "." in item.name
    }


def test_an_altered_or_missing_script_is_refused(tmp_path) -> None:
    folder = Path(shutil.copytree(vendored.FOLDER, tmp_path / "vendor"))
    path = folder / "jquery" / "jquery.min.js"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(VendoredError, match=r"jquery\.min\.js is not the file of its package"):
        vendored.copy_into(tmp_path / "site", folder)
    path.unlink()
    with pytest.raises(VendoredError, match="check it out again"):
        vendored.copy_into(tmp_path / "site", folder)


# The whole site


def test_the_whole_site_is_built_and_names_no_other_host(project, tmp_path) -> None:
    target = tmp_path / "site"
    pages = site.build(target, project, lambda folder: pages_project.publish(project, folder))
    names = [path.relative_to(target).as_posix() for path in pages]
    assert names == ["asv/index.html", "commits.html", "index.html"]
    for path in pages:
        assert not re.search(r"https?://", path.read_text())
        for tag, attributes in Outline(path.read_text()).elements:
            for name in ("src", "href"):
                if (value := attributes.get(name)) and not value.startswith("#"):
                    assert (path.parent / value.partition("#")[0]).exists(), (tag, value)
    index = json.loads((target / "asv" / "index.json").read_text())
    for benchmark in index["benchmarks"]:
        for state in index["graph_param_list"]:  # asv's page asks for each of them
            path = target / "asv" / Graph.get_file_path(state, benchmark)
            assert path.with_name(f"{path.name}.json").is_file()
    assert index["show_commit_url"] == "../commits.html#commit-"
    feed = (target / "asv" / "regressions.xml").read_text()
    assert "index.html#bench_streams.StepTime" in feed


@pytest.mark.parametrize("status", [1, 2])
def test_a_site_is_not_called_built_when_asv_failed(project, tmp_path, status: int) -> None:
    with pytest.raises(PagesError, match=f"status {status}"):
        site.build(tmp_path / "site", project, lambda folder: status)


def test_a_folder_with_something_else_is_not_deleted(project, tmp_path) -> None:
    precious = tmp_path / "site" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("kept")
    with pytest.raises(PagesError, match="holds something else than a site"):
        site.build(precious.parent, project, lambda folder: 0)
    assert precious.read_text() == "kept"
    with pytest.raises(PagesError, match="no site can be built in"):
        site.build(precious, project, lambda folder: 0)
    precious.unlink()
    for _ in range(2):  # an empty folder, and then one that was built here
        with pytest.raises(PagesError, match="asv could not publish"):
            site.build(precious.parent, project, lambda folder: 3)


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"machine": "other"}'])
def test_a_machines_file_that_is_cut_or_anothers_is_named(results, content) -> None:
    (results / "odd").mkdir()
    (results / "odd" / "machine.json").write_text(content)
    with pytest.raises(ResultsError, match=r"odd.machine\.json is"):
        start.tell(results, frozenset())


def test_without_results_the_build_says_what_to_run(tmp_path, project) -> None:
    (tmp_path / "results").mkdir()
    with pytest.raises(PagesError, match=r"benchmarks\.json is missing"):
        site.build(tmp_path / "site", tmp_path)
    (tmp_path / "results" / "benchmarks.json").write_text("{}")
    with pytest.raises(PagesError, match="run `make bench` first"):
        site.build(tmp_path / "site", tmp_path)
    shutil.copytree(project / "results", tmp_path / "results", dirs_exist_ok=True)
    with pytest.raises(RepositoryError, match="no git checkout"):
        site.build(tmp_path / "site", tmp_path)
    assert issubclass(ResultsError, ValueError)


# The preview


def test_the_preview_serves_the_site_to_this_machine_only(tmp_path) -> None:
    import threading

    (tmp_path / "index.html").write_text("hello")
    with preview.server(tmp_path, 0) as found:
        assert found.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{found.server_port}"
        try:
            with urlopen(f"{base}/") as answer:
                assert answer.read() == b"hello"
                assert answer.headers["Cache-Control"] == "no-store"
            with pytest.raises(HTTPError) as refused:
                urlopen(f"{base}/../../etc/passwd")
            refused.value.close()
            assert refused.value.code == 404
        finally:
            found.shutdown()
            thread.join()


def test_the_preview_of_no_site_says_what_to_run(tmp_path, capsys) -> None:
    assert __main__.main(["preview", "--site", str(tmp_path)]) == 1
    assert "build it with `make pages`" in capsys.readouterr().err


@pytest.mark.parametrize("port", [-1, 99_999])
def test_a_number_that_is_no_port_is_refused(tmp_path, port: int) -> None:
    (tmp_path / "index.html").write_text("")
    with pytest.raises(PagesError, match="no port"):
        preview.server(tmp_path, port)


def test_a_port_that_is_taken_is_named(tmp_path) -> None:
    (tmp_path / "index.html").write_text("hello")
    with (
        preview.server(tmp_path, 0) as found,
        pytest.raises(PagesError, match=str(found.server_port)),
    ):
        preview.server(tmp_path, found.server_port)

"""report.html in headless Chromium: no console error, no request, plots drawn, filter works.

Chromium is driven through its DevTools protocol over two pipes (file descriptors 3 and 4), so
that no port is opened and no driver is needed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers_report import write_again

pytestmark = pytest.mark.extra

SAMPLE = Path(__file__).parents[1] / "data" / "study_sample"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
TIMEOUT_S = 60.0
DRAWN = """new Promise((done) => {
  const data = document.getElementById("page-data");
  const drawn = () => !data || document.documentElement.dataset.drawn;
  const look = () => (drawn() ? done() : setTimeout(look, 20));
  look();
})"""
HOSTILE = "<script>alert(1)</script>"


class Browser:
    """One Chromium with one page; `problems` and `requests` collect what it reports."""

    def __init__(self, profile: str) -> None:
        chromium = shutil.which("chromium")
        assert chromium, "no chromium: run tests/extra/install.sh"
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        self.number = 0
        self.received = b""
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        self.log = os.open(os.path.join(profile, "log"), os.O_WRONLY | os.O_CREAT)
        self.pid = os.posix_spawn(
            chromium,
            [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, self.log, 1),
                (os.POSIX_SPAWN_DUP2, self.log, 2),
                (os.POSIX_SPAWN_DUP2, theirs[0], 3),
                (os.POSIX_SPAWN_DUP2, theirs[1], 4),
            ],
            setpgroup=0,
        )
        for end in (to_browser, from_browser, *theirs):
            os.close(end)
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one DevTools command."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writer, data) :]
        wanted = self.number
        while True:
            answer = self._read()
            if answer.get("id") == wanted:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.reader], [], [], deadline - time.monotonic())
            assert ready, "chromium does not answer"
            part = os.read(self.reader, 1 << 20)
            assert part, "chromium ended"
            self.received += part
        line, _, self.received = self.received.partition(b"\0")
        event = json.loads(line)
        self._note(event.get("method"), event.get("params", {}))
        return event

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.problems.append(str(params["entry"]))
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {params['message']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, url: str, width: int = 1280, height: int = 2400) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.problems.clear()
        self.requests.clear()
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self._read()
        self.settle()

    def settle(self) -> None:
        """Waits until every picture is drawn, Plotly's promises and two frames are over."""
        self.run(DRAWN)
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path, full: bool = False) -> None:
        size = self.run("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        extra = {"clip": clip, "captureBeyondViewport": True} if full else {}
        data = self.call("Page.captureScreenshot", format="png", **extra)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for end in (self.reader, self.writer, self.log):
            os.close(end)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    profile = tempfile.mkdtemp(prefix="dse-chromium-")
    browser = Browser(profile)
    yield browser
    browser.close()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of the sample's report, with a chip and a constraint of hostile names."""
    folder = tmp_path_factory.mktemp("study")
    front = json.loads((SAMPLE / "front.json").read_text())
    study = json.loads((SAMPLE / "study.json").read_text())
    for item in front["items"][:3]:
        item["model"]["name"] = HOSTILE
    study["title"] = HOSTILE
    study["constraint_tallies"][0]["constraint"] = HOSTILE
    (folder / "front.json").write_text(json.dumps(front))
    (folder / "study.json").write_text(json.dumps(study))
    write_again(folder)
    return (folder / "report.html").as_uri()


MARKS = "document.querySelectorAll('#front-plot .scatterlayer .trace .points path').length"
ROWS = "document.querySelectorAll('#rows tbody tr').length"
EMPTY_PLOTS = """[...document.querySelectorAll('.plot')]
  .filter(plot => !plot.querySelector('.points path')).map(plot => plot.id)"""

MISFITS = """[...document.querySelectorAll('.plot')].filter(plot => Math.abs(
  plot.querySelector('.main-svg').getBoundingClientRect().width - plot.clientWidth) > 1
  ).map(plot => plot.id)"""


def items() -> list[dict[str, Any]]:
    return json.loads((SAMPLE / "front.json").read_text())["items"]


@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_quiet_and_drawn(browser: Browser, report: str, width: int) -> None:
    browser.open(report, width)
    assert browser.run(EMPTY_PLOTS) == []
    assert browser.run("document.querySelectorAll('.plot').length") == 5
    assert browser.run(MISFITS) == []
    assert browser.run(ROWS) == len(items())
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.title") == HOSTILE
    assert browser.problems == []
    local = [url for url in browser.requests if not url.startswith(("data:", "blob:"))]
    assert local == [report]


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_first_screen_has_the_answer(browser: Browser, report: str, width: int, height: int):
    browser.open(report, width, height)
    bottoms = browser.run(
        """['.lead', '#opening-plot', '#table-opening', '.opening + p'].map(
        name => document.querySelector('#answer').querySelector(name).getBoundingClientRect().bottom
        )"""
    )
    assert max(bottoms) <= height
    cut = """[...document.querySelectorAll('#answer *')].filter(
      node => node.getBoundingClientRect().right > innerWidth && !node.closest('svg')).length"""
    assert browser.run(cut) == 0
    assert browser.problems == []


def test_a_row_of_the_first_table_shows_its_design(browser: Browser, report: str) -> None:
    browser.open(report)
    browser.run("document.querySelectorAll('#table-opening tbody tr')[0].click()")
    browser.settle()
    found = json.loads((SAMPLE / "study.json").read_text())["decisions"]["families"]
    point = found[0]["point"]
    assert browser.run("document.querySelector('#selected h3').textContent") == f"Point {point}"
    assert browser.run("document.querySelectorAll('#opening-plot .annotation').length") == 0


def test_filter_narrows_pictures_and_table(browser: Browser, report: str) -> None:
    browser.open(report)
    before = browser.run(MARKS)
    chip = items()[0]["deployment"]["chip"]
    kept = sum(item["deployment"]["chip"] != chip for item in items())
    browser.run(f"document.querySelector('#filters input[value=\"{chip}\"]').click()")
    browser.settle()
    assert browser.run(ROWS) == kept < len(items())
    assert browser.run(MARKS) < before
    assert f"{kept} of {len(items())} points" in browser.run(
        "document.getElementById('count').textContent"
    )
    browser.run("document.getElementById('reset').click()")
    browser.settle()
    assert browser.run(ROWS) == len(items())
    assert browser.run(MARKS) == before
    browser.run("document.querySelectorAll('#filters input').forEach(box => box.click())")
    browser.settle()
    assert browser.run(ROWS) == 0
    assert "No point" in browser.run("document.getElementById('count').textContent")
    assert browser.problems == []


def test_a_limit_narrows_the_front_and_the_address_keeps_the_view(
    browser: Browser, report: str
) -> None:
    browser.open(report)
    metric = "predicted_loss"
    values = sorted({item["metrics"][metric] for item in items()}, reverse=True)
    slider = f"document.querySelector('#limits input[data-key={metric}]')"
    middle = len(values) // 2
    browser.run(f"{slider}.value = {middle}; {slider}.dispatchEvent(new Event('change'))")
    browser.settle()
    kept = sum(item["metrics"][metric] <= values[middle] for item in items())
    assert abs(browser.run(ROWS) - kept) <= 2
    assert browser.run(ROWS) < len(items())
    browser.run("document.querySelectorAll('#rows tbody tr')[1].click()")
    browser.run("document.getElementById('keep').click()")
    browser.run("document.querySelectorAll('#rows tbody tr')[0].click()")
    browser.settle()
    title = browser.run("document.querySelector('#selected h3').textContent")
    assert title.count("Point") == 2
    lines = "[...document.querySelectorAll('#selected dl div')]"
    assert browser.run(f"{lines}.every((line) => line.children.length === 3)")
    rows, address = browser.run(ROWS), browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    assert browser.run(ROWS) == rows
    assert browser.run(f"Number({slider}.value)") == middle
    assert browser.run("document.querySelector('#selected h3').textContent") == title
    browser.run("document.getElementById('reset').click()")
    browser.settle()
    assert browser.run(ROWS) == len(items())
    browser.open("about:blank")
    browser.open(f"{report}#x=<img>&off.chip=nothing&end.__proto__=1&end.{metric}=x&point=-3")
    assert browser.run(ROWS) == len(items())
    assert browser.problems == []


def drag(browser: Browser, key: str, start: float, end: float) -> None:
    """Drags along an axis of the parallel coordinates, from share `start` of it to `end`."""
    box = browser.run(
        f"""(() => {{ const hit = document.querySelector('.axis[data-key={key}] .hit');
        hit.scrollIntoView({{block: 'center'}}); const box = hit.getBoundingClientRect();
        return [box.x + 16, box.y + box.height / 2, box.width - 32]; }})()"""
    )
    for kind, at in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
        browser.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=box[0] + at * box[2],
            y=box[1],
            button="left",
            buttons=1,
            clickCount=1,
        )
    browser.settle()


LINES = "document.querySelectorAll('#parallel-plot .lines path, #parallel-plot .named path').length"


@pytest.mark.parametrize("width", [1280, 390])
def test_brushed_axes_filter_everything(browser: Browser, report: str, width: int) -> None:
    browser.open(report, width)
    assert browser.run(LINES) == len(items())
    metric = "predicted_loss"
    values = [item["metrics"][metric] for item in items()]
    middle = (min(values) + max(values)) / 2
    marks = browser.run(MARKS)
    drag(browser, metric, 0.0, 0.5)
    kept = sum(value <= middle for value in values)
    assert browser.run(LINES) == browser.run(ROWS)
    assert abs(browser.run(ROWS) - kept) <= 2
    assert browser.run(MARKS) < marks
    before = browser.run(ROWS)
    chip = next(i["deployment"]["chip"] for i in items() if i["metrics"][metric] < middle)
    browser.run(f"document.querySelector('#filters input[value=\"{chip}\"]').click()")
    browser.settle()
    assert browser.run(LINES) == browser.run(ROWS) < before
    gone = sum(item["deployment"]["chip"] == chip for item in items())
    lines = browser.run("document.querySelectorAll('#parallel-plot path').length")
    assert lines == len(items()) - gone
    browser.run("document.querySelector('#parallel .reset').click()")
    browser.settle()
    assert browser.run(LINES) == browser.run(ROWS) == len(items())
    drag(browser, metric, 0.0, 0.5)
    drag(browser, metric, 0.7, 0.7)
    assert browser.run(ROWS) == len(items())
    assert browser.problems == []


def test_a_line_selects_its_point(browser: Browser, report: str) -> None:
    browser.open(report)
    line = "document.querySelector('#parallel-plot .lines path')"
    browser.run(f"{line}.dispatchEvent(new MouseEvent('click'))")
    browser.settle()
    picked = browser.run("document.querySelector('#rows tr.picked').dataset.point")
    assert browser.run("document.querySelector('#selected h3').textContent") == f"Point {picked}"
    assert browser.run("document.querySelectorAll('#parallel-plot .picked').length") == 1


COPIED = """new Promise(done => {{
  const data = new DataTransfer();
  document.execCommand = () => {{
    document.dispatchEvent(new ClipboardEvent('copy', {{clipboardData: data}})); return true; }};
  document.querySelector({button!r}).click();
  done(data.getData('text/plain')); }})"""


def test_tables_copy_as_numbers(browser: Browser, report: str) -> None:
    browser.open(report)
    tables = browser.run("document.querySelectorAll('table:not(#table-opening)').length")
    assert browser.run("document.querySelectorAll('button.copy').length") == tables
    text = browser.run(COPIED.format(button="#constraints button.copy"))
    lines = [line.split("\t") for line in text.strip().split("\n")]
    assert {len(line) for line in lines} == {len(lines[0])}
    study = json.loads((SAMPLE / "study.json").read_text())
    most = max(row["violated"] for row in study["constraint_tallies"])
    assert most in [float(cell) for cell in lines[1] if cell.isdigit()]
    whole = browser.run(COPIED.format(button="#table button.copy"))
    assert len(whole.strip().split("\n")) == 1 + len(items())
    assert browser.problems == []


def test_paper_is_light_unfolded_and_narrow(browser: Browser, report: str) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", features=dark)
    browser.open(report)
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(paper) == "rgb(18, 23, 28)"
    browser.call("Emulation.setEmulatedMedia", media="print", features=dark)
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    browser.settle()
    assert browser.run(paper) == "rgb(255, 255, 255)"
    assert browser.run(ROWS) == 40
    wide = """Math.max(...[...document.querySelectorAll('.plot svg, #parallel-plot svg, table')]
      .map(node => node.getBoundingClientRect().right)
      ) - document.body.getBoundingClientRect().left"""
    assert browser.run(wide) <= 716
    assert browser.run(MISFITS) == []
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    assert browser.problems == []


def test_table_sorts_and_a_click_selects(browser: Browser, report: str) -> None:
    browser.open(report)
    metric = "tpot_s"
    first = "document.querySelector('#rows tbody tr').dataset.point"
    heading = f"document.querySelector('#rows thead button[data-key={metric}]').click()"
    order = sorted(items(), key=lambda item: item["metrics"][metric])
    browser.run(heading)
    assert browser.run(first) == str(order[0]["point"])
    browser.run(heading)
    assert browser.run(first) == str(order[-1]["point"])
    spot = browser.run(
        """(() => { const mark = document.querySelector('#front-plot .points path');
        mark.scrollIntoView({block: 'center'}); const box = mark.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2]; })()"""
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.call(
            "Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1
        )
        browser.settle()
    assert browser.run("document.querySelectorAll('#front-plot .hovertext').length") >= 1
    picked = browser.run("document.querySelector('#rows tr.picked')?.dataset.point")
    assert picked is not None
    assert browser.run("document.querySelector('#selected h3').textContent") == f"Point {picked}"
    assert browser.problems == []


def test_five_thousand_points_stay_quick_and_small(browser: Browser, tmp_path: Path) -> None:
    front = json.loads((SAMPLE / "front.json").read_text())
    few = front["items"]
    front["items"] = [{**few[i % len(few)], "point": i + 1, "names": []} for i in range(5000)]
    (tmp_path / "front.json").write_text(json.dumps(front))
    shutil.copy(SAMPLE / "study.json", tmp_path)
    write_again(tmp_path)
    browser.open((tmp_path / "report.html").as_uri())
    assert browser.run(ROWS) == 200
    assert 1000 < browser.run(MARKS) <= 1600
    assert "of them" in browser.run("document.getElementById('count').textContent")
    assert "front.csv has all 5,000" in browser.run(
        "document.getElementById('table-note').textContent"
    )
    assert browser.problems == []


@pytest.mark.parametrize("kind", ["one objective", "fixed model"])
def test_odd_studies_are_quiet_too(browser: Browser, tmp_path: Path, kind: str) -> None:
    front = json.loads((SAMPLE / "front.json").read_text())
    study = json.loads((SAMPLE / "study.json").read_text())
    if kind == "one objective":
        study["objectives"] = study["objectives"][1:2]
        study["chosen"] = {"cheapest": study["chosen"]["cheapest"]}
        study["decisions"]["families"][0]["point"] = study["chosen"]["cheapest"]["point"]
        front["items"] = [
            i for i in front["items"] if i["point"] == study["chosen"]["cheapest"]["point"]
        ]
    else:
        study["objectives"], study["law"] = study["objectives"][1:], None
        for item in front["items"]:
            item["metrics"]["predicted_loss"] = None
            item["model"] = {"name": "llama-3-70b", "blocks": []}
            item["model"] |= {"hidden_size": 8192, "num_hidden_layers": 80}
    (tmp_path / "front.json").write_text(json.dumps(front))
    (tmp_path / "study.json").write_text(json.dumps(study))
    write_again(tmp_path)
    browser.open((tmp_path / "report.html").as_uri())
    assert browser.run(EMPTY_PLOTS) == []
    assert browser.problems == []


def test_the_harness_sees_errors_and_requests(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<script>console.error('no'); fetch('http://127.0.0.1:9/').catch(() => 0)</script>"
    )
    browser.open(page.as_uri())
    assert any("no" in problem for problem in browser.problems)
    assert "http://127.0.0.1:9/" in browser.requests

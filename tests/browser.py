"""A headless Chromium, driven through chromedriver's W3C WebDriver protocol.

Only what the tests of the pages need, on the standard library. What the browser logs and
what it asks the network for is kept from its start on.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: Names of the two programs.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"

#: The browser does nothing of its own accord, and runs as root in a container too.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)

#: Seconds to wait for a page, for the driver to start, and for one answer.
PATIENCE = 20.0
START_PATIENCE = 60.0
ANSWER_PATIENCE = 90.0

#: Seconds between two looks.
PAUSE = 0.05

#: Hosts that are this machine.
LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})

#: Schemes of addresses that ask no host for anything.
_INNER = frozenset({"data", "blob", "about", "chrome"})

#: How WebDriver names an element in JSON.
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class BrowserError(RuntimeError):
    """The browser could not do what was asked; the message is the driver's."""


def missing() -> str | None:
    """Say which program is not there; None when both are."""
    if shutil.which(DRIVER) is None:
        return f"{DRIVER} is not installed (Debian: apt-get install chromium chromium-driver)"
    if _browser() is None:
        return f"none of {', '.join(BROWSERS)} is installed"
    return None


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def start() -> Iterator[Browser]:
    """Start a driver and a browser with a new, empty profile; end both."""
    with tempfile.TemporaryDirectory(
        prefix="asyncout-browser-", ignore_cleanup_errors=True
    ) as profile:
        log = Path(profile) / "driver.log"
        with log.open("wb") as output:
            driver = subprocess.Popen([DRIVER, "--port=0"], stdout=output, stderr=output)
            try:
                browser = Browser(f"http://127.0.0.1:{_port(driver, log)}", Path(profile) / "user")
                try:
                    yield browser
                finally:
                    browser.quit()
            finally:
                driver.terminate()
                driver.wait(timeout=ANSWER_PATIENCE)


def _port(driver: subprocess.Popen[bytes], log: Path) -> int:
    """Read the port that the driver has chosen."""
    said = "started successfully on port "
    limit = time.monotonic() + START_PATIENCE
    while time.monotonic() < limit and driver.poll() is None:
        text = log.read_text(errors="replace")
        if said in text:
            return int(text.partition(said)[2].split(".")[0])
        time.sleep(PAUSE)
    raise BrowserError(f"{DRIVER} did not start: {log.read_text(errors='replace')}")


class Browser:
    """One browser with one tab."""

    def __init__(self, driver: str, profile: Path) -> None:
        options = {
            "binary": _browser(),
            "args": [*FLAGS, f"--user-data-dir={profile}"],
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._driver = driver
        value = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{value['sessionId']}"
        self.size(1280, 900)

    def quit(self) -> None:
        """Close the browser."""
        self._call("DELETE", self._session)

    def open(self, address: str) -> None:
        """Open an address and wait for its page; a fragment alone loads the page anew."""
        self._post("/url", {"url": "about:blank"})
        self._post("/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page; give what it returns."""
        return self._post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: Any) -> Any:
        """Wait until a script gives something true, and for the next frame, and give it.

        A page's own script may answer a change in the frame that follows it. Frame callbacks
        run in the order in which they were asked for, so that answer comes before this one.
        """
        value = self.until(lambda: self.run(script, *arguments), script)
        self.run("return new Promise(done => requestAnimationFrame(() => done(true)))")
        return value

    def until(self, look: Callable[[], Any], what: str) -> Any:
        """Wait until a look gives something true, and give it."""
        limit = time.monotonic() + PATIENCE
        while not (value := look()):
            if time.monotonic() > limit:
                raise BrowserError(f"waited {PATIENCE} s in vain for: {what}")
            time.sleep(PAUSE)
        return value

    def click(self, selector: str) -> None:
        """Click the first element that a CSS selector finds, as a user does: scrolled to."""
        found = self._post("/element", {"using": "css selector", "value": selector})
        self._post(f"/element/{found[_ELEMENT]}/click", {})

    def press(self, key: str) -> None:
        """Press a key, such as "\\ue004" for Tab or "\\ue007" for Enter."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def size(self, width: int, height: int) -> None:
        """Give the page a size in CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def scheme(self, name: str) -> None:
        """Prefer "light" or "dark" colours."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of Chromium's own protocol."""
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def picture(self, path: Path, whole: bool = False) -> None:
        """Save what the page looks like: what is in view, or all of it."""
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def messages(self) -> list[str]:
        """Take the console's warnings and errors since the last time."""
        entries = self._post("/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] in ("SEVERE", "WARNING")]

    def hosts(self) -> set[str]:
        """Take the hosts that were asked for anything since the last time."""
        found = set()
        for entry in self._post("/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = urlsplit(message["params"]["request"]["url"])
                if address.scheme not in _INNER:
                    found.add(address.hostname or address.scheme)
        return found

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", self._session + path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._driver + path, data, method=method)
        # No proxy: the driver is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=ANSWER_PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise BrowserError(f"{method} {path}: {said[:2000]}") from None

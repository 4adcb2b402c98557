"""A browser without a window: headless Chromium, driven over a pair of pipes.

With `--remote-debugging-pipe` Chromium reads JSON commands from file 3 and writes replies and events to file 4,
each ended by a zero byte. https://chromedevtools.github.io/devtools-protocol names the commands.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import tempfile
from types import TracebackType
from typing import Any

from kit.broker import clean_environment
from kit.wire import GUARD_SECONDS, wait_for

COMMANDS, RESPONSES = 3, 4
"""The files Chromium uses."""

FLAGS = (
    "--headless",
    "--no-sandbox",  # root in a container has no other way
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)

LOADED = "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"


FAULTS = """
    window.faults = []
    for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation'])
      addEventListener(kind, event => faults.push(
        `${kind}: ${event.message ?? event.reason ?? `${event.violatedDirective} ${event.blockedURI}`}`))
"""
"""Runs before anything else on a page: collects all errors in `faults`."""


class Browser:
    """`with Browser(need("chromium", "chromium")) as browser: browser.open("http://...").run("1 + 1")`"""

    def __init__(self, program: str) -> None:
        self._program = program
        self._number = 0
        self._read = b""

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(prefix="polycast-browser-", ignore_cleanup_errors=True)
        command = [self._program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        theirs_in, self._commands = os.pipe()
        self._replies, theirs_out = os.pipe()
        shell = f'exec "$@" {COMMANDS}<&{theirs_in} {RESPONSES}>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.call("Browser.close")
        else:
            self._process.kill()
        self._process.wait(GUARD_SECONDS)
        os.close(self._commands)
        os.close(self._replies)
        self._profile.cleanup()

    def open(self, url: str) -> Page:
        """A page that has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.call("Page.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=FAULTS)
        page.go(url)
        return page

    def call(self, method: str, session: str = "", **params: object) -> dict[str, Any]:
        """Waits for the reply. Events that come before it are of no interest."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if session:
            command["sessionId"] = session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (reply := self._receive()).get("id") != self._number:
            pass
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._replies], [], [], GUARD_SECONDS)
            assert ready, "the browser sent nothing"
            more = os.read(self._replies, 1 << 16)
            assert more, "the browser ended"
            self._read += more
        text, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found


class Page:
    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def go(self, url: str) -> None:
        failed = self._browser.call("Page.navigate", self._session, url=url).get("errorText")
        assert not failed, f"{url}: {failed}"
        self.run(LOADED)

    def run(self, script: str) -> Any:
        """The value of a script's last expression; if that is a promise, what it comes to."""
        reply = self._browser.call(
            "Runtime.evaluate", self._session, expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def wait(self, script: str, what: str = "") -> Any:
        """The value of an expression, as soon as it is true."""
        return wait_for(lambda: self.run(script), what or script)

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

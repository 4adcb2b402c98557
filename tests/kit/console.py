"""The console in a browser: pages, tables, fields and buttons."""

from __future__ import annotations

import json
from typing import Any

from kit.browser import Browser, Page
from kit.wire import wait_for


class Console:
    """`with Console(browser, port) as console: console.go("topics"); console.rows()`"""

    def __init__(self, browser: Browser, port: int, query: str = "") -> None:
        self._browser = browser
        self._url = f"http://127.0.0.1:{port}/{query}"

    def __enter__(self) -> Console:
        self.page: Page = self._browser.open(self._url)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.expect_no_faults()
        self.page.__exit__(None, None, None)

    def expect_no_faults(self) -> None:
        faults = self.page.run("faults.splice(0)")
        assert faults == [], faults

    def begin_anew(self) -> None:
        """On a wide screen, in the light, on the first page."""
        self.page.resize(1280, 900)
        self.page.prefer("light")
        self.go("")

    def go(self, path: str) -> None:
        self.page.run(
            "new Promise(done => { addEventListener('hashchange', () => done(), {once: true});"
            f"const now = location.href; location.hash = {json.dumps('#/' + path)};"
            "if (location.href === now) done() })"
        )

    def wait_until_live(self) -> None:
        self.wait_for_text("#state", "live")

    # -- looking -----------------------------------------------------------------------------------------

    def texts(self, selector: str) -> list[str]:
        """Of all elements that are to be seen."""
        found: list[str] = self.page.run(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".filter(each => each.checkVisibility()).map(each => each.innerText)"
        )
        return found

    def rows(self, caption: str) -> dict[str, list[str]]:
        """Of the table with this caption, each by what stands in its first cell."""
        rows: list[list[str]] = self.page.run(
            f"[...document.querySelectorAll('table')].filter(each => each.caption?.textContent === "
            f"{json.dumps(caption)} && each.checkVisibility()).flatMap(each => [...each.tBodies[0].rows])"
            ".map(row => [...row.cells].map(cell => cell.innerText))"
        )
        return {row[0]: row[1:] for row in rows}

    def wait_for_row(self, caption: str, name: str, *cells: str) -> list[str]:
        """That it is there, and that these are its first cells."""

        def look() -> list[str] | None:
            row = self.rows(caption).get(name)
            return row if row and row[: len(cells)] == list(cells) else None

        return wait_for(look, f"the row {name!r} with {cells}") or []

    def wait_for_text(self, selector: str, text: str) -> str:
        """The first one that has this in it."""
        found = lambda: next((each for each in self.texts(selector) if text in each), "")  # noqa: E731
        return wait_for(found, f"{text!r} in {selector}")

    # -- acting ------------------------------------------------------------------------------------------

    def fill(self, identity: str, value: str) -> None:
        """Types into the field with this id, or chooses in it."""
        self.page.run(
            f"{{ const field = document.getElementById({json.dumps(identity)}); field.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {bubbles: true})) }"
        )

    def press(self, label: str) -> None:
        """The button, link or choice that is called so."""
        pressed = self.page.run(
            "{ const found = [...document.querySelectorAll('button, a, .choice label')].find(each => "
            f"each.checkVisibility() && (each.ariaLabel ?? each.innerText) === {json.dumps(label)});"
            "found?.click(); Boolean(found) }"
        )
        assert pressed, f"there is nothing to press that is called {label!r}"

    def value(self, script: str) -> Any:
        return self.page.run(script)

"""A real browser without a window, driven through DevTools' pipe: nothing but Python is needed.

https://chromedevtools.github.io/devtools-protocol; messages are JSON, each ended by a zero byte.
"""

import base64
import contextlib
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

PATIENCE = 30.0  # seconds; what is waited for comes in far less

FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it opens our own page alone, and root has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--lang=en",
)


class Browser:
    """A browser with an empty profile; ``tab`` opens a page."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.mkdtemp(prefix="onepass-browser-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # away from 3 and 4, where the browser wants them
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (theirs_in, theirs_out)]
        actions = [(os.POSIX_SPAWN_DUP2, ends[0], 3), (os.POSIX_SPAWN_DUP2, ends[1], 4)]
        null = os.open(os.devnull, os.O_RDWR)
        actions += [(os.POSIX_SPAWN_DUP2, null, each) for each in (0, 1, 2)]
        words = [program, *FLAGS, f"--user-data-dir={self._home}", "about:blank"]
        environment = {**os.environ, "TZ": "UTC"}
        self._pid = os.posix_spawn(program, words, environment, file_actions=actions,
                                   setsid=True)  # fmt: skip
        for end in (theirs_in, theirs_out, null, *ends):
            os.close(end)
        self._buffer = b""
        self._last = 0
        self._tabs: dict[str, Tab] = {}

    def tab(self, url: str, **looks: Any) -> "Tab":
        """Open a page; tabs share a process, but no session storage."""
        target = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"], target["targetId"])
        self._tabs[attached["sessionId"]] = tab
        tab.begin(**looks)
        tab.go(url)
        return tab

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Call a method and return its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        waiting = memoryview(json.dumps(message).encode() + b"\0")
        while waiting:
            waiting = waiting[os.write(self._out, waiting) :]
        for received in self._messages():
            if received.get("id") == self._last:
                if "error" in received:
                    raise RuntimeError(f"{method}: {received['error']['message']}")
                return received["result"]
            tab = self._tabs.get(received.get("sessionId", ""))
            if tab is not None:
                tab.hear(received["method"], received["params"])
        raise AssertionError

    def _messages(self) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + PATIENCE
        while True:
            while b"\0" not in self._buffer:
                if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                    raise TimeoutError(f"the browser did not answer within {PATIENCE:g} s")
                piece = os.read(self._in, 1 << 20)
                if not piece:
                    raise EOFError("the browser has ended")
                self._buffer += piece
            first, _, self._buffer = self._buffer.partition(b"\0")
            yield json.loads(first)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        until = time.monotonic() + 5.0
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.killpg(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                break
            time.sleep(0.02)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._home, ignore_errors=True)


class Tab:
    """One page and its errors."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.error: list[str] = []

    def begin(self, *, width: int = 1280, height: int = 800, dark: bool = False,
              scale: float = 1.0, zone: str = "UTC", still: bool = False) -> None:  # fmt: skip
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height, scale)
        if zone != "UTC":  # of all tabs, as they share a process
            self._call("Emulation.setTimezoneOverride", timezoneId=zone)
        features = {"prefers-color-scheme": "dark" if dark else "light",
                    "prefers-reduced-motion": "reduce" if still else "no-preference"}  # fmt: skip
        media = [{"name": name, "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", features=media)

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=scale, mobile=width < 500)  # fmt: skip

    def go(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def again(self) -> None:
        """Reload the page."""
        self.evaluate("window.before = true")
        self._call("Page.reload")
        self.until("!window.before && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The awaited value of an expression."""
        received = self._call("Runtime.evaluate", expression=expression, awaitPromise=True,
                          returnByValue=True)  # fmt: skip
        if "exceptionDetails" in received:
            details = received["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return received["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of an expression as soon as it is truthy."""
        until = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            if time.monotonic() > until:
                raise TimeoutError(f"never came true: {expression}")
            time.sleep(0.02)
        return value

    def text(self, selector: str) -> str:
        """The text of an element."""
        received: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return received

    def press(self, key: str, text: str = "") -> None:
        """Press a key, by its name, that types a text."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "End": 35, "Home": 36, "Tab": 9}
        event = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        typed = {"text": text} if text else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def point(self, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x: float, y: float, to_x: float, to_y: float, *, clicks: int = 1) -> None:
        """Move the pointer with the button pressed; or click several times."""
        for count in range(1, clicks + 1):
            button = {"button": "left", "buttons": 1, "clickCount": count}
            self._call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **button)
            self._call("Input.dispatchMouseEvent", type="mouseMoved", x=to_x, y=to_y, **button)
            self._call("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=to_y, **button)

    def show(self, *, hidden: bool) -> None:
        """Mark the page as hidden, or as visible again."""
        self.evaluate(f"""
            Object.defineProperty(document, "hidden", {{
                configurable: true, get: () => {json.dumps(hidden)}
            }});
            document.dispatchEvent(new Event("visibilitychange"));
        """)

    def accessible(self) -> list[dict[str, Any]]:
        """The nodes of the accessibility tree."""
        nodes: list[dict[str, Any]] = self._call("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    def picture(self, path: Path | str, *, whole: bool = False) -> None:
        """Write a PNG of the viewport, or of the whole page."""
        received = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(received["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def hear(self, event: str, about: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.error.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.error.append(f"{about['entry']['source']}: {about['entry']['text']}")

    def _call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

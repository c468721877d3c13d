"""A chromedriver client with the standard library only: the needed parts of W3C WebDriver and Chromium's own commands."""

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

# Key codes of WebDriver.
KEYS = {
    "Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008", "Escape": "\ue00c", "Space": " ", "PageUp": "\ue00e", "PageDown": "\ue00f",
    "End": "\ue010", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015",
}

# Interactive roles that must have an accessible name.
CONTROLS = {
    "button", "checkbox", "combobox", "link", "listbox", "menuitem", "radio", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox",
    "ColorWell", "Date", "InputTime", "DisclosureTriangle", "image", "dialog",
}


class Failed(Exception):
    pass


class Browser:
    def __init__(self, chromium, chromedriver, microphone, port):
        self.process = subprocess.Popen(
            [chromedriver, f"--port={port}", "--log-level=SEVERE"], stdout=subprocess.DEVNULL
        )
        self.base = f"http://127.0.0.1:{port}"
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--autoplay-policy=no-user-gesture-required",
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={microphone}",
            "--force-color-profile=srgb",
            "--lang=en",
        ]
        wanted = {
            "alwaysMatch": {
                "goog:chromeOptions": {"binary": chromium, "args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
            }
        }
        for attempt in range(100):
            try:
                self.session = self.call("POST", "/session", {"capabilities": wanted})["sessionId"]
                break
            except (urllib.error.URLError, ConnectionError):
                if attempt == 99:
                    raise
                time.sleep(0.1)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise Failed(f"{value['error']}: {value['message'].splitlines()[0]}") from None

    def do(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def chromium(self, command, **parameters):
        return self.do("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.do("POST", "/url", {"url": url})

    def reload(self):
        self.do("POST", "/refresh", {})

    def run(self, script, *arguments):
        return self.do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.do("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.do("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text, clear=True):
        element = self.find(selector)
        if clear:
            self.do("POST", f"/element/{element}/clear", {})
        self.do("POST", f"/element/{element}/value", {"text": text})

    def choose(self, selector, value):
        script = """
          const control = document.querySelector(arguments[0]);
          control.value = arguments[1];
          control.dispatchEvent(new Event('input', { bubbles: true }));
          control.dispatchEvent(new Event('change', { bubbles: true }));
          return control.value;"""
        if self.run(script, selector, value) != value:
            raise Failed(f"{selector} has no {value}")

    def wait(self, what, script, *arguments, seconds=30):
        """Waits until a script returns a true value, and returns it."""
        end = time.monotonic() + seconds
        last = None
        while time.monotonic() < end:
            try:
                last = self.run(f"return ({script})", *arguments)
                if last:
                    return last
            except Failed as error:
                last = error
            time.sleep(0.1)
        raise Failed(f"it was waited {seconds} s for {what}; the last answer was {last!r}")

    def press(self, *keys):
        """Presses keys one after the other; the focused element receives them."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def controls(self):
        """Role and accessible name of all interactive elements, as exposed to assistive technology."""
        self.chromium("Accessibility.enable")
        found = []
        for node in self.chromium("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value")
            if role in CONTROLS and not node.get("ignored"):
                found.append((role, (node.get("name", {}).get("value") or "").strip()))
        return found

    def size(self, width, height):
        self.chromium(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def screenshot(self, path, part=None):
        """A PNG screenshot of the window, or of the element that a selector finds."""
        more = {}
        if part:
            box = self.run(
                "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
                "return { x: box.x + scrollX - 12, y: box.y + scrollY - 12, width: box.width + 24, height: box.height + 24, scale: 1 }", part)
            more = {"clip": box, "captureBeyondViewport": True}
        shot = self.chromium("Page.captureScreenshot", format="png", **more)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def messages(self):
        """Console errors and warnings of the page since the last call."""
        found = self.do("POST", "/se/log", {"type": "browser"})
        return [one["message"] for one in found if one["level"] in ("SEVERE", "WARNING")]

    def close(self):
        try:
            self.do("DELETE", "")
        except (Failed, OSError):
            pass
        self.process.terminate()
        self.process.wait(10)

"""Tests the page in a real Chromium: speech and playback, voices, training, reload, Persian; takes screenshots of every view.

    python3 drive.py --myxtts target/debug/myxtts [--pictures DIR] [--keep]

Everything happens in a temporary folder: a demo corpus, a tiny model trained for a few steps, and the server.
"""

import argparse
import ast
import importlib.util
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from webdriver import Browser

TINY = ["--preset=tiny", "--set=training.checkpoint_every=20", "--validate-every=20"]
VIEWS = ["speak", "voices", "data/0/demo", "training", "training/run/first", "training/new/0/demo", "training/compare/first,second"]

# All audio output passes through here; its peak shows whether anything would be audible.
LISTEN = """
  window.heard = { started: 0, peak: 0, seconds: 0 };
  const start = AudioBufferSourceNode.prototype.start;
  AudioBufferSourceNode.prototype.start = function (...rest) {
    const samples = this.buffer.getChannelData(0);
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    heard.started++;
    heard.seconds += this.buffer.duration;
    heard.peak = Math.max(heard.peak, peak);
    return start.apply(this, rest);
  };
"""


# Everything that Tab should reach, in the order of the document.
TAB_STOPS = """
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
  return [...all].filter((one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility()).map((one, i) => (one.dataset.stop = i));
"""
FOCUSED = "return document.activeElement === document.body ? null : Number(document.activeElement.dataset.stop ?? -1)"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Test:
    def __init__(self, myxtts, pictures, at):
        self.myxtts, self.pictures, self.at = myxtts, pictures, at
        self.server = self.browser = self.second = None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"

    def command(self, *arguments):
        done = subprocess.run([self.myxtts, *arguments], cwd=self.at, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"myxtts {' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-2000:]}")

    def prepare(self):
        if not (self.at / "runs/first/model").exists():
            self.command("demo-corpus", "data/demo", "--utterances", "60")
            self.command("train", "data/demo", "--name", "first", "--dvae-steps=30", "--gpt-steps=40", "--decoder-steps=20", *TINY)

    def serve(self, token=None):
        log = open(self.at / "serve.log", "ab")
        arguments = [self.myxtts, "serve", "--model", "first", "--port", str(self.port), "--data-root", "data", "--device", "cpu"]
        self.server = subprocess.Popen(arguments, cwd=self.at, stdout=log, stderr=log, env={**os.environ, **({"MYXTTS_TOKEN": token} if token else {})})
        ready = urllib.request.Request(self.url + "ready", headers={"Authorization": f"Bearer {token}"} if token else {})
        for _ in range(1200):
            try:
                if urllib.request.urlopen(ready, timeout=5).status == 200:
                    return
            except OSError:
                time.sleep(0.1)
            if self.server.poll() is not None:
                sys.exit(f"the server ended: {(self.at / 'serve.log').read_text()[-2000:]}")
        sys.exit("the server was not ready within two minutes")

    def step(self, name):
        print(f"browser: {name}", flush=True)

    def go(self, view):
        self.browser.run("location.hash = arguments[0]", f"#/{view}")
        self.browser.wait("the view", "document.querySelector('main h1')?.textContent.length > 0")

    def check(self, is_so, message):
        if not is_so:
            raise AssertionError(message)

    def run(self):
        self.prepare()
        self.serve()
        chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
        recording = next((self.at / "data/demo/wavs").glob("*.wav"))
        self.browser = Browser(chromium, chromedriver, recording, free_port())
        self.browser.chromium("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        self.browser.size(1440, 900)
        self.browser.open(self.url)
        self.browser.wait("the model", "document.querySelector('#model.ready')", seconds=60)
        # A second user with another browser.
        self.second = Browser(chromium, chromedriver, recording, free_port())
        self.second.size(1440, 900)
        self.second.open(self.url)
        self.second.wait("the model in the second browser", "document.querySelector('#model.ready')", seconds=60)
        self.speak()
        self.keyboard()
        self.voices(recording)
        self.data()
        self.training()
        self.charts()
        self.labels()
        self.persian()
        self.restart()
        if self.pictures:
            self.take_pictures()
        bad = [text for text in self.browser.messages() if "favicon" not in text]
        self.check(not bad, f"the page complained: {bad}")

    def labels(self):
        self.step("every control has a name for assistive technology")
        count = 0
        for view in VIEWS:
            self.go(view)
            time.sleep(1.0)
            self.browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            found = self.browser.controls()
            nameless = [role for role, name in found if not name]
            self.check(len(found) > 8, f"only {len(found)} controls were found in {view}")
            self.check(not nameless, f"controls of {view} without a name: {nameless}")
            count += len(found)
        print(f"  {count} controls in {len(VIEWS)} views, all with a name")

    def tab_through(self, view):
        """Tab reaches every control once, in the order of the document."""
        browser = self.browser
        self.go(view)
        time.sleep(1.0)
        browser.run("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
        # Start at the first control: Tab continues from the last click.
        stops = browser.run(TAB_STOPS)
        skipped = browser.run("return [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [role=slider]')].filter((one) => one.tabIndex < 0 && one.checkVisibility()).map((one) => one.outerHTML.slice(0, 80))")
        self.check(not skipped, f"Tab cannot reach {skipped} in {view}")
        browser.run("document.querySelector('[data-stop=\"0\"]').focus()")
        visited = [0]
        while len(visited) < 3 * len(stops):
            browser.press("Tab")
            at = browser.run(FOCUSED)
            if at is None or at == 0:
                break
            # Browsers add scrollable boxes to the tab order.
            if at >= 0:
                visited.append(at)
        self.check(visited == stops, f"Tab in {view} went {visited} and not through {stops}")
        return len(stops)

    def keyboard(self):
        self.step("the keyboard alone: Tab order, skip link, Enter and Space, arrow keys, Escape")
        browser = self.browser
        focus = "document.activeElement"
        reached = {view: self.tab_through(view) for view in ("speak", "voices", "training")}
        print("  Tab stops: " + ", ".join(f"{view} {count}" for view, count in reached.items()))
        self.go("voices")
        browser.run("document.querySelector('.skip').focus()")
        browser.press("Enter")
        self.check(browser.run(f"return {focus}.id") == "view", "the skip link does not lead to the content")
        self.check(browser.run("return location.hash") == "#/voices", "the skip link leaves the view")
        # Views by Enter; the focus stays in the menu.
        browser.run("document.querySelector('#tabs a').focus()")
        browser.press("Enter")
        browser.wait("the view", "location.hash === '#/speak' && document.querySelector('textarea')")
        self.check(browser.run(f"return {focus}.getAttribute('href')") == "#/speak", "the menu has lost the focus")
        # Settings open by Enter, and arrow keys move the slider of the speed.
        browser.run("document.querySelector('form summary').focus()")
        browser.press("Enter", "Tab", "ArrowRight", "ArrowRight")
        self.check(browser.run(f"return {focus}.type") == "range", "Tab does not lead to the first setting")
        self.check(browser.run(f"return {focus}.value") == "1.1", f"arrow keys: {browser.run(f'return {focus}.value')}")
        browser.press("ArrowLeft", "ArrowLeft")
        # Space presses a button; the text is spoken.
        browser.run("heard.started = 0; document.querySelector('form button.primary').focus()")
        browser.press("Space")
        browser.wait("the speech", "heard.started > 0 && document.querySelector('#figures')?.dataset.done === 'yes'", seconds=60)
        browser.wait("its end", "document.querySelector('.play.large').getAttribute('aria-label') === 'Play'", seconds=60)
        now = "return Number(document.querySelector('canvas.wave').getAttribute('aria-valuenow'))"
        browser.run("document.querySelector('.play.large').focus()")
        browser.press("Tab")
        self.check(browser.run(f"return {focus}.matches('canvas.wave')"), "Tab does not lead from the play button to the position")
        browser.press("PageUp", "PageUp", "ArrowRight")
        moved = browser.wait("the position", "Number(document.querySelector('canvas.wave').getAttribute('aria-valuenow')) > 0")
        browser.press("Home")
        browser.wait("the start", "Number(document.querySelector('canvas.wave').getAttribute('aria-valuenow')) < 0.3 || document.querySelector('.play.large').getAttribute('aria-label') === 'Play'")
        self.check(moved, f"arrow keys do not move the position: {browser.run(now)}")
        # Escape closes a dialog, and the focus returns.
        browser.run("document.querySelector('.list li .danger').focus()")
        browser.press("Enter")
        browser.wait("the question", "document.querySelector('dialog[open]')")
        self.check(browser.run(f"return {focus}.closest('dialog') !== null"), "the question has no focus")
        browser.press("Escape")
        browser.wait("its end", "!document.querySelector('dialog[open]')")
        self.check(browser.run(f"return {focus}.matches('.list li .danger')"), "the focus is not back at the button")

    def charts(self):
        self.step("values of charts by arrow keys")
        browser = self.browser
        self.go("training/run/first")
        browser.wait("the charts", "document.querySelectorAll('section[aria-label=Curves] svg').length > 2")
        browser.run("document.querySelector('section[aria-label=Curves] svg').focus()")
        values = []
        for key in ("Home", "ArrowRight", "End"):
            browser.press(key)
            values.append(browser.run("const one = document.activeElement; return [one.getAttribute('aria-valuenow'), one.getAttribute('aria-valuetext'), one.parentElement.querySelector('.tip').innerText]"))
        last = browser.run("return document.activeElement.getAttribute('aria-valuemax')")
        self.check([value[0] for value in values] == ["1", "2", last], f"arrow keys do not walk: {values}")
        self.check(len({value[1] for value in values}) == len(values), f"the values are the same: {values}")
        for _, text, tip in values:
            number = text.split()[-1]
            self.check("Loss" in text and number in tip, f"what is read out is not what is shown: {text!r} and {tip!r}")
        print(f"  {values[0][1]!r} to {values[-1][1]!r}")
        self.go("data/0/demo")
        browser.wait("the histogram", "document.querySelector('section[aria-label=Check] svg')", seconds=60)
        browser.run("document.querySelector('section[aria-label=Check] svg').focus()")
        browser.press("Home", "ArrowRight")
        text = browser.run("return document.activeElement.getAttribute('aria-valuetext')")
        self.check("–" in text and ":" in text, f"the histogram says {text!r}")

    def speak(self):
        self.step("speak, and hear sound that is not silent")
        browser = self.browser
        browser.type("textarea", "hello there, this is a test of the voice")
        browser.click("form button.primary")
        browser.wait("the end of the speech", "document.querySelector('#figures')?.dataset.done === 'yes'", seconds=60)
        heard = browser.run("return heard")
        self.check(heard["started"] > 0 and heard["peak"] > 0.003, f"nothing was heard: {heard}")
        told = browser.run("return {...document.querySelector('#figures').dataset}")
        self.check(float(told["first"]) > 0 and float(told["rtf"]) > 0 and float(told["seconds"]) > 0.1, f"no figures: {told}")
        self.check(abs(heard["seconds"] - float(told["seconds"])) < 0.1, f"not all of it was played: {heard} {told}")
        code = browser.run("return document.querySelector('pre.code').textContent")
        self.check("curl http://127.0.0.1" in code and "hello there" in code, f"no curl line: {code}")
        browser.wait("the history", "document.querySelector('.list li .title')?.textContent.includes('hello there')")
        self.second.wait("the history in the second browser, without a reload", "document.querySelector('.list li .title')?.textContent.includes('hello there')")
        self.python_line()
        browser.reload()
        browser.wait("the history after a reload", "document.querySelector('.list li .title')?.textContent.includes('hello there')")
        self.check("hello there" in browser.run("return document.querySelector('textarea').value"), "the draft is gone")
        print(f"  first sound after {float(told['first']):.0f} ms, RTF {float(told['rtf']):.2f}, peak {heard['peak']:.3f}")

    def python_line(self):
        browser = self.browser
        browser.click("details:has(pre.code) > summary")
        browser.click(".segments button:last-child")
        code = browser.run("return document.querySelector('pre.code').textContent")
        ast.parse(code)
        for part in ("from openai import OpenAI", f'base_url="{self.url}v1"', 'voice="', "hello there"):
            self.check(part in code, f"no {part!r} in the Python line: {code}")
        if importlib.util.find_spec("openai"):
            subprocess.run([sys.executable, "-c", code], cwd=self.at, check=True, timeout=120)
            written = (self.at / "speech.wav").read_bytes()
            self.check(written[:4] == b"RIFF" and len(written) > 4000, "the Python line wrote no sound")
            print(f"  the Python line wrote {len(written)} bytes of WAV")
        else:
            print("  the Python line is valid; it was not run: the openai package is not installed")
        browser.click(".segments button:first-child")
        self.check("curl" in browser.run("return document.querySelector('pre.code').textContent"), "the curl line does not come back")

    def voices(self, recording):
        self.step("add a voice from a file, and one from the microphone")
        browser = self.browser
        self.go("voices")
        browser.wait("the form", "document.querySelector('input[type=file]')")
        browser.type("form input:not([type=file])", "filed")
        browser.type("input[type=file]", str(recording), clear=False)
        self.second.run("location.hash = '#/voices'")
        browser.click("form button.primary")
        browser.wait("the voice", "document.querySelector('[data-voice=filed]')", seconds=60)
        self.second.wait("the voice in the second browser", "document.querySelector('[data-voice=filed]')")
        self.check(browser.run("return document.querySelector('.note.good') !== null"), "no word of the voice")
        self.check("%" in browser.run("return document.querySelector('form details').textContent"), "no quality report")
        browser.type("form input:not([type=file])", "spoken")
        browser.click("form button[type=button]")
        time.sleep(4)
        browser.click("form button[type=button].danger")
        browser.click("form button.primary")
        browser.wait("the voice of the microphone", "document.querySelector('[data-voice=spoken]')", seconds=60)
        browser.click("[data-voice=spoken] button.play")
        browser.wait("its sound", "document.querySelector('[data-voice=spoken] .play')?.getAttribute('aria-pressed') === 'true'", seconds=60)
        browser.click("[data-voice=spoken] button.danger")
        browser.click("dialog button[type=submit]")
        browser.wait("its removal", "!document.querySelector('[data-voice=spoken]')")

    def data(self):
        self.step("check a corpus, and look at its clips")
        browser = self.browser
        self.go("data/0/demo")
        browser.wait("the clips", "document.querySelectorAll('tbody tr .play').length >= 20")
        browser.wait("a picture of a mel", "[...document.querySelectorAll('td img.mel')].some((image) => image.naturalWidth > 10)")
        browser.click("section[aria-label=Check] button.primary")
        browser.wait("the report", "document.querySelector('section[aria-label=Check] .tag.good') && document.querySelector('.bar-mark')", seconds=120)

    def training(self):
        self.step("start a run, see its curve move, reload in the middle")
        browser = self.browser
        self.go("training/new/0/demo")
        browser.wait("the form", "document.querySelector('form input[placeholder=\"next free number\"]')")
        browser.type("form input[placeholder='next free number']", "second")
        browser.choose("form .row:first-of-type select", "tiny")
        browser.run("document.querySelectorAll('form input[type=number]').forEach((input, i) => { input.value = [20, 400, 0][i]; input.dispatchEvent(new Event('input', { bubbles: true })); })")
        browser.wait("the plan", "document.querySelector('section[aria-label=Plan] tbody')?.textContent.includes('tiny')")
        time.sleep(0.5)
        browser.click("form button.primary")
        points = "Number(document.querySelector('section[aria-label=Curves]')?.dataset.points ?? 0)"
        first = browser.wait("the first points", f"{points} > 2 && {points}", seconds=120)
        browser.wait("the curve to move", f"{points} > arguments[0]", first, seconds=120)
        self.second.run("location.hash = '#/training/run/second'")
        browser.reload()
        browser.wait("the curve after a reload", f"{points} > arguments[0]", first, seconds=60)
        self.second.wait("the curve in the second browser", f"{points} > arguments[0]", first, seconds=60)
        self.check(browser.run("return document.querySelector('section[aria-label=Progress]').dataset.state") == "running", "it does not run")
        self.check(browser.run("return document.querySelectorAll('section[aria-label=Curves] path.line').length > 0"), "no line is drawn")
        if self.pictures:
            self.picture("running", 1440, 900)
        self.step("stop the run, and resume it, seen by a second browser")
        browser.click(".head button:not([hidden]):not(.quiet)")
        browser.click("dialog button[type=submit]")
        browser.wait("the stop", "document.querySelector('section[aria-label=Progress]')?.dataset.state === 'stopped'", seconds=60)
        self.second.wait("the stop in the second browser", "document.querySelector('section[aria-label=Progress]')?.dataset.state === 'stopped'", seconds=60)
        step = browser.run("return Number(document.querySelector('section[aria-label=Progress]').dataset.step)")
        browser.click(".head button:not([hidden]):not(.quiet)")
        browser.wait("more steps", "document.querySelector('section[aria-label=Progress]').dataset.state === 'running' && Number(document.querySelector('section[aria-label=Progress]').dataset.step) > arguments[0]", step, seconds=120)
        self.second.wait("the run in the second browser", "document.querySelector('section[aria-label=Progress]').dataset.state === 'running'", seconds=60)
        # This time the second user stops it.
        self.second.click(".head button:not([hidden]):not(.quiet)")
        self.second.click("dialog button[type=submit]")
        browser.wait("the second stop", "document.querySelector('section[aria-label=Progress]')?.dataset.state === 'stopped'", seconds=60)
        self.step("samples stand beside the recordings")
        self.go("training/run/first")
        browser.wait("the samples", "document.querySelectorAll('.sample.original').length >= 1 && document.querySelectorAll('.sample:not(.original)').length >= 3")
        browser.wait("the picture of a recording", "document.querySelector('.sample.original img')?.naturalWidth > 10")
        browser.click(".sample.original .play")
        browser.wait("the recording", "document.querySelector('.sample.original .play').getAttribute('aria-pressed') === 'true'")
        self.step("what keeps a run from being faster")
        browser.click("section[aria-label=Diagnosis] button")
        browser.wait("that it runs", "document.querySelector('section[aria-label=Diagnosis] .tag.live')")
        browser.wait("the diagnosis", "document.querySelectorAll('section[aria-label=Diagnosis] tbody tr').length > 2", seconds=600)
        told = browser.run("return document.querySelector('section[aria-label=Diagnosis]').innerText")
        self.check("ms" in told and "cpu" in told.lower(), f"no figures in the diagnosis: {told}")
        self.go("training/compare/first,second")
        browser.wait("both runs", "document.querySelectorAll('section tbody tr').length === 2")

    def persian(self):
        self.step("Persian, from right to left")
        browser = self.browser
        self.go("speak")
        browser.click("#language")
        browser.wait("Persian", "document.documentElement.dir === 'rtl' && document.querySelector('h1').textContent === 'گفتار'")
        self.check(browser.run("return document.querySelector('#tabs').getBoundingClientRect().left > innerWidth / 2"), "the menu is not on the right")
        self.check(browser.run("return document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window")
        browser.type("textarea", "سلام، حال شما چطور است؟")
        browser.click("form button.primary")
        browser.wait("the Persian speech", "document.querySelector('#figures')?.dataset.done === 'yes'", seconds=60)
        browser.click("#language")
        browser.wait("English", "document.documentElement.dir === 'ltr'")

    def restart(self):
        self.step("kill -9 of the server, which now wants a token: runs, voices and history are still there")
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.serve(token="a-long-secret")
        browser = self.browser
        browser.reload()
        for given in ("a-wrong-secret", "a-long-secret"):
            browser.wait("the question for the token", "document.querySelector('#token-dialog[open] input')?.value === ''")
            browser.type("#token", given)
            browser.click("#token-dialog button.primary")
            browser.wait("the answer", "!document.querySelector('#token-dialog[open]') || document.querySelector('#token-dialog .note.bad')")
        browser.wait("the model", "document.querySelector('#model.ready')")
        browser.reload()
        browser.wait("the model, asked without a question", "document.querySelector('#model.ready') && !document.querySelector('dialog[open]')")
        self.go("speak")
        browser.wait("the history", "[...document.querySelectorAll('.list li .title')].some((one) => one.textContent.includes('hello there'))", seconds=60)
        self.go("voices")
        browser.wait("the voice", "document.querySelector('[data-voice=filed]')")
        self.go("training")
        browser.wait("the runs", "document.querySelectorAll('tbody tr').length === 2")
        browser.messages()

    def picture(self, name, width, height, whole=True):
        self.browser.size(width, height)
        if not name.startswith("speak"):
            # Charts have the size of the window they are drawn in. What was spoken would be gone.
            self.browser.reload()
        time.sleep(1.5)
        if whole:
            tall = self.browser.run("return document.documentElement.scrollHeight")
            self.browser.size(width, max(height, min(tall, 2600)))
            time.sleep(0.6)
        self.browser.screenshot(self.pictures / f"{name}-{width}.png")
        self.browser.size(1440, 900)

    def take_pictures(self):
        self.step(f"pictures of every view in {self.pictures}")
        browser = self.browser
        for theme in ("light", "dark"):
            browser.run("document.documentElement.dataset.theme = arguments[0]; localStorage.setItem('myxtts.theme', arguments[0])", theme)
            for view in VIEWS:
                self.go(view)
                if view == "speak":
                    browser.type("textarea", "The sea was calm this morning, and the boats came home early.")
                    browser.click("form button.primary")
                    browser.wait("the speech", "document.querySelector('#figures')?.dataset.done === 'yes'", seconds=60)
                for width, height in ((1440, 900), (1024, 768), (390, 844)):
                    self.picture(f"{view.replace('/', '-').replace(',', '-')}-{theme}", width, height)
                    if view == "training/run/first" and theme == "light":
                        browser.size(width, height)
                        browser.screenshot(self.pictures / f"diagnosis-{width}.png", "section[aria-label=Diagnosis]")
                        browser.size(1440, 900)
                    browser.size(width, height)
                    wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
                    browser.size(1440, 900)
                    self.check(wide <= 0, f"{view} is {wide} pixels wider than {width}")
        browser.run("document.documentElement.dataset.theme = 'light'; localStorage.setItem('myxtts.theme', 'light')")
        browser.click("#language")
        for view in VIEWS[:5]:
            self.go(view)
            for width, height in ((1440, 900), (390, 844)):
                self.picture(f"{view.replace('/', '-')}-persian", width, height)
        browser.click("#language")

    def stop_training(self):
        """A run survives the server: after a failed test it is stopped here."""
        lock = self.at / "runs/second/write.lock"
        pid = lock.read_text().strip() if lock.exists() else ""
        if pid and b"train" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGTERM)

    def close(self):
        for one in (self.browser, self.second):
            if one:
                one.close()
        if self.server and self.server.poll() is None:
            self.server.terminate()
            self.server.wait(60)
        try:
            self.stop_training()
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--myxtts", required=True, type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for pictures of every view")
    parser.add_argument("--at", type=pathlib.Path, help="folder to work in, which is kept")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    at = arguments.at or pathlib.Path(tempfile.mkdtemp(prefix="myxtts-browser-"))
    at.mkdir(parents=True, exist_ok=True)
    # Remove leftovers of earlier tests.
    shutil.rmtree(at / "runs/second", ignore_errors=True)
    shutil.rmtree(at / "runs/.page", ignore_errors=True)
    shutil.rmtree(at / "runs/first/model/voices", ignore_errors=True)
    test = Test(arguments.myxtts.resolve(), arguments.pictures and arguments.pictures.resolve(), at.resolve())
    try:
        test.run()
        print("browser: all steps passed")
    except Exception:
        if test.browser:
            test.browser.screenshot("/tmp/myxtts-browser-failed.png" if not test.pictures else test.pictures / "failed.png")
        raise
    finally:
        test.close()
        if not arguments.at:
            shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    main()

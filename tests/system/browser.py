# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, over its debugging pipe: it opens a page, runs a line of script there, and takes
pictures."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="sdtrain-browser-")
        theirs_in, self.to = os.pipe()
        self.answers, theirs_out = os.pipe()
        program = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--disable-background-networking", "--no-first-run", "--remote-debugging-pipe",
                   "--user-data-dir=" + self.folder, "about:blank"]

        def place():  # the pipe's ends are descriptors 3 and 4 there
            low = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)
        self.process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=place)
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.rest, self.session, self.requests = 0, b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(domain + ".enable")
        self.problems = []

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.answers)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self):
        while b"\0" not in self.rest:
            got = os.read(self.answers, 1 << 20)
            if not got:
                raise AssertionError("Chromium has ended")
            self.rest += got
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            got = self._read()
            if got.get("id") == self.number:
                if "error" in got:
                    raise AssertionError("%s: %s" % (method, got["error"]))
                return got["result"]
            if got.get("method") == "Network.requestWillBeSent":
                self.requests.append(got["params"]["request"]["url"])
            if got.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.problems.append(got["params"])

    def look(self, width, height, dark=False, script=True):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.ask("Emulation.setScrollbarsHidden", hidden=True)

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression, timeout=60):
        end = time.monotonic() + timeout
        while True:
            got = self.value(expression)
            if got:
                return got
            if time.monotonic() > end:
                raise AssertionError("not within %d s: %s" % (timeout, expression))
            time.sleep(0.05)

    def picture(self, path, height=None):
        """Of the whole page, or of its upper part."""
        width = self.value("innerWidth")
        clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}} if height else {}
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True, **clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The leader's page of a real cluster: read without a script, followed through a failure, and, where SDTRAIN_PAGE is set
(ops/test --page), looked at by Debian's Chromium."""
import html.parser
import json
import os
import re
import resource
import signal
import socket
import time
import unittest
import urllib.error
import urllib.request

from lab import LabCase, until

VOID = {"meta", "link", "br", "img", "line", "path", "rect"}
OPEN = {"tr", "td", "th", "li", "p"}  # HTML lets these end by themselves


class Reader(html.parser.HTMLParser):
    """Text, links, ids and what is loaded; a page that is not well formed fails."""

    def __init__(self, text):
        super().__init__()
        self.text, self.links, self.ids, self.loads, self.stack, self.handlers = [], [], [], [], [], []
        self.feed(text)
        self.close()
        if self.stack:
            raise AssertionError("not closed: %s" % self.stack)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.handlers += [name for name in attrs if name.startswith("on") or name == "style"]
        if tag == "a":
            self.links.append(attrs["href"])
        self.loads += [attrs[name] for name in ("src", "data-events") if name in attrs]
        if tag == "link":
            self.loads.append(attrs["href"])
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag not in VOID and tag not in OPEN:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag in VOID or tag in OPEN:
            return
        if not self.stack or self.stack.pop() != tag:
            raise AssertionError("</%s> ends something else, at %s" % (tag, self.getpos()))

    def handle_data(self, data):
        self.text.append(data)

    def words(self):
        return re.sub(r"\s+", " ", " ".join(self.text))


class Stream:
    """Server-sent events: what each id holds by now."""

    def __init__(self, url):
        self.answer = urllib.request.urlopen(url, timeout=60)
        self.now, self.n_bytes = {}, 0

    def next(self):
        data = None
        while True:
            line = self.answer.readline()
            self.n_bytes += len(line)
            if not line:
                raise AssertionError("the stream has ended")
            if line.startswith(b"data: "):
                data = json.loads(line[6:])
            elif line == b"\n" and data is not None:
                self.now.update(data)
                return data

    def until(self, test, timeout=120):
        end = time.monotonic() + timeout
        while not test(self.now):
            if time.monotonic() > end:
                raise AssertionError("not within %d s: %s" % (timeout, sorted(self.now)))
            self.next()


class Pages(LabCase):
    def up(self):
        self.cluster = self.lab.cluster(nodes=2, controllers=2)
        self.addCleanup(self.cluster.down)
        text = self.cluster.ctl("dev", "status", "--dir", self.cluster.folder)
        self.addresses = dict(re.findall(r"^(\S+) .* http://(\S+)/metrics$", text, re.M))
        return until(self.leader, "a controller leads and serves its page")

    def get(self, name, path):
        """(status, headers, text)"""
        try:
            with urllib.request.urlopen("http://%s%s" % (self.addresses[name], path), timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, e.read().decode()

    def leader(self):
        return next((name for name in ("controller1", "controller2") if self.get(name, "/")[0] == 200), None)

    def start(self, name):
        job = self.lab.job(name, train__steps=100000, checkpoint__every_steps=20,
                           recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        self.cluster.submit(job)
        return job

    def read(self, name, path):
        status, headers, text = self.get(name, path)
        self.assertEqual(status, 200, text)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        reader = Reader(text)
        self.assertEqual([load for load in reader.loads if not load.startswith(("/", "data:"))], [])
        self.assertEqual(reader.handlers, [])
        self.assertEqual(len(reader.ids), len(set(reader.ids)))
        return reader

    def test_thousands_who_say_nothing(self):
        """They hold neither the page nor the metrics: of the leader and of a node."""
        leader = self.up()
        files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, min(most, 5300)), most))
        n = min(5000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 300)
        silent, begun = [], time.monotonic()
        try:
            for i in range(n):
                host, _, port = self.addresses[leader if i % 2 else "node1"].rpartition(":")
                one = socket.socket()
                silent.append(one)
                one.setblocking(False)
                one.connect_ex((host, int(port)))
            for name, path in ((leader, "/metrics"), (leader, "/"), ("node1", "/metrics"), ("node1", "/healthz")):
                asked = time.monotonic()
                self.assertEqual(self.get(name, path)[0], 200, (name, path))
                self.assertLess(time.monotonic() - asked, 4, (name, path))
            print("%d silent connections in %.1f s" % (n, time.monotonic() - begun), flush=True)
        finally:
            for one in silent:
                one.close()

    def evaluation(self, job):
        """Submits a job that measures the loss of each checkpoint on other data."""
        self.lab.data("held-out", 24, seed=2)
        evaluation = {"name": job["name"] + "-loss", "kind": "eval", "of": {"job": job["name"]}, "world": {"min": 1, "max": 1},
                      "loss": {"streams": [{"uri": self.lab.path("held-out")}], "positions": 32},
                      "checkpoint": {"uri": job["checkpoint"]["uri"]}}
        self.cluster.submit(evaluation)
        return evaluation

    def test_evaluations_are_followed(self):
        """The loss on held-out data is beside the loss of the training, on the live page and in the report."""
        leader = self.up()
        job = self.lab.job("measured", train__steps=60, checkpoint__every_steps=20, world__min=1, world__max=1)
        evaluation = self.evaluation(job)
        self.cluster.submit(job)
        until(lambda: self.get(leader, "/jobs/measured")[0] == 200, "the job has a page")
        stream = Stream("http://%s/events/jobs/measured" % self.addresses[leader])
        stream.until(lambda now: "by measured-loss</title>" in now.get("curves", "") and ">60<" in now.get("evals", ""))
        stream.answer.close()
        self.cluster.wait(evaluation, "succeeded", timeout=90)
        evals = json.loads(self.cluster.ctl("job", "evals", evaluation["name"], "-o", "json"))
        self.assertEqual([e["step"] for e in evals], [20, 40, 60])
        found = ["%s %.6g at step %d, by measured-loss" % (number, e["numbers"][number], e["step"])
                 for e in evals for number in ("loss", "ema_loss")]
        for path in ("/jobs/measured", "/jobs/measured-loss"):  # a page is drawn once a second
            page = until(lambda: [page for page in [self.read(leader, path)] if all(text in page.words() for text in found)],
                         "the page of " + path)[0]
            self.assertIn("Evaluations", page.words())
        self.assertIn("/jobs/measured-loss", self.read(leader, "/jobs/measured").links)
        self.assertNotIn("steps trained again", page.words())  # an evaluation has none
        for name in (job["name"], evaluation["name"]):
            self.cluster.ctl("job", "report", name, "--out", self.lab.path("report.html"))
            with open(self.lab.path("report.html")) as file:
                report = Reader(file.read())
            self.assertEqual([load for load in report.loads if not load.startswith("data:")], [])
            self.assertIn("ema_loss %.6g at step 40" % evals[1]["numbers"]["ema_loss"], report.words())
        self.assertIn("the loss on held-out data", report.words())
        code, text = self.cluster.ctl_code("job", "report", evaluation["name"], "--out", self.lab.path("report.html"), "--alone", 32 * "0")
        self.assertEqual(code, 1, text)
        self.assertIn("it has no checkpoints of its own", text)

    def test_a_failure_is_followed(self):
        leader = self.up()
        other = {"controller1": "controller2", "controller2": "controller1"}[leader]
        status, _, text = until(lambda: [got for got in [self.get(other, "/")] if leader in got[2]],
                                "the follower has heard who leads")[0]
        self.assertEqual(status, 503)
        self.assertIn("http://%s/" % self.addresses[leader], text)
        self.assertEqual(self.get(leader, "/jobs/none")[0], 404)
        job = self.start("seen")
        stream = Stream("http://%s/events/jobs/seen" % self.addresses[leader]) if until(
            lambda: self.get(leader, "/jobs/seen")[0] == 200, "the job has a page") else None
        stream.until(lambda now: int(now.get("step", "0")) > 25 and "gradient" in now)

        self.cluster.kill("node2")
        stream.until(lambda now: "node-lost" in now.get("recoveries", ""))
        stream.until(lambda now: ">running<" in now.get("state", ""))
        cluster = self.read(leader, "/")
        for words in ("node-lost", "sdctl node forget", "1 / 2 nodes up"):
            self.assertIn(words, cluster.words())
        self.assertIn("/jobs/seen", cluster.links)

        page = self.read(leader, "/jobs/seen")
        for words in ("its lease ran out", "Where the time went", "Samples/s", "Gradient norm", "Learning rate", "as seen, about once a second"):
            self.assertIn(words, page.words())
        request = urllib.request.Request("http://%s/" % self.addresses[leader], data=b"x")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        self.assertEqual(refused.exception.code, 405)
        refused.exception.close()

        self.cluster.ctl("job", "stop", "seen")
        self.cluster.ctl("job", "report", "seen", "--out", self.lab.path("report.html"))
        with open(self.lab.path("report.html")) as file:
            report = Reader(file.read())
        self.assertEqual([load for load in report.loads if not load.startswith("data:")], [])
        self.assertIn("node-lost", report.words())
        stream.answer.close()


@unittest.skipUnless(os.environ.get("SDTRAIN_PAGE"), "ops/test --page looks with a browser")
class Looked(Pages):
    test_a_failure_is_followed = test_evaluations_are_followed = test_thousands_who_say_nothing = None

    def widths(self, browser, width, dark, name):
        browser.look(width, 900, dark)
        browser.wait("window.innerWidth == %d" % width)
        self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), width, name)
        small = browser.value("Math.min(...[...document.querySelectorAll('svg text, td, p, span')]"
                              ".filter(e => e.textContent.trim()).map(e => parseFloat(getComputedStyle(e).fontSize)))")
        self.assertGreaterEqual(small, 11, name)
        colour = browser.value("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(colour, "rgb(17, 17, 16)" if dark else "rgb(252, 252, 251)")
        folder = os.environ["SDTRAIN_PAGE"]
        if os.path.isdir(folder):
            browser.picture(os.path.join(folder, name + ".png"))

    def test_in_a_browser(self):
        from browser import Browser
        leader = self.up()
        job = self.start("pictures")
        until(lambda: (self.cluster.status(job).get("step") or 0) > 60, "the job trains")
        os.kill(self.cluster.rank_on(job, "node2")["pid"], signal.SIGKILL)
        base = "http://%s" % self.addresses[leader]
        browser = Browser()
        self.addCleanup(browser.close)
        browser.look(1100, 900)
        browser.open(base + "/jobs/pictures")
        browser.wait("document.getElementById('live')?.textContent == 'live'")
        browser.wait("document.querySelectorAll('g.failure').length == 1")
        browser.wait("document.querySelector('.state').textContent == 'running'")
        browser.wait("document.querySelectorAll('figure').length == 4")
        self.delay(browser, job)
        for name, width, dark in (("job-light", 1100, False), ("job-dark", 1100, True), ("job-phone", 390, False)):
            self.widths(browser, width, dark, name)
        browser.look(1100, 900)
        box = browser.value("(() => { const b = document.querySelector('figure').getBoundingClientRect(); "
                            "return [b.left, b.top, b.width, b.height] })()")
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2)
        browser.wait("/step \\d+: loss [\\d.]+, \\d/.test(document.querySelector('output').textContent)")
        browser.open(base + "/")
        browser.wait("document.getElementById('live')?.textContent == 'live'")
        for name, width, dark in (("cluster-light", 1100, False), ("cluster-dark", 1100, True), ("cluster-phone", 390, False)):
            self.widths(browser, width, dark, name)
        self.assertEqual([url for url in browser.requests if not url.startswith((base, "data:"))], [])
        self.assertEqual(browser.problems, [])
        browser.look(1100, 900, script=False)
        browser.open(base + "/jobs/pictures")
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
        browser.wait("document.body && document.body.innerText.includes('Where the time went')")
        if os.path.isdir(os.environ["SDTRAIN_PAGE"]):
            self.documents(browser, base, job)

    def documents(self, browser, base, job):
        """The pictures of docs/operating/page.md: a job that has failed and was resized, then a node that is lost."""
        def picture(name, path, width, dark, height):
            browser.look(width, 900, dark)
            browser.open(base + path)
            browser.wait("innerWidth == %d && document.getElementById('live')?.textContent == 'live'" % width)
            browser.picture(os.path.join(os.environ["SDTRAIN_PAGE"], name + ".png"), height)

        begun = self.cluster.status(job)["step"]
        until(lambda: self.cluster.status(job)["step"] > begun + 100, "more steps")
        self.cluster.ctl("job", "resize", job["name"], "--world", "1", "--wait")
        begun = self.cluster.status(job)["step"]
        until(lambda: self.cluster.status(job)["step"] > begun + 100, "steps of one rank")
        picture("page-job", "/jobs/pictures", 1085, False, 1370)
        picture("page-job-dark", "/jobs/pictures", 1085, True, 1370)
        evaluated = self.lab.job("sd2", train__steps=400, checkpoint__every_steps=40, checkpoint__keep_last=16, world__min=1, world__max=1)
        self.cluster.submit(evaluated)
        self.cluster.wait(self.evaluation(evaluated), "succeeded", timeout=120)
        picture("page-evals", "/jobs/sd2", 1085, False, 620)
        trains = self.cluster.status(job)["world"]["ranks"][0]["node"]
        self.cluster.kill("node1" if trains == "node2" else "node2")
        browser.open(base + "/")
        browser.wait("document.body?.innerText.includes('node-lost')")
        picture("page-cluster", "/", 1085, False, 800)
        picture("page-phone", "/", 390, True, 860)

    def delay(self, browser, job):
        """Prints how long after etcd has a step the page shows it."""
        delays, shown = [], browser.value("+document.getElementById('step').textContent")
        for _ in range(8):
            told = until(lambda: [s for s in [self.cluster.status(job)["step"]] if s > shown], "a further step")[0]
            at = time.monotonic()
            shown = browser.wait("+document.getElementById('step').textContent >= %d && "
                                 "+document.getElementById('step').textContent" % told)
            delays.append(time.monotonic() - at)
        print("a step in etcd -> on the page: %s s" % ", ".join("%.2f" % d for d in delays), flush=True)


if __name__ == "__main__":
    unittest.main()

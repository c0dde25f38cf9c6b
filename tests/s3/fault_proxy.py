#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a real S3 server that breaks what it is told to break.

  fault_proxy.py --to http://127.0.0.1:PORT [--control SOCKET] [--address A[:PORT]] [--tls CERTIFICATE KEY]

It prints a line of JSON when it listens (endpoint, control, pid) and ends with the process that started it. Requests
go on as they came, the Host header too, so that signatures hold: HTTP/1.1, kept alive, bodies streamed in small
pieces. On the Unix socket each line is a command in JSON, answered by a line; {"error": ...} when it is wrong.

  {"do": "add", "rules": [RULE...]}    -> {"ids": [...]}; all rules that match a request act on it
  {"do": "rules"}                      -> {"rules": [{"id", "seen", "fired"}...]}
  {"do": "remove", "id": ID}           one of them; {"do": "clear"} all, and what stalls goes on
  {"do": "release"}                    what stalls goes on
  {"do": "listen", "open": false}      the port is closed, connections are reset; true opens it again
  {"do": "count", "match": MATCH}      -> {"n", "under_way", "most_at_once"} of the requests seen
  {"do": "log", "match": MATCH}        -> {"requests": [...]}, the newest LOG_MAX at most
  {"do": "forget"}                     forgets the requests that have ended
  {"do": "wait", "match": MATCH, "n": N, "ended": BOOL, "timeout": SEC}     until so many have begun (or ended)
  {"do": "wait", "rule": ID, "n": N, "timeout": SEC}                        until it has fired so often

MATCH: {"method", "path", "query", "headers": {name: ...}}, regular expressions: the method as a whole, the others
anywhere; the path is decoded, the query is not. Missing: anything.

RULE: {"match": MATCH, "skip": 0, "count": 1, "probability": 1, "fault": FAULT, and what the fault needs}: the first `skip`
matches pass, then it fires `count` times (null: always), each time with that probability. Bytes count from the
message's first, its head included; `after` null: the whole message has passed.

  status     "status", "code", "message", "retry_after", "headers", "body": answered so, and the server sees nothing; with
             "acted": true the server does it, and its answer is replaced
  reset      "where" (request, reply), "after": both connections are reset there
  truncate   "after": the reply ends there, in order
  corrupt    "where", "at": offset in the body (of the whole body; negative from its declared end; null: drawn each time
             anew): a bit is turned
  stall      "where", "after": nothing passes until it is released or the client goes
  slow       "where", "bytes_per_sec", "delay_sec": so long before the first byte
  lose       the server has answered in full; the client gets a reset
  date       "skew_sec": the reply's Date is off
  clock      "skew_sec": the server's clock is off: what is not signed by that clock (15 minutes) is refused with
             RequestTimeTooSkewed, what is signed right goes on, signed anew with --keys
"""
import argparse
import asyncio
import collections
import datetime
import email.utils
import json
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import s3client  # noqa: E402
import service  # noqa: E402

PIECE = 1 << 16
HEAD_MAX = 1 << 16
LOG_MAX = 20000
IDLE_SEC = 5  # an older connection to the server is not used again: the server may just be closing it
LINGER_SEC = 5

FAULTS = {"status": {"status", "code", "message", "retry_after", "headers", "body", "acted"},
          "reset": {"where", "after"}, "truncate": {"after"}, "corrupt": {"where", "at"}, "stall": {"where", "after"},
          "slow": {"where", "bytes_per_sec", "delay_sec"}, "lose": set(), "date": {"skew_sec"}, "clock": {"skew_sec"}}


class Wrong(Exception):
    """A command that makes no sense."""


class Reset(Exception):
    """Both connections go, with a RST to the client."""


class End(Exception):
    """The client's connection ends here, in order."""


class Deaf(Exception):
    """Who was written to does not take any more."""


class Match:
    def __init__(self, says):
        if not isinstance(says, dict) or set(says) - {"method", "path", "query", "headers"}:
            raise Wrong("not a match: %s" % json.dumps(says))
        self.parts = {name: re.compile(says.get(name, "")) for name in ("path", "query")}
        self.method = re.compile(says.get("method", ".*"))
        self.headers = {name.lower(): re.compile(text) for name, text in says.get("headers", {}).items()}

    def __call__(self, request):
        return (self.method.fullmatch(request.method) and self.parts["path"].search(request.path)
                and self.parts["query"].search(request.query)
                and all(name in request.headers and text.search(request.headers[name])
                        for name, text in self.headers.items()))


class Rule:
    def __init__(self, number, says):
        fault = says.get("fault")
        if fault not in FAULTS:
            raise Wrong("fault %s is not one of %s" % (fault, ", ".join(FAULTS)))
        unknown = set(says) - {"match", "skip", "count", "probability", "fault"} - FAULTS[fault]
        if unknown:
            raise Wrong("%s of a rule with fault %s" % (", ".join(sorted(unknown)), fault))
        if says.get("where", "reply") not in ("request", "reply"):
            raise Wrong("where %s is not request or reply" % says["where"])
        self.id, self.says, self.fault, self.match = number, says, fault, Match(says.get("match", {}))
        self.where = says.get("where", "reply")
        self.seen, self.fired = 0, 0

    def fires(self, request, randomness):
        if not self.match(request):
            return False
        self.seen += 1
        count = self.says.get("count", 1)
        if self.seen <= self.says.get("skip", 0) or (count is not None and self.fired >= count):
            return False
        if randomness.random() >= self.says.get("probability", 1):
            return False
        self.fired += 1
        return True


class Head:
    """The head of a request or a reply."""

    def __init__(self, raw):
        self.raw = raw
        first, *lines = raw.decode("latin-1").split("\r\n")
        self.first = first.split(" ", 2)
        self.headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                self.headers[name.strip().lower()] = value.strip()
        self.chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self.length = int(self.headers.get("content-length", 0))
        self.close = self.headers.get("connection", "").lower() == "close"

    def replaced(self, name, value):
        """The head with another value of a header, or with one more."""
        head, n = re.subn(rb"(?im)^%s:[^\r]*" % name.encode(), ("%s: %s" % (name, value)).encode(), self.raw, count=1)
        return Head(head if n else self.raw[:-2] + ("%s: %s\r\n\r\n" % (name, value)).encode())


class Request(Head):
    def __init__(self, raw):
        super().__init__(raw)
        self.method, target, _ = self.first
        self.target_path, _, self.query = target.partition("?")
        self.path = urllib.parse.unquote(self.target_path)
        self.has_body = self.chunked or self.length > 0
        self.began, self.ended, self.status = time.monotonic(), None, None
        self.bytes_in, self.bytes_out, self.faults, self.broken = 0, 0, [], ""

    def says(self):
        return {"client": self.client, "method": self.method, "path": self.path, "query": self.query, "status": self.status, "began": self.began,
                "ended": self.ended, "bytes_in": self.bytes_in, "bytes_out": self.bytes_out, "faults": self.faults,
                "broken": self.broken, "range": self.headers.get("range"), "length": self.length}


class Relay:
    """What goes one way, with the faults that strike on it."""

    def __init__(self, writer, rules, gone, released, randomness):
        self.writer, self.gone, self.released = writer, gone, released  # gone(): nobody waits for it any more
        self.n_sent, self.n_body, self.length = 0, 0, 0
        self.randomness = randomness
        self.corrupt = [r.says.get("at", 0) for r in rules if r.fault == "corrupt"]
        self.slow = [r.says for r in rules if r.fault == "slow"]
        self.cuts = [r for r in rules if r.fault in ("reset", "truncate", "stall")]

    async def begin(self, head):
        self.length = head.length
        for says in self.slow:
            await asyncio.sleep(says.get("delay_sec", 0))
        await self.send(head.raw)

    async def send(self, data, body=False):
        if body and self.corrupt:
            data = self._corrupted(data)
            self.n_body += len(data)
        due = [r for r in self.cuts if r.says.get("after") is not None and r.says["after"] < self.n_sent + len(data)]
        for rule in sorted(due, key=lambda r: r.says["after"]):
            keep = max(0, rule.says["after"] - self.n_sent)
            await self._write(data[:keep])
            data = data[keep:]
            await self._strike(rule)
        await self._write(data)

    async def end(self):
        """The message has passed; what was to strike later strikes now."""
        for rule in list(self.cuts):
            await self._strike(rule)

    def _corrupted(self, data):
        data = bytearray(data)
        self.corrupt = [self.randomness.randrange(max(self.length, 1)) if at is None else at for at in self.corrupt]
        for at in self.corrupt:
            at = (at + self.length if at < 0 else at) - self.n_body
            if 0 <= at < len(data):
                data[at] ^= 1
        return bytes(data)

    async def _write(self, data):
        for says in self.slow:
            if says.get("bytes_per_sec"):
                await asyncio.sleep(len(data) / says["bytes_per_sec"])
        if data:
            self.writer.write(data)
            self.n_sent += len(data)
            try:
                await self.writer.drain()
            except OSError as e:
                raise Deaf(str(e)) from None

    async def _strike(self, rule):
        self.cuts.remove(rule)
        if rule.fault == "reset":
            await flushed(self.writer)
            raise Reset("as told")
        if rule.fault == "truncate":
            raise End("as told")
        while not self.released.is_set():
            if self.gone():
                raise Reset("the client went while it was stalled")
            try:
                await asyncio.wait_for(self.released.wait(), 0.05)
            except asyncio.TimeoutError:
                pass


class Nowhere:
    """Where a reply goes that nobody is to get."""

    def write(self, data):
        pass

    async def drain(self):
        pass


async def flushed(writer):
    """What was written has gone to the kernel; bounded, for the other side may not read."""
    transport = writer.transport
    for _ in range(100):
        if transport.is_closing() or transport.get_write_buffer_size() == 0:
            return
        await asyncio.sleep(0.01)


async def read_head(reader, kind):
    try:
        return kind(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError as e:
        if e.partial:
            raise Reset("half a head") from None
        return None


async def pass_body(reader, head, relay, until_close=False):
    if head.chunked:
        while True:
            line = await reader.readuntil(b"\r\n")
            await relay.send(line)
            left = int(line.split(b";")[0], 16)
            if left == 0:
                while line != b"\r\n":
                    line = await reader.readuntil(b"\r\n")
                    await relay.send(line)
                return
            await pass_bytes(reader, left, relay)
            await relay.send(await reader.readexactly(2))
    elif "content-length" in head.headers:
        await pass_bytes(reader, head.length, relay)
    elif until_close:
        while data := await reader.read(PIECE):
            await relay.send(data, body=True)


async def pass_bytes(reader, left, relay):
    while left > 0:
        data = await reader.read(min(PIECE, left))
        if not data:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(data)
        await relay.send(data, body=True)


def reset(writer):
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def answer_of(says, request):
    """The reply of a fault "status"."""
    status, code = says.get("status", 500), says.get("code", "InternalError")
    body = says.get("body")
    if body is None:
        body = ('<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>%s</Message>'
                "<RequestId>fault-proxy</RequestId></Error>" % (code, says.get("message", "as told")))
    body = body.encode()
    headers = {"Date": email.utils.formatdate(usegmt=True), "Content-Type": "application/xml", "Content-Length": len(body)}
    if "retry_after" in says:
        headers["Retry-After"] = says["retry_after"]
    headers.update(says.get("headers", {}))
    head = "HTTP/1.1 %d As-Told\r\n%s\r\n\r\n" % (status, "\r\n".join("%s: %s" % item for item in headers.items()))
    return status, head.encode() + (b"" if request.method == "HEAD" else body)


class Connection:
    """One client, and the connection to the server that is its own."""

    def __init__(self, proxy, reader, writer):
        self.proxy, self.reader, self.writer = proxy, reader, writer
        self.server, self.used = None, 0.0
        self.address = writer.get_extra_info("peername")[0]

    def client_gone(self):
        return self.writer.transport.is_closing() or self.reader.at_eof()

    async def serve(self):
        try:
            while request := await read_head(self.reader, Request):
                request.client = self.address
                self.proxy.begin(request)
                try:
                    await self.exchange(request)
                except End as e:
                    request.broken = str(e)
                    raise
                except Exception as e:
                    request.broken = str(e) or type(e).__name__
                    raise
                finally:
                    self.proxy.end(request)
                if request.close:
                    break
        except End:
            pass
        except (Reset, Deaf, OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            reset(self.writer)
        finally:
            if self.server:
                self.server[1].transport.abort()
            await flushed(self.writer)
            self.writer.close()

    async def connect(self):
        if self.server and (self.server[0].at_eof() or time.monotonic() - self.used > IDLE_SEC):
            self.server[1].close()
            self.server = None
        if not self.server:
            self.server = await asyncio.open_connection(*self.proxy.server, limit=HEAD_MAX)
        return self.server

    async def exchange(self, request):
        rules = [rule for rule in self.proxy.rules if rule.fires(request, self.proxy.randomness)]
        released = self.proxy.released  # who releases what stalls means what has fired, stalled already or not
        self.proxy.changed()
        request.faults = [rule.id for rule in rules]
        status = next((rule.says for rule in rules if rule.fault == "status"), None)
        refusal = next((said for rule in rules if rule.fault == "clock" for said in [self.by_clock(rule, request)] if said),
                       None)
        if refusal or (status and not status.get("acted")):
            return await self.answer(request, refusal or status)
        for rule in rules:
            if rule.fault == "clock":
                request = self.signed_anew(request)
        reader, writer = await self.connect()
        up = Relay(writer, [r for r in rules if r.where == "request"], self.client_gone, released,
                   self.proxy.randomness)
        sending = asyncio.create_task(self.send(request, up))
        receiving = asyncio.create_task(self.receive(request, reader, rules, status, released))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and sending.exception() and not isinstance(sending.exception(), Deaf):
                raise sending.exception()
            await receiving  # also when the server does not take the rest: it may say why
            await asyncio.wait({sending}, timeout=0.5)
            if not sending.done() or sending.exception():
                await self.refused_early()
                raise End("the server did not want all of it")
        finally:
            request.bytes_in = up.n_sent
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
        self.used = time.monotonic()

    async def send(self, request, relay):
        await relay.begin(request)
        await pass_body(self.reader, request, relay)
        await relay.end()

    async def receive(self, request, reader, rules, status, released):
        lose = any(rule.fault == "lose" for rule in rules)
        relay = Relay(Nowhere() if lose or status else self.writer,
                      [] if lose or status else [r for r in rules if r.where == "reply"], self.client_gone, released,
                      self.proxy.randomness)
        try:
            while True:
                head = await read_head(reader, Head)
                if head is None:
                    raise Reset("the server closed the connection")
                if len(head.first) < 2 or not head.first[1].isdigit():
                    raise Reset("a reply without a status")
                request.status = int(head.first[1])
                if request.status >= 200:
                    break
                await relay.send(head.raw)
            for rule in rules:
                if rule.fault in ("date", "clock"):
                    head = head.replaced("Date", self.date(rule))
            await relay.begin(head)
            bodiless = request.method == "HEAD" or request.status in (204, 304)
            until_close = "content-length" not in head.headers and not head.chunked
            if not bodiless:
                await pass_body(reader, head, relay, until_close)
            await relay.end()
        finally:
            request.bytes_out = relay.n_sent
        if lose:
            raise Reset("as told")
        if status:
            request.status, answer = answer_of(status, request)
            self.writer.write(answer)
            await self.writer.drain()
        if head.close or (until_close and not bodiless):
            raise End("")

    async def answer(self, request, says):
        """Without the server. A client that waits for "100 Continue" is not made to send its body."""
        request.status, answer = answer_of(says, request)
        expects = "expect" in request.headers
        if not expects:
            await pass_body(self.reader, request, Relay(Nowhere(), [], self.client_gone, None, None))
        self.writer.write(answer)
        await self.writer.drain()
        if expects and request.has_body:
            await self.refused_early()
            raise End("")

    async def refused_early(self):
        """Who still sends would get a reset before he has read the answer: so it is read a while."""
        await flushed(self.writer)
        if self.writer.can_write_eof():
            self.writer.write_eof()

        async def drain():
            while await self.reader.read(PIECE):
                pass
        try:
            await asyncio.wait_for(drain(), LINGER_SEC)
        except (asyncio.TimeoutError, OSError):
            pass

    # ---- the server's clock ----

    def date(self, rule):
        return email.utils.formatdate(time.time() + rule.says["skew_sec"], usegmt=True)

    def by_clock(self, rule, request):
        """The refusal of what was not signed by that clock."""
        try:
            signed = datetime.datetime.strptime(request.headers.get("x-amz-date", ""), "%Y%m%dT%H%M%SZ")
        except ValueError:
            return {"status": 403, "code": "AccessDenied", "message": "x-amz-date is missing"}
        signed = signed.replace(tzinfo=datetime.timezone.utc)
        headers = {"Date": self.date(rule)}
        if abs(signed.timestamp() - time.time() - rule.says["skew_sec"]) > 900:
            return {"status": 403, "code": "RequestTimeTooSkewed", "headers": headers,
                    "message": "The difference between the request time and the current time is too large."}
        if self.signature(request, signed) != request.headers.get("authorization"):
            return {"status": 403, "code": "SignatureDoesNotMatch", "headers": headers}
        return None

    def signature(self, request, now):
        names = re.search("SignedHeaders=([^,]*)", request.headers.get("authorization", ""))
        headers = {name: request.headers.get(name, "") for name in names.group(1).split(";")} if names else {}
        signer = self.proxy.signer
        signer.host = request.headers["host"]
        signed = signer.sign(request.method, request.target_path, request.query, headers,
                             request.headers.get("x-amz-content-sha256", ""), now)
        return signed["authorization"]

    def signed_anew(self, request):
        now = datetime.datetime.now(datetime.timezone.utc)
        authorization = self.signature(request, now)
        renewed = request.replaced("Authorization", authorization).replaced("x-amz-date", now.strftime("%Y%m%dT%H%M%SZ"))
        request.raw = renewed.raw
        return request


class Proxy:
    def __init__(self, options):
        url = urllib.parse.urlsplit(options.to)
        self.server = (url.hostname, url.port)
        address, _, port = options.address.partition(":")
        self.address, self.port = address, int(port) if port else service.free_port(address)
        self.tls = None
        if options.tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*options.tls)
        access_key, _, secret_key = options.keys.partition(" ")
        self.signer = s3client.Client(options.to, access_key, secret_key)
        self.randomness = random.Random(options.seed)
        self.rules, self.n_rules, self.listener, self.connections = [], 0, None, set()
        self.requests = collections.deque()
        self.released, self.change = asyncio.Event(), asyncio.Event()

    # ---- clients ----

    async def listen(self, is_open):
        if is_open and not self.listener:
            self.listener = await asyncio.start_server(self.accept, self.address, self.port, ssl=self.tls, limit=HEAD_MAX,
                                                       backlog=1024)
        elif not is_open and self.listener:
            self.listener.close()
            self.listener = None
            for writer in list(self.connections):
                reset(writer)

    async def accept(self, reader, writer):
        self.connections.add(writer)
        try:
            await Connection(self, reader, writer).serve()
        except asyncio.CancelledError:
            pass  # the proxy ends
        finally:
            self.connections.discard(writer)

    def begin(self, request):
        self.requests.append(request)
        while len(self.requests) > LOG_MAX:
            self.requests.popleft()

    def end(self, request):
        request.ended = time.monotonic()
        self.changed()

    def changed(self):
        self.change.set()
        self.change = asyncio.Event()

    # ---- commands ----

    async def commanded(self, reader, writer):
        try:
            while line := await reader.readline():
                try:
                    says = json.loads(line)
                    answer = await getattr(self, "do_" + str(says.pop("do", "")))(**says) or {}
                except (Wrong, re.error, ValueError, TypeError, AttributeError) as e:
                    answer = {"error": "%s: %s" % (type(e).__name__, e)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def do_add(self, rules):
        made = [Rule(self.n_rules + 1 + i, says) for i, says in enumerate(rules)]
        self.rules += made
        self.n_rules += len(made)
        return {"ids": [rule.id for rule in made]}

    async def do_rules(self):
        return {"rules": [{"id": rule.id, "seen": rule.seen, "fired": rule.fired} for rule in self.rules]}

    async def do_remove(self, id):
        self.rules = [rule for rule in self.rules if rule.id != id]

    async def do_clear(self):
        self.rules = []
        await self.do_release()

    async def do_release(self):
        self.released.set()
        self.released = asyncio.Event()

    async def do_listen(self, open):
        await self.listen(open)

    def _matching(self, match):
        match = Match(match)
        return [request for request in self.requests if match(request)]

    async def do_count(self, match={}):
        found = self._matching(match)
        edges = sorted([(r.began, 1) for r in found] + [(r.ended, -1) for r in found if r.ended is not None])
        now = most = 0
        for _, step in edges:
            now += step
            most = max(most, now)
        return {"n": len(found), "under_way": now, "most_at_once": most}

    async def do_log(self, match={}):
        return {"requests": [request.says() for request in self._matching(match)]}

    async def do_forget(self):
        self.requests = collections.deque(request for request in self.requests if request.ended is None)

    async def do_wait(self, match={}, rule=None, n=1, ended=False, timeout=60):
        def count():
            if rule is not None:
                return sum(r.fired for r in self.rules if r.id == rule)
            return sum(not ended or r.ended is not None for r in self._matching(match))
        deadline = time.monotonic() + timeout
        while count() < n:
            left = deadline - time.monotonic()
            try:
                await asyncio.wait_for(self.change.wait(), left)
            except asyncio.TimeoutError:
                raise Wrong("after %g s there were %d of %d" % (timeout, count(), n)) from None


async def live(options):
    proxy, loop, over = Proxy(options), asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    try:
        loop.add_reader(os.pidfd_open(options.patron), over.set)
    except ProcessLookupError:
        return
    await proxy.listen(True)
    folder = None if options.control else tempfile.mkdtemp(prefix="sdtrain-proxy-")
    control = options.control or folder + "/control"
    await asyncio.start_unix_server(proxy.commanded, control, limit=1 << 20)
    print(json.dumps({"endpoint": "%s://%s:%d" % ("https" if proxy.tls else "http", proxy.address, proxy.port),
                      "control": control, "pid": os.getpid()}), flush=True)
    await over.wait()
    os.unlink(control)
    if folder:
        os.rmdir(folder)


class Remote:
    """A proxy in a process of its own, told what to do from a Python test."""

    def __init__(self, to, *arguments, keys=None, inside=()):
        """inside: what a command begins with to run on another machine."""
        command = [*inside, sys.executable, "-B", os.path.realpath(__file__), "--to", to, *arguments]
        self.process = subprocess.Popen(command + (["--keys", keys] if keys else []), stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        says = json.loads(self.process.stdout.readline())
        self.endpoint, self.pid = says["endpoint"], says["pid"]
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(says["control"])
        self.lines = self.socket.makefile("rw")

    def do(self, what, **more):
        self.lines.write(json.dumps(dict(more, do=what)) + "\n")
        self.lines.flush()
        answer = json.loads(self.lines.readline())
        if "error" in answer:
            raise AssertionError("%s %s: %s" % (what, more, answer["error"]))
        return answer

    def add(self, fault, match=None, **more):
        """One rule; its id."""
        return self.do("add", rules=[dict(more, fault=fault, match=match or {})])["ids"][0]

    def close(self):
        self.lines.close()
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def main():
    parser = argparse.ArgumentParser(description="a proxy that breaks S3; tests/s3/README.md")
    parser.add_argument("--to", required=True, help="the server's endpoint, http://ADDRESS:PORT")
    parser.add_argument("--address", default="127.0.0.1", help="where it listens, ADDRESS[:PORT]")
    parser.add_argument("--control", help="its Unix socket")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"), help="speaks TLS to its clients")
    parser.add_argument("--keys", default="", metavar="'ACCESS SECRET'", help="for the fault clock")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--while", type=int, dest="patron", default=os.getppid(), metavar="PID")
    asyncio.run(live(parser.parse_args()))


if __name__ == "__main__":
    main()

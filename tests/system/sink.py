# SPDX-License-Identifier: Apache-2.0
"""A place that pages are sent to: answers as it is told, and keeps what it got as the real ones would.

Behaviours, one for each request of a path, then "accept" for ever: a number is that status and nothing is taken;
(status, headers) likewise; "stall" answers when the server is closed; "close" hangs up at once; "lost" takes the
message and hangs up without an answer; "garbage" answers what is not HTTP.
"""
import collections
import datetime
import http.server
import json
import ssl
import threading
import time


def seconds(text):
    """Of a time as "2026-01-31T12:00:00.123Z"."""
    moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp()


class Sink:
    def __init__(self, certificate=None):
        """certificate: a PEM file with the key, for https."""
        self.lock = threading.Condition()
        self.requests = []  # of all that came: (path, headers, body, when, taken)
        self.behaviours = collections.defaultdict(collections.deque)
        self.open, self.opened, self.resolved = set(), collections.Counter(), collections.Counter()
        self.seen = set()  # Idempotency-Keys
        self.first = {}  # when a (path, key) was first taken
        self.closed = threading.Event()
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                sink.serve(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

            def handle_error(self, *_):
                pass  # whoever called may be gone

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def forget(self):
        """As new, with what still stalls let go."""
        with self.lock:
            self.closed.set()
            self.closed = threading.Event()
            for kept in (self.requests, self.behaviours, self.open, self.opened, self.resolved, self.seen, self.first):
                kept.clear()

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()

    def expect(self, path, *behaviours):
        with self.lock:
            self.behaviours[path].extend(behaviours)

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            queue = self.behaviours[handler.path]
            behaviour = queue.popleft() if queue else "accept"
            taken = behaviour in ("accept", "lost")
            if taken:
                self.take(handler.path, handler.headers, body)
            self.requests.append((handler.path, dict(handler.headers), body, time.time(), behaviour))
            self.lock.notify_all()
            closed = self.closed
        if behaviour == "stall":
            closed.wait()
        if behaviour in ("stall", "close", "lost"):
            handler.close_connection = True
            return
        if behaviour == "garbage":
            handler.wfile.write(b"\0\xff 200 OK\r\n" * 100)
            handler.close_connection = True
            return
        status, headers = behaviour if isinstance(behaviour, tuple) else (behaviour, {})
        status = 202 if status == "accept" else status
        text = json.dumps({"status": "success" if status == 202 else "invalid event",
                           "message": "event processed" if status == 202 else "try \x1b[1mharder"}).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def take(self, path, headers, body):
        """As PagerDuty, Alertmanager and a careful webhook would: a page is opened only if it is not open."""
        if isinstance(body, list):
            for alert in body:
                key = json.dumps(alert["labels"], sort_keys=True)
                self.change((path, key), seconds(alert["endsAt"]) > time.time())
        elif "routing_key" in body:
            self.change((path, body["dedup_key"]), body["event_action"] == "trigger")
        elif body["event"] != "alive":
            if headers["Idempotency-Key"] in self.seen:
                return
            self.seen.add(headers["Idempotency-Key"])
            self.change((path, body["key"]), body["event"] == "triggered")

    def change(self, key, is_open):
        if is_open and key not in self.open:
            self.open.add(key)
            self.opened[key] += 1
            self.first.setdefault(key, time.time())
        elif not is_open and key in self.open:
            self.open.remove(key)
            self.resolved[key] += 1

    def wait(self, condition, what, timeout=60):
        """Until condition(), asked after each request, gives something true, which it returns."""
        with self.lock:
            if not self.lock.wait_for(condition, timeout):
                raise AssertionError("not within %d s: %s; opened %s, resolved %s, got %s" % (
                    timeout, what, dict(self.opened), dict(self.resolved),
                    [(path, behaviour, body) for path, _, body, _, behaviour in self.requests[-20:]]))
            return condition()

    def of(self, path):
        with self.lock:
            return [request for request in self.requests if request[0] == path]

# SPDX-License-Identifier: Apache-2.0
"""Servers that refuse, and repeat what they were told: as it came, and in the forms in which servers write it.

What each says begins with what it was handed, since a client reads a refusal's beginning alone.
"""
import base64
import json
import socket
import struct
import threading
import urllib.parse

from mailserver import Mailserver, Session

SHAPES = ("plain", "percent", "base64", "json", "html")


def shaped(text, shape):
    if shape == "percent":
        return urllib.parse.quote(text, safe="")
    if shape == "base64":
        return base64.b64encode(text.encode()).decode()
    if shape == "json":
        return json.dumps(text).replace("/", "\\/")
    if shape == "html":
        return text.replace("&", "&amp;").replace('"', "&quot;").replace("/", "&#x2F;").replace("+", "&#43;")
    return text


def forms(secret):
    """Words that no text may have: the secret as it is, escaped, and the middle of its base64 at every alignment."""
    found = {shaped(secret, shape) for shape in ("plain", "percent", "html")} | {shaped(secret, "json")[1:-1]}
    found.add(urllib.parse.unquote(secret))
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + secret.encode()).decode()
        core = coded[(8 * before + 5) // 6:8 * (before + len(secret.encode())) // 6]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return found


class Echo:
    """HTTP. `shape` is how it says it, `status` with what; `kind` "s3" and "sts" put it into an <Error>, "metadata" gives
    an instance's token and role before it refuses, "text" says it alone."""

    def __init__(self, kind="text"):
        self.kind, self.shape, self.status = kind, "plain", 403
        self.gives = ""  # the token of an instance
        self.requests = 0
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.place = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.url = "http://" + self.place
        threading.Thread(target=self._run, daemon=True).start()

    def close(self):
        self.socket.close()

    def _run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as file:
            try:
                while self._answer(connection, file):
                    pass
            except OSError:
                pass  # whoever called may be gone

    def _answer(self, connection, file):
        line = file.readline().decode("latin-1")
        if not line.strip():
            return False
        headers = []
        while True:
            header = file.readline().decode("latin-1").rstrip("\r\n")
            if not header:
                break
            headers.append(header.partition(": ")[::2])
        named = {name.lower(): value for name, value in headers}
        body = file.read(int(named.get("content-length", 0))).decode("latin-1")
        self.requests += 1
        method, target = line.split()[:2]
        if self.kind == "metadata" and method == "PUT":
            self._send(connection, 200, "", self.gives)
            return True
        if self.kind == "metadata" and target.endswith("/security-credentials/"):
            self._send(connection, 200, "", "role")
            return True
        self._send(connection, self.status, *self._words(target, named, body, method == "HEAD"))
        return True

    def _words(self, target, named, body, bare):
        """(a header's text, a body): what is secret comes first, and the whole request after it."""
        handed = [named[name] for name in ("authorization", "proxy-authorization", "x-amz-security-token",
                                           "x-aws-ec2-metadata-token") if name in named]
        handed = [word for value in handed if not value.startswith("AWS4") for word in value.split()[-1:]]
        if "proxy-authorization" in named:
            handed.append(base64.b64decode(handed.pop()).decode())
        for key in ("WebIdentityToken", "routing_key"):
            handed += urllib.parse.parse_qs(body).get(key, [])
        if body.startswith("{") and "routing_key" in body:
            handed.append(json.loads(body)["routing_key"])
        if target.count("/") > 1 and not target.startswith(("/latest", "/bucket", "http:")):
            handed.append(target)
        whole = " ".join(handed + [target] + ["%s: %s" % pair for pair in named.items()] + [body])
        said = shaped(whole, self.shape)
        first = shaped(" ".join(handed), self.shape)
        if bare:
            return first[:60], ""
        if self.kind in ("s3", "sts"):
            escaped = said if self.shape == "html" else said.replace("&", "&amp;").replace("<", "&lt;")
            error = "<Error><Code>AccessDenied</Code><Message>%s</Message><RequestId>%s</RequestId></Error>" % (
                escaped, escaped)
            return first, "<ErrorResponse>%s</ErrorResponse>" % error if self.kind == "sts" else error
        if self.kind == "metadata":
            return first, json.dumps({"Code": "Refused", "Message": said})
        return first, said

    def _send(self, connection, status, header, body):
        body = body.encode("latin-1", "replace")
        extra = "X-Amz-Request-Id: %s\r\n" % header[:200].replace("\n", " ") if header else ""
        connection.sendall(("HTTP/1.1 %d %s\r\nContent-Length: %d\r\n%s\r\n" % (status, header[:100] or "Fine", len(body),
                                                                              extra)).encode("latin-1") + body)


class EchoMail(Mailserver):
    """Refuses whoever authenticates, with its own words."""
    shape = "plain"

    def serve(self, connection):
        session = EchoSession(self, connection)
        try:
            session.run()
        except (OSError, EOFError):
            pass
        finally:
            session.socket.close()


class EchoSession(Session):
    def on_auth(self, argument):
        _, _, coded = argument.partition(" ")
        if not coded:
            self.say("334 ")
            coded = self.line().decode().strip()
        password = base64.b64decode(coded).decode().split("\0")[2]
        self.say("535 5.7.8 %s and %s are wrong" % (shaped(password, self.server.shape), coded))


def _hpack(name, value):
    def text(one):
        one = one.encode("latin-1")
        if len(one) < 127:
            return bytes([len(one)]) + one
        rest, size = len(one) - 127, b"\x7f"
        while rest >= 128:
            size += bytes([rest % 128 + 128])
            rest //= 128
        return size + bytes([rest]) + one
    return b"\0" + text(name) + text(value)


class EchoEtcd:
    """A member that gives a token, and refuses all else with the token and the password that it was given: enough of HTTP/2
    for gRPC to take it for one."""
    HEADERS, DATA, SETTINGS, PING = 1, 0, 4, 6

    def __init__(self, password, token):
        self.password, self.token, self.shape = password, token, "plain"
        self.authenticates = bool(token)
        self.refused = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.place = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self):
        self.socket.close()

    def _run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as file:
            try:
                if file.read(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":
                    self._send(connection, self.SETTINGS, 0, 0, b"")
                    while self._frame(connection, file):
                        pass
            except OSError:
                pass

    def _send(self, connection, kind, flags, stream, payload):
        connection.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def _frame(self, connection, file):
        head = file.read(9)
        if len(head) < 9:
            return False
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream, payload = int.from_bytes(head[5:], "big"), file.read(size)
        if kind == self.SETTINGS and not flags & 1:
            self._send(connection, self.SETTINGS, 1, 0, b"")
        elif kind == self.PING and not flags & 1:
            self._send(connection, self.PING, 1, 0, payload)
        elif kind == self.DATA and size > 5:
            self._answer(connection, stream, payload)
        return True

    def _answer(self, connection, stream, payload):
        head = b"\x88" + _hpack("content-type", "application/grpc")
        if self.authenticates and self.password.encode() in payload:
            token = self.token.encode()
            size = bytes([len(token)]) if len(token) < 128 else bytes([len(token) % 128 + 128, len(token) // 128])
            answer = b"\x0a\x00\x12" + size + token  # with a header, without which it is not an answer
            self._send(connection, self.HEADERS, 4, stream, head)
            self._send(connection, self.DATA, 0, stream, b"\0" + struct.pack(">I", len(answer)) + answer)
            self._send(connection, self.HEADERS, 5, stream, _hpack("grpc-status", "0"))
            return
        self.refused += 1
        words = shaped(self.token + ":" + self.password, self.shape) + " and " + payload.decode("latin-1")
        status = _hpack("grpc-status", "7") + _hpack("grpc-message", urllib.parse.quote(words, safe=" :'/"))
        self._send(connection, self.HEADERS, 5, stream, head + status)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The S3 store over TLS, through an HTTP proxy, and with the bucket in the host's name."""
import http.client
import http.server
import os
import select
import socket
import subprocess
import sys
import threading
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from store_test import PART, StoreTest  # noqa: E402

EACCES, EHOSTUNREACH = -13, -113


class HttpProxy:
    """Forwards requests for http:// and opens tunnels for https://, on loopback; remembers what it was asked."""

    def __init__(self):
        proxy, self.asked = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                url = urllib.parse.urlsplit(self.path)
                proxy.asked.append("%s %s" % (self.command, url.netloc))
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                there = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
                there.request(self.command, url.path + ("?" + url.query if url.query else ""), body, dict(self.headers))
                reply = there.getresponse()
                data = reply.read()
                self.send_response_only(reply.status, reply.reason)
                for name, value in reply.getheaders():
                    if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                        self.send_header(name, value)
                length = reply.getheader("Content-Length") if self.command == "HEAD" else len(data)
                if length is not None and reply.status != 204:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(data)
                there.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

            def do_CONNECT(self):
                proxy.asked.append("CONNECT " + self.path)
                host, _, port = self.path.rpartition(":")
                with socket.create_connection((host, int(port)), 60) as there:
                    self.send_response_only(200)
                    self.end_headers()
                    other = {self.connection: there, there: self.connection}
                    while ready := select.select(list(other), [], [], 60)[0]:
                        for side in ready:
                            data = side.recv(1 << 16)
                            if not data:
                                self.close_connection = True
                                return
                            other[side].sendall(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Transport(StoreTest):
    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=60)

    def make_authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                     "-keyout", name + ".key", "-out", name + ".pem", "-subj", "/CN=" + name)
        return os.path.join(self.folder, name + ".pem")

    def make_certificate(self, name, authority, host):
        with open(os.path.join(self.folder, name + ".ext"), "w") as file:
            file.write("subjectAltName=" + host)
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key",
                     "-out", name + ".csr", "-subj", "/CN=" + name)
        self.openssl("x509", "-req", "-in", name + ".csr", "-CA", authority + ".pem", "-CAkey", authority + ".key",
                     "-CAcreateserial", "-days", "2", "-extfile", name + ".ext", "-out", name + ".pem")
        return [os.path.join(self.folder, name + end) for end in (".pem", ".key")]

    def serve_tls(self, host="IP:127.0.0.1"):
        """The fault proxy speaks TLS from now on; its authority."""
        ours = self.make_authority("ours")
        self.start_proxy("--tls", *self.make_certificate("server", "ours", host))
        return ours

    def http_proxy(self):
        proxy = HttpProxy()
        self.addCleanup(proxy.close)
        return proxy

    def round_trip(self):
        small, large = self.bytes(3000), self.bytes(2 * PART + 1)
        self.put("a small/one", small)
        self.put("large", large)
        self.assertEqual(self.get("a small/one"), small)
        self.assertEqual(self.ok("fetch", "large", n=len(large))[1], large)
        self.assertEqual(self.ok("list")[0]["keys"], ["a small/one", "large"])
        self.assertEqual(self.ok("head", "large")[0]["n"], len(large))
        self.delete("a small/one")

    # ---- TLS ----

    def test_tls(self):
        self.begin(AWS_CA_BUNDLE=self.serve_tls())
        self.round_trip()
        rule = self.proxy.add("reset", {"method": "GET"}, where="reply", after=300)
        self.put("again", b"x" * 3000)
        self.assertEqual(self.get("again"), b"x" * 3000)
        self.fired(rule)

    def test_tls_of_others(self):
        """Another authority, or another host's certificate: refused at once, with a text that says so."""
        self.serve_tls()
        self.begin(AWS_CA_BUNDLE=self.make_authority("theirs"))
        self.refused(EACCES, "certificate", "put", "it", data=b"x")
        self.refused_to_begin("none.pem", AWS_CA_BUNDLE=os.path.join(self.folder, "none.pem"))
        self.begin()  # the system's authorities
        self.refused(EACCES, "certificate", "get", "it")
        self.begin(AWS_CA_BUNDLE=self.serve_tls("DNS:elsewhere.example"))
        self.refused(EACCES, "subject name|host name", "get", "it")
        self.assertEqual(self.proxy.do("count")["n"], 0)  # nobody was told anything

    # ---- an HTTP proxy ----

    def test_http_proxy(self):
        proxy = self.http_proxy()
        self.begin(http_proxy=proxy.url)
        self.round_trip()
        there = self.proxy.endpoint.rpartition("/")[2]
        self.assertEqual({line.split()[1] for line in proxy.asked}, {there})
        n = len(proxy.asked)
        self.begin(http_proxy=proxy.url, no_proxy="127.0.0.1")
        self.put("past it", b"x")
        self.assertEqual(len(proxy.asked), n)

    def test_tunnel(self):
        proxy = self.http_proxy()
        self.begin(AWS_CA_BUNDLE=self.serve_tls(), https_proxy=proxy.url)
        self.round_trip()
        self.assertEqual(set(proxy.asked), {"CONNECT " + self.proxy.endpoint.rpartition("/")[2]})

    def test_http_proxy_that_is_away(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            self.begin(http_proxy="http://127.0.0.1:%d" % nobody.getsockname()[1], SDTRAIN_S3_DEADLINE_SEC="2")
            self.refused(EHOSTUNREACH, "connect", "get", "it")

    # ---- where the bucket stands ----

    def test_virtual_host(self):
        """BUCKET.localhost is loopback, and the gateway's domain is localhost."""
        port = self.proxy.endpoint.rpartition(":")[2]
        for style, prefix in (("virtual", "/"), ("path", "/%s/" % self.bucket)):
            with self.subTest(style=style):
                self.begin(AWS_ENDPOINT_URL="http://localhost:" + port, SDTRAIN_S3_ADDRESSING=style)
                self.proxy.do("forget")
                self.round_trip()
                paths = {r["path"] for r in self.proxy.do("log")["requests"] if r["query"].startswith("partNumber")}
                self.assertEqual(paths, {prefix + "store/large"})
                self.delete("large")


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests' own S3 client: signs by itself, tries nothing twice, hides nothing. Standard library only.

What it is for is to set up buckets and to look, from outside, at what the product has left in them. Server and keys
are in the environment: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.

  s3client.py make BUCKET                   a new bucket
  s3client.py put FOLDER s3://BUCKET/PREFIX all files of the folder
  s3client.py get s3://BUCKET/KEY           the object
  s3client.py list s3://BUCKET/PREFIX       a line of JSON: {key: bytes}
  s3client.py uploads s3://BUCKET/PREFIX    a line of JSON: [[key, id]...] of what was begun in parts and not ended
"""
import datetime
import hashlib
import hmac
import http.client
import json
import os
import re
import ssl
import sys
import urllib.parse
import xml.etree.ElementTree


class Refused(Exception):
    def __init__(self, what, status, body):
        code = re.search(rb"<Code>([^<]*)</Code>", body)
        self.status, self.code = status, code.group(1).decode() if code else ""
        super().__init__("%s: %d %s" % (what, status, self.code or body[:200]))


def encode(text, safe=""):
    return urllib.parse.quote(text, safe="-._~" + safe)


def split(uri):
    """(bucket, key or prefix) of s3://BUCKET/KEY"""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError("%s is not s3://BUCKET/..." % uri)
    return bucket, key


class Client:
    def __init__(self, endpoint, access_key, secret_key, region="us-east-1", token=None, ca=None):
        url = urllib.parse.urlsplit(endpoint)
        self.host, self.address, self.region = url.netloc, (url.hostname, url.port), region
        self.access_key, self.secret_key, self.token = access_key, secret_key, token
        self.tls = ssl.create_default_context(cafile=ca) if url.scheme == "https" else None

    @classmethod
    def of_environment(cls, environment=os.environ):
        return cls(environment["AWS_ENDPOINT_URL"], environment["AWS_ACCESS_KEY_ID"],
                   environment["AWS_SECRET_ACCESS_KEY"], environment.get("AWS_REGION", "us-east-1"))

    def sign(self, method, path, query, headers, payload_hash, now=None):
        """The headers of a request, signed (AWS Signature Version 4), the Host among them."""
        now = now or datetime.datetime.now(datetime.timezone.utc)
        date, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = dict({name.lower(): value for name, value in headers.items()},
                       **{"host": self.host, "x-amz-date": date, "x-amz-content-sha256": payload_hash})
        if self.token:
            headers["x-amz-security-token"] = self.token
        names = ";".join(sorted(headers))
        canonical = "\n".join([method, path, query, *("%s:%s" % (n, headers[n].strip()) for n in sorted(headers)), "",
                               names, payload_hash])
        scope = "%s/%s/s3/aws4_request" % (day, self.region)
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + self.secret_key).encode()
        for part in (*scope.split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        headers["authorization"] = "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
            self.access_key, scope, names, key.hex())
        return headers

    def connect(self, timeout=60):
        if self.tls:
            return http.client.HTTPSConnection(*self.address, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def ask(self, method, path, query=(), body=b"", headers=(), timeout=60):
        """(status, headers with small names, body) of one request. path: "/bucket/key", not encoded."""
        path = encode(path, "/")
        query = "&".join("%s=%s" % (encode(k), encode(v)) for k, v in sorted(dict(query).items()))
        signed = self.sign(method, path, query, dict(headers), hashlib.sha256(body).hexdigest())
        connection = self.connect(timeout)
        try:
            connection.request(method, path + ("?" + query if query else ""), body, signed)
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def do(self, method, path, *arguments, **more):
        status, headers, body = self.ask(method, path, *arguments, **more)
        if status // 100 != 2:
            raise Refused("%s %s" % (method, path), status, body)
        return headers, body

    # ---- buckets ----

    def make_bucket(self, bucket):
        self.do("PUT", "/" + bucket)

    def remove_bucket(self, bucket):
        """With all that is in it."""
        for key, upload in self.uploads(bucket):
            self.do("DELETE", "/%s/%s" % (bucket, key), {"uploadId": upload})
        for key in self.list(bucket):
            self.do("DELETE", "/%s/%s" % (bucket, key))
        self.do("DELETE", "/" + bucket)

    # ---- objects ----

    def put(self, bucket, key, body, **headers):
        self.do("PUT", "/%s/%s" % (bucket, key), body=body, headers=headers)

    def get(self, bucket, key):
        return self.do("GET", "/%s/%s" % (bucket, key))[1]

    def delete(self, bucket, key):
        self.do("DELETE", "/%s/%s" % (bucket, key))

    def _pages(self, bucket, query, item):
        while True:
            root = xml.etree.ElementTree.fromstring(self.do("GET", "/" + bucket, query)[1])
            space = root.tag[:root.tag.index("}") + 1] if root.tag.startswith("{") else ""
            text = lambda node, name: node.findtext(space + name)  # noqa: E731
            for node in root.findall(space + item):
                yield node, text
            if text(root, "IsTruncated") != "true":
                return
            for name, parameter in (("NextContinuationToken", "continuation-token"), ("NextKeyMarker", "key-marker"),
                                    ("NextUploadIdMarker", "upload-id-marker")):
                if text(root, name):
                    query[parameter] = text(root, name)

    def list(self, bucket, prefix=""):
        """{key: bytes}"""
        query = {"list-type": "2", "prefix": prefix}
        return {text(node, "Key"): int(text(node, "Size")) for node, text in self._pages(bucket, query, "Contents")}

    def uploads(self, bucket, prefix=""):
        """[(key, upload id)] of what was begun in parts and neither completed nor aborted."""
        query = {"uploads": "", "prefix": prefix}
        return [(text(node, "Key"), text(node, "UploadId")) for node, text in self._pages(bucket, query, "Upload")]

    def put_folder(self, folder, uri):
        bucket, prefix = split(uri)
        for where, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(where, name)
                with open(path, "rb") as file:
                    self.put(bucket, prefix.rstrip("/") + "/" + os.path.relpath(path, folder), file.read())


def main(arguments):
    client = Client.of_environment()
    if len(arguments) == 2 and arguments[0] == "make":
        client.make_bucket(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "put":
        client.put_folder(*arguments[1:])
    elif len(arguments) == 2 and arguments[0] == "get":
        sys.stdout.buffer.write(client.get(*split(arguments[1])))
    elif len(arguments) == 2 and arguments[0] in ("list", "uploads"):
        print(json.dumps(getattr(client, arguments[0])(*split(arguments[1]))))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Refused, OSError, ValueError) as e:
        sys.exit("s3client.py: %s" % e)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does not belong into a checkpoint folder in S3: objects that no manifest names, parts of uploads that nobody
ended. usage: leftovers.py s3://BUCKET/PREFIX; exits 1 when there is anything."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import s3client  # noqa: E402


def find(client, uri):
    """[what it is]"""
    bucket, prefix = s3client.split(uri.rstrip("/") + "/")
    keys = {key[len(prefix):]: size for key, size in client.list(bucket, prefix).items()}
    named = {"metrics.jsonl": None}
    named.update((key, None) for key in keys if re.fullmatch("owner/(closed-)?[1-9][0-9]{0,5}", key))
    for key in keys:
        folder, _, name = key.rpartition("/")
        if name == "manifest.json":
            manifest = json.loads(client.get(bucket, prefix + key))
            named[key] = None
            named.update((folder + "/" + each["key"], each["bytes"]) for each in manifest["objects"])
            named.update((segment["key"], segment["bytes"]) for segment in manifest["metrics"])
    left = ["object %s/%s of %d bytes" % (uri, key, size) for key, size in keys.items()
            if key not in named or named[key] not in (None, size)]
    return left + ["upload of %s" % key for key, _ in client.uploads(bucket, prefix)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = find(s3client.Client.of_environment(), sys.argv[1])
    for line in found:
        print("left behind: " + line)
    sys.exit(1 if found else 0)

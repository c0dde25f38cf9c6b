# SPDX-License-Identifier: Apache-2.0
"""The S3 server of a cluster on machines of its own: one machine more, with Ceph's gateway on its loopback and the
fault proxy in front of it, which is all that the others see."""
import json
import os
import subprocess
import sys

from lab import SOURCE, UNET
from network import NETWORK

S3 = os.path.abspath(os.path.join(SOURCE, "tests/s3"))
sys.path.insert(0, S3)

import fault_proxy  # noqa: E402

NAME, NUMBER, PORT, BUCKET = "store", 40, 9000, "chaos"
# Many parameters for little work: weights of 14 MB, which go up in parts of 5.
UNET = dict(UNET, block_out_channels=[16, 32, 160], attention_head_dim=[2, 4, 4], norm_num_groups=8,
            down_block_types=["CrossAttnDownBlock2D", "DownBlock2D", "DownBlock2D"],
            up_block_types=["UpBlock2D", "UpBlock2D", "CrossAttnUpBlock2D"])
# What goes wrong on a bad day; half of the requests or more get through.
WEATHER = [{"fault": "status", "status": 503, "code": "SlowDown", "probability": 0.1},
           {"fault": "status", "status": 500, "code": "InternalError", "probability": 0.05},
           {"fault": "status", "status": 500, "code": "InternalError", "acted": True, "probability": 0.05},
           {"fault": "lose", "probability": 0.05},
           {"fault": "reset", "where": "request", "after": 900, "probability": 0.05},
           {"fault": "reset", "where": "reply", "after": 300, "probability": 0.05},
           {"fault": "truncate", "after": 1000, "probability": 0.05},
           {"fault": "corrupt", "match": {"method": "GET"}, "at": None, "probability": 0.05},
           {"fault": "corrupt", "match": {"method": "PUT"}, "where": "request", "at": None, "probability": 0.05},
           {"fault": "slow", "delay_sec": 0.2, "probability": 0.1}]


class Store:
    """Made before the cluster, whose programs find it in their environment."""

    def __init__(self, lab):
        self.lab, self.server = lab, None
        self.uri = "s3://" + BUCKET
        for name in [name for name in lab.environment if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
            del lab.environment[name]
        lab.write("unet.json", json.dumps(UNET))
        lab.environment.update(
            SDTRAIN_S3_PART_BYTES="5M", SDTRAIN_S3_DEADLINE_SEC="20",
            AWS_ENDPOINT_URL="http://%s%d:%d" % (NETWORK, NUMBER, PORT), AWS_EC2_METADATA_DISABLED="true",
            AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE=lab.path("aws", "credentials"))

    def plug_in(self, cluster):
        """Starts it in the cluster's network, with the lab's data in s3://chaos/data."""
        self.cluster = cluster
        cluster.address[NAME] = cluster.network.add(NAME, NUMBER)
        cluster.names[NAME] = [NAME]
        self.inside = cluster.network.inside(NAME)
        # Not of the lab's processes, which must be gone when the cluster is.
        environment = {name: value for name, value in os.environ.items() if name != "TESTLAB"}
        self.server = subprocess.Popen(self.inside + [S3 + "/gateway"], stdout=subprocess.PIPE, text=True, env=environment,
                                       start_new_session=True)
        line = self.server.stdout.readline()
        if not line:
            raise AssertionError("the gateway did not start; it has said why")
        says = json.loads(line)
        self.environment = dict(environment, AWS_ENDPOINT_URL=says["endpoint"], AWS_ACCESS_KEY_ID=says["access_key"],
                                AWS_SECRET_ACCESS_KEY=says["secret_key"])
        self.lab.write("aws/credentials", "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n" %
                       (says["access_key"], says["secret_key"]))
        self.proxy = fault_proxy.Remote(says["endpoint"], "--address", "%s:%d" % (cluster.address[NAME], PORT),
                                        inside=self.inside)
        self.look("s3client.py", "make", BUCKET)
        self.look("s3client.py", "put", self.lab.path("data"), self.uri + "/data")

    def look(self, program, *arguments):
        """What a program of tests/s3 says that asks the gateway itself."""
        done = subprocess.run(self.inside + [sys.executable, os.path.join(S3, program), *arguments], env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError("%s %s: %s" % (program, " ".join(arguments), done.stdout))
        return done.stdout

    def read(self, uri):
        return self.look("s3client.py", "get", uri)

    def asks(self, rule):
        """The node whose request the rule has struck."""
        request = next(r for r in self.proxy.do("log")["requests"] if rule in r["faults"])
        return next(name for name, address in self.cluster.address.items() if address == request["client"])

    def weather(self, on=True):
        if on:
            self.proxy.do("add", rules=[dict(rule, count=None) for rule in WEATHER])
        else:
            self.proxy.do("clear")

    def close(self):
        if self.server:
            self.proxy.close()
            self.server.terminate()
            self.server.wait()
            self.server.stdout.close()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train.plans "auto" in a whole cluster, on emulated GPUs whose libraries' algorithms take another time on each node: the
node of rank 0 dies as soon as the set is there, the other node goes on by that set alone, and the job ends with the
digest of a run on one rank that names the set of the job's manifests."""
import json
import os
import unittest

import dataset
from lab import BIN, UNET, Lab, until

MODULE = os.path.abspath(os.path.join(BIN, "libsdtrain-emulated.so"))
FAKES = os.path.abspath(os.path.join(BIN, "../fake-cuda"))
# Each node's cuDNN prefers another engine.
PREFERRED = {"node1": 1, "node2": 2}
# A daemon passes none of these on.
TRAINER = """#!/bin/sh
export SDTRAIN_CUDA_MODULE="%s" SDTRAIN_CUDA_LIBRARIES="%s" FAKE_CUDNN_USEC=%d:3000,%d:9000
exec "%s" "$@"
"""


@unittest.skipUnless(os.path.exists(MODULE) and os.path.exists(FAKES), "the emulated module or the fake libraries were not built")
class AutoPlans(unittest.TestCase):
    def setUp(self):
        self.lab = lab = Lab(latents=dataset.SMALL)
        self.addCleanup(lab.close)
        lab.data("data", 16)
        lab.write("unet.json", json.dumps(dict(UNET, sample_size=8, block_out_channels=[8, 16], attention_head_dim=[1, 2],
                                               norm_num_groups=4)))
        lab.environment.update(FAKE_NVML=lab.write("nvml.json", '{"gpus": [{"pci": "00000000:3B:00.0"}]}'),
                               SDTRAIN_CUDA_MODULE=MODULE, SDTRAIN_CUDA_LIBRARIES=FAKES,
                               MALLOC_MMAP_THRESHOLD_="1000000000", MALLOC_TRIM_THRESHOLD_="2000000000")
        for node, engine in PREFERRED.items():
            path = lab.write(node + "/sdtrainer", TRAINER % (MODULE, FAKES, engine, 3 - engine,
                                                             os.path.abspath(os.path.join(BIN, "sdtrainer"))))
            os.chmod(path, 0o755)
            lab.programs(lab.path(node), node, "sdtrainer")

    def job(self, name, **changes):
        return self.lab.job(name, world={"min": 1, "max": 2}, train__global_batch=2, train__steps=4, train__device="cuda",
                            train__precision="bf16", checkpoint__every_steps=2, **changes)

    def sets(self, job):
        folder = os.path.join(job["checkpoint"]["uri"], "plans")
        return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []

    def test_a_cluster_computes_by_one_set(self):
        job = self.job("auto")
        cluster = self.lab.cluster(2)
        self.addCleanup(cluster.down)
        for node in PREFERRED:
            cluster.configure(node, nvml=os.path.join(BIN, "fake-nvml.so"), sysfs=self.lab.path("sys"))
            cluster.fault(node, "plans.put=stop")
        cluster.submit(job)
        # A set that is being put has its temporary file beside it.
        path, = until(lambda: [path for path in self.sets(job) if path.endswith(".json")], "a plan set")
        with open(path) as file:
            made = file.read()

        def nodes():
            return [rank["node"] for rank in cluster.status(job)["world"]["ranks"]]
        maker = nodes()[0]
        engines = {entry["engine"] for name, entry in json.loads(made)["operations"].items() if name.startswith("conv ")}
        self.assertEqual(engines, {PREFERRED[maker]}, "the maker's own choice")
        cluster.kill(maker)
        other, = PREFERRED.keys() - {maker}
        until(lambda: nodes() == [other], "a world without " + maker)
        cluster.start(maker)
        outcome = cluster.finish(job, 300)
        manifest_path, manifest = self.lab.manifests(job)[-1]
        with open(os.path.join(os.path.dirname(manifest_path), manifest["plans"]["key"])) as file:
            self.assertEqual(file.read(), made, manifest_path)
        self.assertEqual(self.sets(job), [], "the manifests have it")
        self.assertEqual(len(cluster.status(job)["checkpoint"]["plans"]), 32)
        named = self.lab.reference(self.job("named", train__plans=self.lab.write("named.json", made)))
        self.assertEqual(outcome.digest, named.digest)


if __name__ == "__main__":
    unittest.main(verbosity=2)

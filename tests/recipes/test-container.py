#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ops/container, built and run: the packages in an image, a cluster of its compose file, a job through the death of a
container, a drain by `podman stop`, and the death of the leader, to the same bits as without a cluster.

Root and podman; ops/test --packages. Nothing is asked of a registry, and nothing of this machine's engine is used."""
import glob
import json
import os
import shutil
import sys
import unittest

from engine import SOURCE, Engine, why_not

sys.path.insert(0, os.path.join(SOURCE, "tests/system"))
import dataset  # noqa: E402
from lab import until  # noqa: E402

BUILD = os.path.abspath(os.environ.get("SDTRAIN_BUILD") or os.path.join(SOURCE, "build/release"))
COMPOSE = os.path.join(SOURCE, "ops/container/compose.yaml")
SERVICES = ("etcd", "controller1", "controller2", "node1", "node2", "node3")
STEPS = 60


class Containers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = Engine.make()
        cls.addClassCleanup(cls.engine.close)
        made, context = cls.engine.path("made"), cls.engine.path("context")
        cls.engine.run("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", made)
        os.makedirs(context)
        for deb in glob.glob(made + "/*.deb"):
            os.rename(deb, os.path.join(context, os.path.basename(deb)))
        cls.engine.import_base()
        cls.engine.build("sdtrain", os.path.join(SOURCE, "ops/container/Containerfile"), context)
        cls.shared = cls.engine.path("shared")
        os.makedirs(os.path.join(cls.shared, "checkpoints"))
        os.chmod(os.path.join(cls.shared, "checkpoints"), 0o777)
        dataset.write(os.path.join(cls.shared, "openclipart"), 96, 1, text=(77, 64))
        examples = os.path.join(SOURCE, "ops/examples")
        shutil.copy(os.path.join(examples, "unet.json"), cls.shared)
        with open(os.path.join(examples, "job.json")) as file:
            job = json.load(file)
        job["train"]["steps"] = STEPS
        for name in ("first", "alone"):
            job.update(name=name, recovery={"grow_interval_s": 0})
            job["checkpoint"]["uri"] = "/srv/sdtrain/checkpoints/" + name
            with open(os.path.join(cls.shared, name + ".json"), "w") as file:
                json.dump(job, file)

    def compose(self, *words, **more):
        return self.engine.run("podman-compose", "-p", "sdtrain", "-f", COMPOSE, *words, SDTRAIN_SHARED=self.shared, **more)

    def ctl(self, *words, controller="controller1", check=True):
        """It asks again where etcd was not reached (5): the engine's name server takes seconds when containers come and go."""
        words = ("exec", "sdtrain_%s_1" % controller, "sdctl", *words)
        if not check:
            return self.engine.podman(*words, check=False)

        def once():
            code, text = self.engine.podman(*words, check=False)
            self.assertIn(code, (0, 5), text)
            return code == 0 and [text]
        return until(once, " ".join(words))[0]

    def healthy(self, service):
        return self.engine.podman("healthcheck", "run", "sdtrain_%s_1" % service, check=False)[0] == 0

    def status(self, controller="controller1"):
        code, text = self.ctl("job", "status", "first", "-o", "json", controller=controller, check=False)
        return json.loads(text) if code == 0 else {"phase": "unknown"}

    def ranks(self, **more):
        status = self.status(**more)
        return {rank["node"] for rank in status["world"]["ranks"]} if status["phase"] == "running" else set()

    def test_image(self):
        """It runs as a user without rights, holds no identity and no leavings, and its daemons say what they lack."""
        image = self.engine.podman("run", "--rm", "--network", "none", "sdtrain", "sh", "-c",
                                   "id -un; ls /etc/machine-id /tmp/sdtrain 2>&1; sdctl --version; sdtraind --version")
        self.assertIn("sdtrain\n", image)
        self.assertEqual(image.count("cannot access"), 2, image)
        code, text = self.engine.podman("run", "--rm", "--network", "none", "sdtrain", "sdtraind", "--config=/etc/sdtrain/sdtraind.json",
                                        "--address=node1", "--check-config", check=False)
        self.assertEqual(code, 2, text)
        self.assertIn("machine_id: missing", text)

    def test_cluster(self):
        self.addCleanup(self.compose, "down", "-v", check=False)
        self.compose("up", "-d")
        for service in SERVICES:
            until(lambda: self.healthy(service), "%s is healthy" % service)
        until(lambda: "3 with 3 slots" in self.ctl("cluster", "status", check=False)[1], "three nodes")
        self.ctl("job", "start", "-f", "/srv/sdtrain/first.json")
        until(lambda: len(self.ranks()) == 3, "three ranks train")

        self.engine.podman("kill", "sdtrain_node3_1")
        until(lambda: self.ranks() == {"node1", "node2"}, "the others go on")
        self.engine.podman("start", "sdtrain_node3_1")
        until(lambda: len(self.ranks()) == 3, "it came back")
        # As `compose stop node2`: SIGTERM, and as long as compose.yaml says until SIGKILL.
        self.engine.podman("stop", "-t", "75", "sdtrain_node2_1")
        self.assertEqual(self.engine.podman("inspect", "-f", "{{.State.ExitCode}}", "sdtrain_node2_1").strip(), "0")
        leader = "controller1" if "leader  controller1" in self.ctl("cluster", "status") else "controller2"
        other = {"controller1": "controller2", "controller2": "controller1"}[leader]
        self.engine.podman("kill", "sdtrain_%s_1" % leader)
        text = self.ctl("job", "wait", "first", "--for", "succeeded", "--timeout", "300", controller=other)
        status = self.status(controller=other)
        causes = [i["cause"] for i in status["incidents"]]
        # The engine's name server may take longer than ranks wait for each other's names: that costs a try, and no bit.
        self.assertEqual([cause for cause in causes if cause != "unreachable"], ["node-lost"], text)

        self.engine.podman("run", "--rm", "--network", "none", "-v", self.shared + ":/srv/sdtrain", "sdtrain", "sdtrainer", "run",
                           "--job", "/srv/sdtrain/alone.json")
        path = max(glob.glob(self.shared + "/checkpoints/alone/step-*/manifest.json"))
        with open(path) as file:
            alone = json.load(file)
        self.assertEqual((alone["step"], alone["digest"]), (STEPS, status["checkpoint"]["digest"]))


if __name__ == "__main__":
    if why_not():
        print("skipped: " + why_not())
        sys.exit(0)
    unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is wrong is refused with a message that names file, key and value, with the right exit code, and nothing is
lost: when it is put right, the job ends with the bits of the run that nothing disturbed."""
import json
import os
import shutil
import signal
import unittest

import dataset
from lab import BIN, UNET, LabCase, until

NEVER_RETRY, DATA_CORRUPT, STORE_UNREACHABLE = 78, 82, 83
FAILED, UNREACHABLE = 1, 5


def flip(path):
    """One bit: of a manifest's state digest, of other files' last numbers."""
    with open(path, "r+b") as file:
        data = file.read()
        at = data.index(b'"digest": "') + 20 if path.endswith("manifest.json") else len(data) - 40
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


def error_of(text):
    """The last error among the log's lines."""
    return [line for line in text.splitlines() if " error " in line][-1]


class BadJobs(LabCase):
    def refused(self, job, *words, code=NEVER_RETRY, ctl=True):
        """By the trainer, and by sdctl before it asks any cluster."""
        path = job if isinstance(job, str) else self.lab.job_file(job)
        commands = [([os.path.join(BIN, "sdtrainer"), "run", "--job", path], code)]
        if ctl:
            commands.append(([self.lab.path("bin/sdctl"), "job", "start", "-f", path], FAILED))
        for command, expected in commands:
            got, text = self.lab.run(*command)
            with self.subTest(words, program=command[0]):
                self.assertEqual(got, expected, text)
                for word in words:
                    self.assertIn(word, text)
        written = [os.path.relpath(os.path.join(folder, name), self.lab.path("checkpoints/bad"))
                   for folder, _, names in os.walk(self.lab.path("checkpoints/bad")) for name in names]
        self.assertLessEqual(set(written), {"owner/lock"}, "something was written")

    def job(self, **changes):
        return self.lab.job("bad", **changes)

    def test_job_file(self):
        path = self.lab.path("jobs/bad.json")
        self.refused(self.job(train__stepz=3), path, "train.stepz", "unknown key")
        self.refused(self.job(train__optimizer__momentum=0.9), path, "train.optimizer.momentum", "unknown key")
        self.refused(self.job(train__steps="40"), path, "train.steps", "integer", '"40"')
        self.refused(self.job(world=3), path, "world", "object")
        self.refused(self.job(train__grain=3), path, "train.grain", "3 does not divide train.global_batch 4")
        self.refused(self.job(world={"min": 3, "max": 2}), path, "world.min", "3", "world.max 2")
        self.refused(self.job(world={"min": 1, "max": 5}), path, "world.max", "5", "4 grains")
        self.refused(self.job(train__zero_stage=3), path, "train.zero_stage", "3")
        self.refused(self.job(train__precision="bf16"), path, "train.precision", "fp32")
        self.refused(self.job(train__prediction="sample"), path, "train.prediction", "sample is not one of")
        self.refused(self.job(data__shuffle_window=0), path, "data.shuffle_window", "0")
        self.refused(self.job(data__streams=[]), path, "data.streams")
        self.refused(self.job(checkpoint__uri="gopher://a/b"), path, "checkpoint.uri", "gopher://a/b")
        job = self.job()
        del job["data"]["empty_text"]
        self.refused(job, "data.empty_text: missing", "train.caption_drop 0.1 needs it", "no stream has an encoder.json")
        del job["train"]["steps"]
        self.refused(job, path, "train.steps")
        self.refused(dict(self.job(), name="Bad_"), self.lab.path("jobs/Bad_.json"), "name", '"Bad_"')
        self.refused(self.lab.write("jobs/bad.json", '{"name": "bad",}'), path, "line 1")

    def test_model(self):
        for key, value in (("class_embed_type", "timestep"), ("dual_cross_attention", True),
                           ("block_out_channels", [16, "32"]), ("norm_num_groups", 7)):
            path = self.lab.write("unets/%s.json" % key, json.dumps(dict(UNET, **{key: value})))
            self.refused(self.job(model__config=path), path, key)
        self.refused(self.job(model__config=self.lab.path("nowhere.json")), self.lab.path("nowhere.json"))
        self.refused(self.job(model__init=self.lab.path("nowhere.safetensors")), "model.init", "nowhere.safetensors")

    def unet(self, **changes):
        return self.lab.write("unets/%s.json" % "-".join("%s-%s" % i for i in changes.items()).replace(" ", ""),
                              json.dumps(dict(UNET, **changes)))

    def test_shapes_that_do_not_fit(self):
        """Every buffer has the size of the network's config, of the data or of the job: they must agree first."""
        for changes, words in (({"out_channels": 8}, ["out_channels: 8", "in_channels 4"]),
                               ({"out_channels": 3}, ["out_channels: 3"]),
                               ({"in_channels": 8}, ["in_channels: 8", "4"]),
                               ({"in_channels": 8, "out_channels": 8}, ["in_channels: 8"]),
                               ({"cross_attention_dim": 64}, ["cross_attention_dim 64", "32 text"])):
            path = self.unet(**changes)
            self.refused(self.job(model__config=path), path, *words)

    def test_what_can_never_fit(self):
        """No time helps: the text says what it would take, by category."""
        path = self.unet(block_out_channels=[65536, 65536])
        self.refused(self.job(model__config=path), path, "ranks needs at least", "moments", "this machine has", ctl=False)

    def test_sample_asks_the_same(self):
        """The verb that draws takes a checkpoint of one network and data of another no further."""
        job = self.lab.job("drawn", train__steps=2)
        self.lab.reference(job)
        for changes in ({"out_channels": 8}, {"out_channels": 3}, {"in_channels": 8}, {"cross_attention_dim": 64}):
            bad = dict(job, model={"config": self.unet(**changes)})
            code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "sample", "--job", self.lab.job_file(bad), "--out",
                                      self.lab.path("grid.png"), "--samples", "1", "--steps", "1")
            self.assertEqual(code, NEVER_RETRY, text)
            self.assertIn(next(iter(changes)), error_of(text))
            self.assertFalse(os.path.exists(self.lab.path("grid.png")))

    def test_data_that_is_not_there(self):
        nowhere = self.lab.path("nowhere")
        self.refused(self.job(data__streams=[{"uri": nowhere}]), "data.streams[0]", nowhere)
        self.refused(self.job(data__streams=[{"uri": self.lab.path("data/index.json")}]), "data.streams[0]")
        self.refused(self.job(data__empty_text=nowhere + ".npy"), "data.empty_text", nowhere + ".npy")
        self.refused(self.job(data__latents="pixels"), "data.latents", '"pixels"', "caption, latents, text")
        self.refused(self.job(data__latent_scale=30), "data.latent_scale 30", ctl=False)

    def data(self, name, **changes):
        """A copy of the dataset whose entries say something else."""
        folder = self.lab.path("data-" + name)
        shutil.copytree(self.lab.path("data"), folder, ignore=shutil.ignore_patterns("index.sdtrain"))
        with open(folder + "/index.json") as file:
            index = json.load(file)
        for entry in index["shards"]:
            entry.update(changes)
        with open(folder + "/index.json", "w") as file:
            json.dump(index, file)
        return folder

    def test_columns_that_cannot_be(self):
        """No store is to blame for them, and no retry helps."""
        for name, encoding in (("pkl", "pkl"), ("unknown", "zarr"), ("integers", "ndarray:uint16:4,16,16"),
                               ("flat", "ndarray:float16:1024")):
            folder = self.data(name, column_encodings=["str", encoding, "ndarray:float16:77,32"],
                               column_sizes=[None, 2048 if ":" in encoding else None, 4928])
            self.refused(self.job(data__streams=[{"uri": folder}]), "data.streams[0]" if name in ("pkl", "unknown", "flat")
                         else "data.latents", encoding)

    def test_etcd_is_down(self):
        sdctl = self.lab.path("bin/sdctl")
        for arguments in (["job", "list"], ["job", "status", "x"], ["job", "start", "-f", self.lab.job_file(self.job())]):
            code, text = self.lab.run(sdctl, *arguments, "--etcd", "127.0.0.1:1")
            self.assertEqual(code, UNREACHABLE, text)
            self.assertIn("127.0.0.1:1", text)
        code, text = self.lab.run(sdctl, "job", "list")
        self.assertEqual(code, UNREACHABLE, text)
        self.assertIn("SDTRAIN_ETCD", text)


class Damage(LabCase):
    """Data, checkpoints and disks that go bad, without a cluster."""
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference"))

    def check(self, job):
        outcome = type(self.reference)(job["name"], self.lab.digest(job), self.lab.metrics(job))
        self.check_same(outcome, self.reference, job["name"])

    def test_shards(self):
        def truncate(folder):
            os.truncate(folder + "/shard.00002.mds", 5000)

        def remove(folder):
            os.unlink(folder + "/shard.00002.mds")

        def damage(folder):
            flip(folder + "/shard.00002.mds")

        for kind, do, words in (("truncated", truncate, ["5000"]), ("missing", remove, ["No such file"]),
                                ("flipped", damage, ["sha256"])):
            with self.subTest(kind):
                folder = self.lab.path(kind)
                shutil.copytree(self.lab.path("data"), folder)
                job = self.lab.job(kind, data=folder)
                do(folder)
                code, text = self.lab.train(job)
                self.assertEqual(code, DATA_CORRUPT, text)
                for word in ["shard.00002.mds", "position"] + words:
                    self.assertIn(word, error_of(text))
                shutil.copy(self.lab.path("data/shard.00002.mds"), folder)  # put right: it goes on
                code, text = self.lab.train(job)
                self.assertEqual(code, 0, text)
                self.check(job)

    def test_index(self):
        def wrong_hash(index):
            index["shards"][0]["raw_data"]["hashes"]["sha256"] = "0" * 64

        def no_list(index):
            index["shards"] = 3

        def other_version(index):
            index["version"] = 7

        for kind, do, expected, words in (
                ("hash", wrong_hash, DATA_CORRUPT, ["shard.00000.mds", "0" * 64]),
                ("list", no_list, NEVER_RETRY, ["index.json", "shards"]),
                ("version", other_version, NEVER_RETRY, ["index.json", "version", "7"])):
            with self.subTest(kind):
                folder = self.lab.path("index-" + kind)
                shutil.copytree(self.lab.path("data"), folder, ignore=shutil.ignore_patterns("index.sdtrain"))
                with open(folder + "/index.json") as file:
                    index = json.load(file)
                do(index)
                with open(folder + "/index.json", "w") as file:
                    json.dump(index, file)
                code, text = self.lab.train(self.lab.job("index-" + kind, data=folder))
                self.assertEqual(code, expected, text)
                for word in words:
                    self.assertIn(word, error_of(text))

    def test_checkpoints(self):
        """A byte of the newest one: it is left aside by name, and the job goes on from the one before."""
        for kind in ("manifest.json", "unet/diffusion_pytorch_model.safetensors", "moments/c000002.bin"):
            with self.subTest(kind):
                job = self.lab.job("checkpoint-" + os.path.basename(kind).partition(".")[0].replace("_", "-"))
                code, text = self.lab.train(job, fault="loop.compute=kill@90")
                self.assertEqual(code, -signal.SIGKILL, text)
                path = os.path.join(os.path.dirname(self.lab.manifests(job)[-1][0]), kind)
                flip(path)
                self.assertGreater(len(self.lab.manifests(job)), 1)
                code, text = self.lab.train(job)
                self.assertEqual(code, 0, text)
                self.assertIn("is left aside", text)
                self.assertIn("/".join(path.split("/")[-3 if "/" in kind else -2:]), text)
                self.check(job)

    def test_another_jobs_checkpoint(self):
        job = self.lab.job("mine", train__steps=4)
        self.lab.reference(job)
        job["train"]["seed"] = 4711
        code, text = self.lab.train(job)
        self.assertEqual(code, NEVER_RETRY, text)
        self.assertIn("job identity", error_of(text))

    def test_full_disk(self):
        job = self.lab.job("disk", checkpoint__uri=self.lab.path("small/disk"))
        trainer = [os.path.join(BIN, "sdtrainer"), "run", "--job", self.lab.job_file(job)]
        os.makedirs(self.lab.path("small"))
        if self.lab.run("unshare", "--mount", "true")[0] != 0:
            self.skipTest("mounting a small disk needs root")
        # The mount is gone with the shell that made it.
        code, text = self.lab.run("unshare", "--mount", "sh", "-c", """
            small=$1; keep=$2; shift 2
            mount -t tmpfs -o size=9m tmpfs "$small" || exit 9
            "$@"; echo "exit=$?"
            mount -o remount,size=200m "$small" || exit 9
            "$@"; echo "exit=$?"
            cp -r "$small" "$keep"
            """, "sh", self.lab.path("small"), self.lab.path("kept"), *trainer)
        self.assertEqual(code, 0, text)
        full, _, roomy = text.partition("exit=%d\n" % STORE_UNREACHABLE)
        self.assertIn("training goes on", full)
        self.assertIn("No space left on device", full)
        self.assertIn(self.lab.path("small"), error_of(full))
        self.assertNotIn("step 1/40", roomy, "what had been saved was lost")
        self.assertIn("exit=0", roomy)
        job["checkpoint"]["uri"] = self.lab.path("kept/disk")
        self.check(job)


class InCluster(LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference"))

    def setUp(self):
        self.lab.forget_faults()
        self.cluster = self.lab.cluster(nodes=2, patient=["node1", "node2"], judged=False)
        self.addCleanup(self.cluster.down)

    def fails(self, job, *words):
        self.cluster.submit(job)
        self.cluster.wait(job, "failed")
        status = self.cluster.status(job)
        for word in words:
            self.assertIn(word, status["reason"] + str(status["incidents"]))
        return status

    def test_bad_data_ends_the_job(self):
        """At once: no retry can help. The message reaches who asks for the job's status."""
        folder = self.lab.path("damaged")
        shutil.copytree(self.lab.path("data"), folder)
        flip(folder + "/shard.00001.mds")
        status = self.fails(self.lab.job("damaged", data=folder), "shard.00001.mds", "sha256")
        self.assertLessEqual(status["generation"], 2)

        # What sdctl does not see: only ranks read samples.
        status = self.fails(self.lab.job("loud", data__latent_scale=30), "data.latent_scale 30")
        self.assertEqual([i["cause"] for i in status["incidents"] if i["cause"] != "node-restarted"], ["bad-job"])

    def committed(self, job, step):
        """The newest commit, once it is of that step."""
        newest = self.cluster.status(job)["checkpoint"]
        return newest if newest and newest["step"] == step else None

    def test_checkpoint_that_does_not_verify(self):
        """The newest committed one is damaged: it is struck out and the one before serves."""
        for kind in ("manifest.json", "unet/diffusion_pytorch_model.safetensors", "moments/c000001.bin"):
            with self.subTest(kind):
                job = self.lab.job("struck-" + os.path.basename(kind).partition(".")[0].replace("_", "-"),
                                   checkpoint__keep_every=5)
                self.cluster.fault("node2", "loop.compute=stop@34")
                self.cluster.submit(job)
                pid = self.lab.stopped()
                newest = until(lambda: self.committed(job, 15), "the last commit before the step that stands still")
                folder = os.path.dirname(newest["uri"][len("file://"):])
                flip(os.path.join(folder, kind))
                os.kill(pid, signal.SIGKILL)
                outcome = self.cluster.finish(job)
                self.check_same(outcome, self.reference, job["name"])
                incidents = self.cluster.status(job)["incidents"]
                self.assertEqual(len(incidents), 2)
                self.assertIn(os.path.basename(folder), incidents[1]["evidence"])
                self.assertEqual(self.cluster.status(job)["generation"], 3)

    def test_paths_that_a_node_does_not_allow(self):
        for node in ("node1", "node2"):
            self.cluster.configure(node, paths_read=[self.lab.path("data")], paths_write=[self.lab.path("checkpoints")])
        job = self.lab.job("reads-config", train__steps=4)
        status = self.fails(job, "model.config: %s is not under paths_read" % self.lab.path("unet.json"))
        self.assertNotIn("block_out_channels", str(status))
        for node in ("node1", "node2"):
            self.cluster.configure(node, paths_read=[self.lab.path("data"), self.lab.path("unet.json")])
        self.fails(self.lab.job("writes-elsewhere", checkpoint__uri=self.lab.path("elsewhere")),
                   "checkpoint.uri: %s is not under paths_write" % self.lab.path("elsewhere"))
        self.assertFalse(os.path.exists(self.lab.path("elsewhere")))
        self.cluster.submit(self.lab.job("within", train__steps=4))
        self.cluster.wait(self.lab.job("within"), "succeeded")

    def test_commit_that_lies_elsewhere(self):
        """Any node may write checkpoints/<job>: what it names must lie under the job's URI, or it is struck out."""
        donor = self.lab.job("donor", train__steps=20)
        self.cluster.submit(donor)
        self.cluster.wait(donor, "succeeded")
        job = self.lab.job("forged", checkpoint__keep_every=5)
        self.cluster.fault("node2", "loop.compute=stop@34")
        self.cluster.submit(job)
        pid = self.lab.stopped()
        until(lambda: self.committed(job, 15), "the last commit before the step that stands still")
        commits = {name: json.loads(self.etcdctl("get", "--print-value-only", "/sdtrain/dev/checkpoints/" + name))
                   for name in ("donor", "forged")}
        commits["forged"]["commits"].append(commits["donor"]["commits"][-1])
        self.etcdctl("put", "/sdtrain/dev/checkpoints/forged", json.dumps(commits["forged"]))
        os.kill(pid, signal.SIGKILL)
        self.check_same(self.cluster.finish(job), self.reference, job["name"])
        evidence = [incident["evidence"] for incident in self.cluster.status(job)["incidents"]]
        self.assertTrue([text for text in evidence if "is not under checkpoint.uri" in text], evidence)

    def etcdctl(self, *arguments):
        code, text = self.lab.run("etcdctl", "--endpoints", self.cluster.etcd, *arguments)
        self.assertEqual(code, 0, text)
        return text

    def test_records_of_another_version(self):
        """They are named in the logs and left alone, and everything else goes on."""
        for key, value in (("nodes/strange", '{"v": 99, "slots": "many"}'), ("cordons/strange", '{"v": 2, "mode": 3}'),
                           ("specs/strange", '{"v": 99}'), ("desired/strange", "not JSON"),
                           ("incidents/strange", '{"v": 99}')):
            code, text = self.lab.run("etcdctl", "--endpoints", self.cluster.etcd, "put", "/sdtrain/dev/" + key, value)
            self.assertEqual(code, 0, text)
        job = self.lab.job("strange-records", train__steps=4)
        self.cluster.submit(job)
        self.cluster.wait(job, "succeeded")
        with open(os.path.join(self.cluster.folder, "controller1/log")) as file:
            log = file.read()
        for word in ("nodes/strange", "specs/strange", "desired/strange"):
            self.assertIn(word, log)
        self.assertIn("99", log)
        self.assertIn(job["name"], self.cluster.ctl("job", "list"))
        code, text = self.lab.run("etcdctl", "--endpoints", self.cluster.etcd, "get", "/sdtrain/dev/nodes/strange")
        self.assertIn('"v": 99', text)

    def test_checkpoint_uri_in_use(self):
        """A second job would mix its history with the first one's."""
        job = self.lab.job("first", train__steps=4)
        self.cluster.submit(job)
        self.cluster.wait(job, "succeeded")
        other = dict(self.lab.job("second", train__steps=4), checkpoint=job["checkpoint"])
        code, text = self.cluster.ctl_code("job", "start", "-f", self.lab.job_file(other))
        self.assertEqual(code, FAILED, text)
        self.assertIn("checkpoint.uri", text)
        self.assertIn(job["checkpoint"]["uri"], text)


class NewerVersions(LabCase):
    """What a newer sdtrain wrote ends the job at once, with a text that says so; nothing of it is struck out or changed."""
    latents = dataset.SMALL

    def set_version(self, path, old, new):
        with open(path) as file:
            text = file.read()
        for words in ('"v": %d', '"v":%d'):
            changed = text.replace(words % old, words % new, 1)
            if changed != text:
                break
        self.assertNotEqual(text, changed)
        with open(path, "w") as file:
            file.write(changed)

    def failed(self, job, *words):
        self.cluster.wait(job, "failed", 60)
        status = self.cluster.status(job)
        for word in words:
            self.assertIn(word, status["reason"])
        self.assertEqual(status["incidents"][-1]["cause"], "bad-job")
        return status

    def test_manifest_and_owner(self):
        self.cluster = self.lab.cluster(nodes=2)
        self.addCleanup(self.cluster.down)
        reference = self.lab.reference(self.lab.job("reference"))
        job = self.lab.job("newer")
        self.cluster.fault("node1", "loop.compute=stop@40")
        self.cluster.submit(job)
        pid = self.lab.stopped()
        self.cluster.ctl("job", "stop", job["name"])
        self.cluster.wait(job, "stopping")
        os.kill(pid, signal.SIGCONT)
        self.cluster.wait(job, "stopped")
        path, _ = self.lab.manifests(job)[-1]

        self.set_version(path, 2, 3)
        self.cluster.ctl("job", "recover", job["name"], path)  # its hash is the one that is recorded now
        status = self.failed(job, "manifest.json: v: of version 3, which a newer sdtrain wrote", "reads version 2")
        self.assertEqual(status["checkpoint"]["uri"].split("/")[-2], path.split("/")[-2], "it is not struck out")
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "run", "--job", self.lab.job_file(job), "--take-over")
        self.assertEqual(code, 78, text)
        self.assertIn("which a newer sdtrain wrote", text)

        self.set_version(path, 3, 2)
        owner = os.path.join(job["checkpoint"]["uri"], "owner", "1")
        self.set_version(owner, 1, 2)
        self.cluster.ctl("job", "recover", job["name"], path)
        self.failed(job, "owner/1: v: of version 2, which a newer sdtrain wrote")

        self.set_version(owner, 2, 1)
        self.cluster.ctl("job", "recover", job["name"], path)
        self.check_same(self.cluster.finish(job), reference, "newer versions")


class RefusedPlace(LabCase):
    def test_a_place_that_never_takes_a_checkpoint_ends_the_job(self):
        """Not an hour of tries: nothing was ever saved there, and the store says the same each time."""
        cluster = self.lab.cluster(nodes=1, trainers=("SDTRAIN_FAULT=saver.patience=eio@*",))  # a minute is over at once
        self.addCleanup(cluster.down)
        job = self.lab.job("refused", checkpoint__uri=self.lab.path("place/checkpoints"))
        cluster.kill("node1")
        cluster.submit(job)
        self.lab.write("place", "a file, where a folder was to be")
        cluster.start("node1")
        cluster.wait(job, "failed")
        status = cluster.status(job)
        self.assertIn("checkpoint.uri: no checkpoint can be written", status["reason"])
        self.assertIn("Not a directory", status["reason"])
        self.assertEqual([i["cause"] for i in status["incidents"] if i["cause"] != "node-restarted"], ["bad-job"])


class OtherUser(LabCase):
    """Ranks are another user than whoever made data and folders, as those of the packages' service are."""

    def test_data_are_read_where_they_lie_and_checkpoints_want_rights(self):
        cluster = self.lab.cluster(nodes=1, trainers=("SDTRAIN_FAULT=saver.patience=eio@*",))
        self.addCleanup(cluster.down)
        os.makedirs(self.lab.path("theirs"))
        os.makedirs(self.lab.path("mine"))
        os.chmod(self.lab.path("theirs"), 0o777)
        os.chmod(self.lab.folder, 0o711)
        if os.geteuid() == 0:
            program = shutil.copy(os.path.join(BIN, "sdtrainer"), self.lab.path("bin", "one-rank"))
            script = self.lab.write("bin/as-other", '#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups "%s" "$@"\n' % program)
            os.chmod(script, 0o755)
            self.lab.write("programs/node1.sdtrainer", script)
        else:  # what is its own can be read alone, too
            for name in ("data", "mine"):
                os.chmod(self.lab.path(name), 0o555)
                self.addCleanup(os.chmod, self.lab.path(name), 0o755)

        index = self.lab.path("data/index.sdtrain")
        self.assertFalse(os.path.exists(index), "nobody has indexed them yet")
        job = self.lab.job("reader", checkpoint__uri=self.lab.path("theirs/reader"))
        cluster.submit(job)
        outcome = cluster.finish(job)
        self.assertEqual(cluster.status(job)["incidents"], [])
        self.assertFalse(os.path.exists(index), "the folder was not written to")

        job = self.lab.job("writer", checkpoint__uri=self.lab.path("mine/writer"))
        cluster.submit(job)
        cluster.wait(job, "failed")
        self.assertIn("checkpoint.uri: no checkpoint can be written by user ", cluster.status(job)["reason"])
        self.assertIn("Permission denied", cluster.status(job)["reason"])
        self.check_same(outcome, self.lab.reference(self.lab.job("reference")), "from data that can be read alone")


if __name__ == "__main__":
    unittest.main(verbosity=2)

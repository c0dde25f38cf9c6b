#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that fails once, and one that forgets what was not synced: `sdtrainer run` and `sdprep encode` end as if nothing
had been, with every line of the metrics, and whatever names a file names one that is on the disk. A few drawn calls; all of
them with SDTRAIN_DISK_ALL=1 (ops/test --disk)."""
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import unittest

import dataset
import disk
from encoded import MODEL, SDPREP, png, tree, write_tar
from lab import BIN, UNET, LabCase

ALL = bool(os.environ.get("SDTRAIN_DISK_ALL"))
SEED = int(os.environ.get("SDTRAIN_DISK_SEED", "1"))
ERRORS = (errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC)
DRAWN = 6  # of each kind
# Names that are drawn by chance, or by the clock.
CHANCE = re.compile(r"\.put-.{6}-|-[0-9a-f]{8}(?=[/.])")


class DiskCase:
    """Needs live(name, strike), which gives (code, text) of one life on the Disk of that name, check_end() and check_tidy()."""

    def before(self, name):
        """Files that were there before the life that is looked at."""

    def draw(self, calls):
        return calls if ALL else random.Random(SEED).sample(calls, DRAWN)

    def strike(self, name, call, error):
        """The call fails once, or the program dies after it. It loses nothing, or says why it ends and is started again."""
        what = "call %d, %s of %s: %s" % (call.number, call.name, call.path, errno.errorcode.get(error, error))
        self.before(name)
        code, text = self.live(name, (call.number, error))
        hit = self.disks[name].calls(self.disks[name].lives)[call.number - 1:call.number]
        if not hit or (error != "kill" and hit[0].error != error):
            return False  # this life was shorter
        what += "; it was %s of %s\n%s" % (hit[0].name, hit[0].path, text)
        if error == "kill":
            self.assertEqual(code, -signal.SIGKILL, what)
        elif code != 0:
            self.assertGreater(code, 0, what)
            line = next((line for line in text.splitlines() if os.strerror(error) in line), "")
            self.assertIn(self.disks[name].folder, line, what)
        else:
            self.check_end(name, what)
        self.start_again(name, what)
        self.assertEqual(disk.unsafe(self.disks[name]), [], what)
        return True

    def start_again(self, name, what):
        code, text = self.live(name)
        what += "\nand then\n" + text
        self.assertEqual(code, 0, what)
        self.check_end(name, what)
        self.check_tidy(name, what)

    def strike_all(self, kind, calls, errors):
        done = 0
        for call, error in self.draw([(call, error) for call in calls for error in errors]):
            with self.subTest(kind, call=call.number, error=errno.errorcode.get(error, error)):
                name = "%s-%d-%s" % (kind, call.number, error)
                done += self.strike(name, call, error)
                self.forget_run(name)
        print("%s: %d calls, %d kinds of errors: %d runs with one" % (kind, len(calls), len(errors), done), flush=True)

    def lose_power(self, name, call):
        """After the call. What was synced is there; what is started again ends as if nothing had been."""
        code, text = self.live(name, (call.number, "kill"))
        if code == 0:
            return  # this life was shorter
        self.assertEqual(code, -signal.SIGKILL, text)
        lost = self.disks[name].forget()
        self.start_again(name, "power lost after call %d, %s of %s, with %s" % (call.number, call.name, call.path, lost))

    def lose_power_all(self, kind):
        drawn = self.draw([call for call in self.distinct(self.calls(kind)) if call.name in
                           ("link", "rename", "fsync", "mkdir", "unlink", "rmdir", "write")])
        for call in drawn:
            with self.subTest(kind, call=call.number):
                name = "%s-%d" % (kind, call.number)
                self.lose_power(name, call)
                self.forget_run(name)
        print("%s: power lost after %d calls" % (kind, len(drawn)), flush=True)

    def forget_run(self, name):
        shutil.rmtree(self.disks[name].where)
        shutil.rmtree(self.disks.pop(name).folder)

    def new_disk(self, name):
        if name not in self.disks:
            os.makedirs(self.lab.path("on", name))
            self.disks[name] = disk.Disk(self.lab, name, self.lab.path("on", name))
        return self.disks[name]

    def calls(self, kind):
        name = kind + "-whole"
        self.before(name)
        code, text = self.live(name)
        self.assertEqual(code, 0, text)
        self.check_end(name, kind)
        self.check_tidy(name, kind)
        self.assertEqual(disk.unsafe(self.disks[name]), [])
        calls = self.disks[name].calls(self.disks[name].lives)
        self.forget_run(name)
        return calls

    def distinct(self, calls):
        """One of those that do the same to the same file: many chunks are written alike."""
        seen, found = {}, []
        for call in calls:
            key = (call.name, CHANCE.sub("", call.path), CHANCE.sub("", call.second))
            key = tuple(re.sub(r"c\d{6}\.bin", "chunk", text) for text in key)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] <= 2:
                found.append(call)
        return found


@unittest.skipUnless(os.path.exists(disk.LIBRARY), "no library is preloaded beside sanitizers")
class Store(LabCase):
    def put(self, where, key, strike=None):
        """(exit code, why the object would be lost)"""
        uri = os.path.join(where.folder, "made")
        put = [os.path.join(BIN, "test-store"), "put", uri, key, "10"]
        environment = dict(self.lab.environment, **where.environment(strike))
        code = subprocess.run(put, env=environment, stderr=subprocess.DEVNULL).returncode
        return code, where.replay().why_not(os.path.join(uri, key))

    def test_found(self):
        """A process that is told that an object exists may build on it, though its writer died before its name was synced."""
        for key in ("object", "one/object", "one/two/object"):
            folders = [self.lab.path("store", key.replace("/", "-"), part) for part in ("whole", "killed")]
            for folder in folders:
                os.makedirs(folder)
            whole, killed = (disk.Disk(self.lab, folder.replace("/", "-"), folder) for folder in folders)
            self.assertEqual(self.put(whole, key), (0, None))
            number = next(call.number for call in whole.calls() if call.name == "link")
            code, why = self.put(killed, key, (number, "kill"))
            self.assertEqual(code, -signal.SIGKILL)
            self.assertIn("is not synced", why)
            self.assertEqual(self.put(killed, key), (errno.EEXIST, None))


@unittest.skipUnless(os.path.exists(disk.LIBRARY), "no library is preloaded beside sanitizers")
class Training(DiskCase, LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disks = {}
        cls.unet = dict(UNET, block_out_channels=[8, 8], attention_head_dim=[2, 2], norm_num_groups=4)
        cls.lab.write("unet.json", json.dumps(cls.unet))
        cls.reference = cls.lab.reference(cls.job_on("reference", cls.lab.path("reference/job")))
        cls.longer = cls.lab.reference(cls.job_on("merged", cls.lab.path("longer/job")))

    @classmethod
    def job_on(cls, name, uri):
        if "merged" in name:  # the save of step 17 merges 16 segments
            return cls.lab.job(name, train__steps=18, checkpoint__every_steps=1, checkpoint__keep_every=1, checkpoint__uri=uri)
        return cls.lab.job(name, train__steps=6, train__ema={"start_step": 2}, checkpoint__every_steps=2,
                           checkpoint__keep_last=2, checkpoint__blocking="beside" not in name, checkpoint__uri=uri,
                           **({"checkpoint__keep_every": 2} if "metrics" in name else {}))  # no save is left out

    def live(self, name, strike=None, fault=None, steps=None):
        where = self.new_disk(name)
        job = self.job_on(name, os.path.join(where.folder, "of/somebody/job"))
        job["train"]["steps"] = steps or job["train"]["steps"]
        environment, self.lab.environment = self.lab.environment, dict(self.lab.environment, **where.environment(strike))
        try:
            return self.lab.train(job, fault=",".join(["saver.patience=eio@*"] + ([fault] if fault else [])))
        finally:
            self.lab.environment = environment

    def before(self, name):
        if "more" in name:  # its metrics.jsonl is replaced
            code, text = self.live(name, steps=4)
            self.assertEqual(code, 0, text)
        elif "again" in name or "merged" in name:
            code, text = self.live(name, fault="loop.compute=kill@%d" % (66 if "merged" in name else 20))
            self.assertEqual(code, -signal.SIGKILL, text)

    def check_end(self, name, what):
        reference = self.longer if "merged" in name else self.reference
        job = self.job_on(name, os.path.join(self.disks[name].folder, "of/somebody/job"))
        try:
            found = self.lab.digest(job), self.lab.metrics(job)
        except AssertionError as e:
            raise AssertionError("%s: %s" % (e, what)) from e
        self.assertEqual(found, (reference.digest, reference.metrics), what)

    def check_tidy(self, name, what):
        job = self.job_on(name, os.path.join(self.disks[name].folder, "of/somebody/job"))
        uri = job["checkpoint"]["uri"]
        names = [os.path.relpath(os.path.join(folder, name), uri) for folder, _, files in os.walk(uri) for name in files
                 if not name.startswith(".put-")]  # one that could not be removed goes before the next save
        kept = 19 if "merged" in job["name"] else 4 if "metrics" in job["name"] else 2
        self.assertEqual(sum(name.endswith("/manifest.json") for name in names), kept, what)
        listed = {s["key"] for _, m in self.lab.manifests(job) for s in m["metrics"]}
        self.assertEqual({name for name in names if name.startswith("metrics/")}, listed, what)
        folders = {os.path.dirname(os.path.relpath(path, uri)) for path, _ in self.lab.manifests(job)}
        self.assertEqual({name.split("/")[0] for name in names if name.startswith("step-")}, folders, what)

    def test_one_error(self):
        for kind in ("blocking", "beside", "again", "more", "merged"):
            self.strike_all(kind, self.distinct(self.calls(kind)), ERRORS)

    def test_killed(self):
        for kind in ("killed", "killed-again", "killed-more"):
            self.strike_all(kind, self.distinct(self.calls(kind)), ("kill",))

    def test_power(self):
        self.lose_power_all("power")

    def test_metrics_that_cannot_be_read(self):
        """A segment that cannot be read for a whole life is not merged without its lines, and costs the life after it none."""
        call = next(call for call in self.calls("merged") if call.name == "pread" and "/metrics/" in call.path)
        for error in (errno.EIO, errno.ESTALE, errno.EACCES):
            name = "merged-%d" % error
            self.before(name)
            code, text = self.live(name, (str(call.number) + "+", error))
            self.assertEqual(code, 0, text)
            self.assertIn("metrics are not merged now", text)
            self.assertIn("lacks 1 steps", text)
            self.start_again(name, text)

    def test_metrics_wait(self):
        """Metrics that are refused while their checkpoint is taken come with the next save, or before the run ends."""
        calls = [call for call in self.calls("metrics") if "/metrics/" in call.second and call.name == "link"]
        self.assertEqual([re.search(r"metrics-\d+-(\d+)-", call.second).group(1).lstrip("0") for call in calls], ["2", "4", "6"])
        for call in calls:
            for error in (errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES):
                name = "metrics-%d-%d" % (call.number, error)
                code, text = self.live(name, (call.number, error))
                self.assertEqual(code, 0, text)
                self.assertRegex(text, r"(?s)metrics of steps \d to \d wait for the next save: .*%s.* are there now" %
                                 os.strerror(error))
                self.check_end(name, text)
                self.check_tidy(name, text)


@unittest.skipUnless(os.path.exists(disk.LIBRARY), "no library is preloaded beside sanitizers")
class Encoding(DiskCase, LabCase):
    """Eight samples in two tars, one of them broken; parts of 3."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disks = {}
        rng = random.Random(3)
        for tar, (first, last) in enumerate(((0, 5), (5, 8))):
            members = []
            for i in range(first, last):
                members += [("%09d.png" % i, b"not a picture" if i == 2 else png(rng, 20, 20)),
                            ("%09d.txt" % i, b"a caption, number %d" % i)]
            write_tar(cls.lab.path("raw", "%05d.tar" % tar), members)
        cls.recipe = cls.lab.write("recipe.json", json.dumps({"model": MODEL, "side": 64, "shard_samples": 3, "batch": 4,
                                                              "threads": 1, "max_rejected": 0.5}))
        code, text = cls.encode(cls.lab.path("reference"))
        assert code == 0, text
        cls.reference = tree(cls.lab.path("reference"))

    @classmethod
    def encode(cls, out, fault=None):
        return cls.lab.run(SDPREP, "encode", "--recipe", cls.recipe, "--in", cls.lab.path("raw"), "--out", out, fault=fault)

    def live(self, name, strike=None, fault=None):
        where = self.new_disk(name)
        environment, self.lab.environment = self.lab.environment, dict(self.lab.environment, **where.environment(strike))
        try:
            return self.encode(os.path.join(where.folder, "of/somebody/set"), fault)
        finally:
            self.lab.environment = environment

    def before(self, name):
        if "again" in name:
            code, text = self.live(name, fault="encode.unit.rejects=kill@1")
            self.assertEqual(code, -signal.SIGKILL, text)

    def check_end(self, name, what):
        found = tree(os.path.join(self.disks[name].folder, "of/somebody/set"))
        self.assertEqual({key: found[key] for key in self.reference if key in found}, self.reference, what)
        self.assertEqual([key for key in found if key not in self.reference and not re.search(r"-p\d+\.json$", key)], [], what)

    def check_tidy(self, name, what):
        self.assertEqual(sorted(tree(os.path.join(self.disks[name].folder, "of/somebody/set"))), sorted(self.reference), what)

    def test_one_error(self):
        for kind in ("encode", "encode-again"):
            self.strike_all(kind, self.distinct(self.calls(kind)), ERRORS)

    def test_killed(self):
        for kind in ("encode-killed", "encode-killed-again"):
            self.strike_all(kind, self.distinct(self.calls(kind)), ("kill",))

    def test_power(self):
        self.lose_power_all("encode-power")


if __name__ == "__main__":
    unittest.main(verbosity=2)

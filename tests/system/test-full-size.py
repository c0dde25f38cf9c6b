#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One step of the real sd2-base (865.9 million parameters) on a machine of 24 GiB: trained, saved, restored with the
equal digest, and loaded by diffusers. Some minutes, 18 GiB of memory and 24 GB of disk; ops/test --full-size.

    test-full-size.py [FOLDER]      a folder on a disk; made, and removed in the end (build/full-size)

It watches the machine's memory, and ends what it started before others have none."""
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dataset

SOURCE = os.environ.get("SDTRAIN_SOURCE") or os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.path.abspath(os.environ.get("SDTRAIN_BIN") or os.path.join(SOURCE, "build/release/bin"))
FOLDER = os.path.join(SOURCE, "build/full-size")
GIB = 1 << 30
SPARE = 1 * GIB   # is left to others, or this ends
PEAK = 18 * GIB
DISK = 24 * GIB   # two checkpoints
SAID = re.compile(r"memory of rank 0 of 1: at most ([\d.]+) MiB, planned ([\d.]+) MiB")
UNET = {"_class_name": "UNet2DConditionModel", "sample_size": 32, "in_channels": 4, "out_channels": 4,
        "block_out_channels": [320, 640, 1280, 1280],
        "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
        "layers_per_block": 2, "attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024,
        "norm_num_groups": 32, "use_linear_projection": True}


def available():
    with open("/proc/meminfo") as file:
        return int(re.search(r"MemAvailable: +(\d+)", file.read()).group(1)) * 1024


class Watch(threading.Thread):
    """Ends the process when less than SPARE is available."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.least, self.struck = process, available(), False
        self.start()

    def run(self):
        while self.process.poll() is None:
            self.least = min(self.least, available())
            if self.least < SPARE:
                self.struck = True
                self.process.kill()
                return
            time.sleep(0.1)


class FullSize(unittest.TestCase):
    def path(self, name):
        return os.path.join(FOLDER, name)

    def setUp(self):
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.makedirs(FOLDER)
        self.addCleanup(shutil.rmtree, FOLDER, ignore_errors=True)
        dataset.write(self.path("data"), 4, 1, latents=(4, 32, 32), text=(77, 1024))
        self.write("unet.json", UNET)
        self.write("job.json", {
            "name": "sd2-base", "world": {"min": 1, "max": 1}, "model": {"config": self.path("unet.json")},
            "data": {"streams": [{"uri": self.path("data")}], "empty_text": self.path("data/empty.npy")},
            "train": {"global_batch": 1, "grain": 1, "steps": 1, "threads": os.cpu_count(),
                      "optimizer": {"lr": 1e-4, "warmup_steps": 1}},
            "checkpoint": {"uri": self.path("checkpoints"), "every_steps": 1, "keep_last": 2, "blocking": True}})

    def write(self, name, value):
        with open(self.path(name), "w") as file:
            json.dump(value, file)

    def run_watched(self, *command):
        """What it prints; it is to end with 0."""
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watch = Watch(process)
        text, _ = process.communicate()
        watch.join()
        if watch.struck:
            self.fail("ended: less than 1 GiB of this machine's memory was available")
        self.assertEqual(process.returncode, 0, text)
        print("%s: %.0f s, %.1f GiB available at the least\n%s" % (
            os.path.basename(command[0]), time.monotonic() - began, watch.least / GIB, text), flush=True)
        return text

    def train(self):
        """The digest; and no more memory than was planned."""
        text = self.run_watched(os.path.join(BIN, "sdtrainer"), "run", "--job", self.path("job.json"))
        peak, planned = (float(mib) * (1 << 20) for mib in SAID.search(text).groups())
        self.assertLessEqual(peak, planned)
        self.assertLess(peak, PEAK)
        return re.search(r"^step=1 digest=([0-9a-f]{32})$", text, re.M).group(1)

    def newest(self):
        folder = max(name for name in os.listdir(self.path("checkpoints")) if name.startswith("step-"))
        with open(self.path("checkpoints/%s/manifest.json" % folder)) as file:
            return self.path("checkpoints/" + folder), json.load(file)

    def test_sd2_base(self):
        began = time.monotonic()
        self.run_watched(os.path.join(BIN, "sdtrainer"), "plan", "--job", self.path("job.json"))
        self.assertLess(time.monotonic() - began, 10)
        digest = self.train()
        folder, manifest = self.newest()
        self.assertEqual((manifest["step"], manifest["digest"]), (1, digest))
        with open(self.path("checkpoints/metrics.jsonl")) as file:
            (line,) = [json.loads(text) for text in file]
        self.assertTrue(0.5 < line["loss"] < 2, line)
        self.assertEqual(self.train(), digest)  # restored: each chunk's hash is compared with the manifest's
        self.assertEqual(self.newest()[0], folder)
        python = subprocess.run([os.path.join(SOURCE, "tests/interop/interpreter")], stdout=subprocess.PIPE, text=True,
                                check=True).stdout.strip()
        text = self.run_watched(python, os.path.join(SOURCE, "tests/interop/load_weights.py"),
                                os.path.join(folder, "unet"))
        self.assertIn("865910724 elements are equal", text)


def lacking():
    if available() < PEAK + SPARE:
        return "%d GiB of memory are needed and 1 more is left to others; %.1f are available" % (PEAK / GIB, available() / GIB)
    os.makedirs(os.path.dirname(FOLDER), exist_ok=True)
    if shutil.disk_usage(os.path.dirname(FOLDER)).free < DISK:
        return "24 GB of disk are needed beside %s" % FOLDER
    return None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        FOLDER = os.path.abspath(sys.argv.pop(1))
    why_not = lacking()
    if why_not:
        print("skipped: " + why_not)
        sys.exit(0)
    unittest.main()

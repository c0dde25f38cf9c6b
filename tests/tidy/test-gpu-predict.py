#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table "predicted" of docs/figures.md is made of the tape's operations, all of which are priced, and has the sums that were predicted before any GPU ran."""
import json
import os
import subprocess
import tempfile
import unittest

SOURCE = os.environ["SDTRAIN_SOURCE"]
BIN = os.environ["SDTRAIN_BIN"]

# us an image at 512^2 with grain 32: what was predicted by hand, of the kernels as they first ran.
BY_HAND = {
    "convolution 3x3: forward": 667, "convolution 3x3: by data": 715, "convolution 3x3: by weight": 801, "linear and 1x1, all passes": 1566,
    "self attention: forward": 285, "self attention: backward": 1456, "cross attention": 169, "GroupNorm: forward": 117, "GroupNorm: backward": 225,
    "LayerNorm: forward": 55, "LayerNorm: backward": 166, "GEGLU: forward": 116, "GEGLU: backward": 201, "epilogue of convolutions": 60,
    "bias and time gradients": 161, "concat, upsample, skip additions": 84, "gradients into exact sums": 126, "gaps, small kernels": 109,
}


class Prediction(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([os.path.join(SOURCE, "ops/gpu_predict.py"), *arguments], check=False, timeout=60, capture_output=True, text=True)

    def predict(self, size, *arguments):
        done = self.run_script("--size", size, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def operations(self):
        out = subprocess.run([os.path.join(BIN, "list-operations"), "sd2-512"], check=True, timeout=60, capture_output=True, text=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def with_operations(self, operations):
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write("".join(json.dumps(one) + "\n" for one in operations))
            file.flush()
            return self.run_script("--size", "512", "--changes", "none", "--operations", file.name)

    def test_the_sums_are_those_that_were_predicted(self):
        for size, usec in (("512", 7080), ("256", 1520)):
            self.assertLess(abs(self.predict(size, "--changes", "none")["sum"] / usec - 1), 0.03, size)

    def test_each_row_is_near_what_was_predicted_by_hand(self):
        rows = self.predict("512", "--changes", "none")["rows"]
        self.assertEqual(set(BY_HAND), {name for name in rows if not name.endswith("(ms a step)")})
        for name, usec in BY_HAND.items():
            self.assertLess(abs(rows[name] / usec - 1), 0.2 if name == "cross attention" else 0.05, name)

    def test_launches_are_those_of_the_profile(self):
        for size in ("512", "256"):
            with open(os.path.join(SOURCE, f"ops/gpu-results/NVIDIA-H100-80GB-HBM3/profile-{size}-operations.json"), encoding="utf-8") as file:
                rows = json.load(file)["operations"]
            ran = sum(len(one["launches"]) for one in rows if one["pass"] in ("forward", "backward"))
            self.assertEqual(self.predict(size, "--changes", "none")["launches"], ran)

    def test_every_operation_is_priced(self):
        operations = self.operations()
        self.assertEqual(len(operations), 409)
        self.assertEqual(sum(one["weight"] + one["bias"] for one in operations), 865910724)
        whole = json.loads(self.with_operations(operations).stdout)["sum"]
        for kind in sorted({one["kind"] for one in operations}):
            left = json.loads(self.with_operations([one for one in operations if one["kind"] != kind]).stdout)["sum"]
            self.assertLess(left, whole, kind)

    def test_an_unknown_kind_is_an_error(self):
        operations = self.operations()
        operations[7]["kind"] = "group_norm_of_tomorrow"
        done = self.with_operations(operations)
        self.assertEqual(done.returncode, 1)
        self.assertIn("group_norm_of_tomorrow", done.stderr)

    def test_each_change_gains(self):
        none = self.predict("512", "--changes", "none")
        for change in ("group_norm_once", "geglu_sums", "layer_norm_sums", "reciprocal", "layer_norm_once", "no_concat"):
            self.assertLess(self.predict("512", "--changes", change)["sum"], none["sum"] - 20, change)
        every = self.predict("512", "--changes", "all")
        self.assertLess(every["sum"], 6700)
        self.assertLess(every["own_bytes"], 0.8 * none["own_bytes"])
        done = self.run_script("--size", "512", "--changes", "faster")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no change faster", done.stderr)

    def test_the_page_has_the_table(self):
        done = self.run_script("--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as file:
                file.write("before\n<!-- begin: predicted -->\n<!-- end -->\nafter\n")
            self.assertEqual(self.run_script("--check", "--page", page).returncode, 1)
            self.assertEqual(self.run_script("--page", page).returncode, 0)
            self.assertEqual(self.run_script("--check", "--page", page).returncode, 0)
            with open(page, "w", encoding="utf-8") as file:
                file.write("no place\n")
            self.assertEqual(self.run_script("--page", page).returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)

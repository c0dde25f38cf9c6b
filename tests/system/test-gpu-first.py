#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu-first says what each case found, one line each, and a case that ends badly costs itself alone: tried with the emulator of the
kernels, and with libraries that compute on the host, in the GPU's place."""
import json
import os
import subprocess
import unittest

SOURCE = os.environ["SDTRAIN_SOURCE"]
BIN = os.environ.get("SDTRAIN_BIN", os.path.join(SOURCE, "build/release/bin"))
FAKES = os.path.realpath(os.path.join(BIN, "../fake-cuda"))
CASES = ["machine", "libraries", "numbers", "nccl", "nccl-two", "cublaslt-again", "cublaslt", "cudnn"]
NO_HEADERS = 3


def run(*arguments, **variables):
    """The exit code, and the lines."""
    environment = dict(os.environ, SDTRAIN_CUDA_MODULE=os.path.join(BIN, "libsdtrain-emulated.so"), SDTRAIN_CUDA_LIBRARIES=FAKES)
    done = subprocess.run([os.path.join(BIN, "gpu-first"), *arguments], check=False, timeout=120, capture_output=True, text=True,
                          env={**environment, **variables})
    if done.returncode == NO_HEADERS:
        raise unittest.SkipTest(done.stderr)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def ends(lines):
    return {line["case"]: line for line in lines if line.get("done")}


class First(unittest.TestCase):
    def test_each_case_says_what_it_found(self):
        code, lines = run("--emulated")
        ended = ends(lines)
        self.assertEqual((code, {name: end.get("exit") for name, end in ended.items() if name in CASES}), (0, dict.fromkeys(CASES, 0)), lines)
        of = {name: [line for line in lines if line["case"] == name and not line.get("done")] for name in ended}
        self.assertEqual({name for name, said in of.items() if not said}, set())

        opened = [line for line in of["machine"] if line.get("api") == "device_open" and "numerics" in line]
        self.assertEqual([(line["type"], line["code"], line["numerics_code"]) for line in opened], [("fp32", 0, 0), ("bf16", 0, 0)])
        self.assertIn({"case": "libraries", "library": "libcudnn.so.9", "place": "SDTRAIN_CUDA_LIBRARIES", "version": 91900},
                      [{key: line[key] for key in line if key != "path"} for line in of["libraries"]])
        why = {"emulated", "there was no nvcc when this was built"}
        self.assertTrue(len(of["numbers"]) == 1 and of["numbers"][0]["not_run"] in why, of["numbers"])

        products = [line for line in of["cublaslt"] if line.get("ran")]
        self.assertGreater(len(products), 3)
        for line in products:
            self.assertEqual((line["replay"], line["same_struct"], line["repeats"], line["replayed_equal"], line["opaque_equal"], line["finite"]),
                             ("ok", True, True, True, True, True), line)
            self.assertLess(line["ratio"], 1, line)
            self.assertLess(line.get("adding", {}).get("ratio", 0), 1, line)
        again = {line["product"]: line["bytes"] for line in of["cublaslt-again"] if "bytes" in line}
        self.assertEqual(again, {name: [line["bytes"] for line in products if line["product"] == name] for name in again})
        passes = [line for line in of["cudnn"] if "engine" in line]
        self.assertEqual({(line["operation"].split()[-1], line["add"]) for line in passes},
                         {(name, add) for name in ("forward", "backward_data", "backward_weight") for add in (False, True)})
        for line in passes:
            self.assertEqual((line["repeats"], line["finite"], line["ratio"] < 1), (True, True, True), line)

    def test_a_case_that_ends_badly_costs_itself_alone(self):
        code, lines = run("--emulated", "test-abort", "test-hang", "test-cut", "machine")
        ended = ends(lines)
        self.assertEqual(code, 1)
        self.assertEqual((ended["test-abort"]["signal"], ended["test-abort"]["stderr"]), (6, "this is why\n"))
        self.assertTrue(ended["test-hang"]["late"])
        self.assertLess(ended["test-hang"]["seconds"], 10)
        self.assertEqual((ended["test-cut"]["exit"], ended["machine"]["exit"]), (0, 0))
        said = [(line["case"], line["said"]) for line in lines if "said" in line]
        self.assertEqual(sorted(said), [("test-abort", "before it aborts"), ("test-hang", "before it hangs")])
        self.assertEqual([line["printed"] for line in lines if "printed" in line], ["a line of a library", '{"case":"test-cut","half'])

    def test_what_was_not_begun_is_told_by_name(self):
        code, lines = run("--emulated", "--seconds", "1", "test-hang", "machine", "cublaslt")
        self.assertEqual(code, 1)
        self.assertEqual([line["case"] for line in lines if "not_run" in line], ["cublaslt"])
        self.assertTrue(ends(lines)["test-hang"]["late"])
        self.assertEqual(run("no-such-case")[0], 2)

    def test_without_a_module_each_case_says_so(self):
        code, lines = run("machine", "cublaslt", "cudnn", SDTRAIN_CUDA_MODULE="/nonexistent/module.so")
        self.assertEqual(code, 0, lines)
        for name in ("machine", "cublaslt", "cudnn"):
            self.assertTrue([line for line in lines if line["case"] == name and "/nonexistent/module.so" in line.get("text", "")], lines)


if __name__ == "__main__":
    unittest.main()

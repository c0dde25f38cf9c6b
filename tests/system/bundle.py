# SPDX-License-Identifier: Apache-2.0
"""A bundle of ops/gpu for tests, with the emulator of the kernels in the GPU's place."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock

SOURCE = os.environ["SDTRAIN_SOURCE"]


class Bundle(unittest.TestCase):
    """A bundle is made once for all tests of a class; each has a folder of links to its files."""
    said = ""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.whole = os.path.join(folder.name, "whole")
        subprocess.run([os.path.join(SOURCE, "ops/gpu"), "bundle", "--no-build", "--out", cls.whole], check=True, timeout=300)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.path.dirname(self.whole))
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "gpu")
        shutil.copytree(self.whole, self.folder, copy_function=os.link)

    def own(self, name):
        """A file of the bundle that this test may change."""
        path = os.path.join(self.folder, name)
        shutil.copy2(path, path + ".own")
        os.rename(path + ".own", path)
        return path

    def stages(self, *arguments, gpu="emulator"):
        """The exit code, and how each stage went."""
        done = subprocess.run([os.path.join(self.folder, "ops/gpu"), "run", *arguments], check=False, timeout=300, cwd="/",
                              capture_output=True, text=True)
        self.said = done.stdout
        with open(os.path.join(self.folder, "results", gpu, "result.json"), encoding="utf-8") as file:
            results = json.load(file)
        for name, result in results.items():  # the file of each stage that was asked for has all of it
            path = os.path.join(self.folder, "results", gpu, name + ".json")
            if result.get("note") == "it is not among --stages":
                continue
            if result["how"] != "not run" or os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    whole = json.load(file)
                self.assertEqual({key: result[key] for key in result if key != "how"}, {key: whole[key] for key in result if key != "how"})
                result.update(whole)
            self.assertRegex(self.said, rf"\n{name} +{result['how']}\b")
        return done.returncode, results

    def emulated(self, names, *arguments):
        code, results = self.stages("--emulated", "--stages", names, *arguments)
        self.assertEqual({name for name in results if results[name]["how"] != "not run"}, {"machine", *names.split(",")})
        return code, {name: results[name]["how"] for name in names.split(",")}, results

    def replace(self, program, script):
        path = os.path.join(self.folder, "bin", program)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # a link
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)

    def fakes(self):
        """Libraries that compute on the host, for what is run from now on."""
        fake = os.path.join(os.environ.get("SDTRAIN_BIN", os.path.join(SOURCE, "build/release/bin")), "../fake-cuda")
        if not os.path.exists(fake):
            self.skipTest("there were no cublasLt.h and cudnn.h")
        return unittest.mock.patch.dict(os.environ, SDTRAIN_CUDA_LIBRARIES=os.path.realpath(fake))

    def run_python(self, script):
        done = subprocess.run(["python3", "-c", script], check=False, timeout=120, cwd=os.path.join(self.folder, "ops"), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

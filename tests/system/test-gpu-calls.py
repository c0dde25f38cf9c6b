#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two calls that a lent GPU has time for: they fit into it, and whatever a stage's program does (fails, hangs, dies, refuses), the
archive that comes back names the stage and what became of it. Programs are stand-ins, and limits a twentieth."""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

from bundle import SOURCE, Bundle

sys.path.insert(0, os.path.join(SOURCE, "ops"))
import gpu_calls  # noqa: E402  pylint: disable=wrong-import-position

# What a program says that is well, for the stages that read it.
GRAPH = '{"scale":"small","grain":1,"step_usec":10,"graph":{"nodes":3,"step_usec":9}}'
PROFILE = ('{"scale":"small","grain":1,"step_usec":10,"launches":1,"operations":[{"operation":"conv 1x8x8 4->4 k3 s1 a.weight","kind":"conv","pass":"forward",'
           '"usec":10,"bytes":100,"flop":100,"launches":[{"name":"conv forward","usec":10,"bytes":100,"flop":100}]}]}')
SET = '{"device":"emulator","operations":{"linear a":{}}}'
WELL = {
    "gpu-first": """echo '{"case":"one","done":true,"exit":0}'""",
    "bench-device": """echo '{"device_to_device":1e9,"host_to_device":1e9,"device_to_host":1e9}'""",
    "bench-libraries": """echo '{"flops":1e9}'""",
    "test-unet": "exit 0",
    "check-operations": """echo '{"operation":"a","pass":"forward","right":true}'""",
    "test-exactness": """echo '{"kind":"own","key":"own-0","case":"0","digest":"aa"}'""",
    "bench-profile": f"""case $4 in graph) echo '{GRAPH}' ;; *) echo '{PROFILE}' ;; esac""",
    "sdtrainer": f"""case $1 in plan) while [ "$1" != --plans ]; do shift; done; echo '{SET}' >$2; exit;; esac
for n in 1 2; do echo "2026-01-01T00:00:0${{n}}Z info sdtrainer: step $n/2 loss 0.5, x"; done
echo "memory of rank 0 of 1: at most 1.0 MiB, planned 1.0 MiB"; echo step=2 digest=0123456789abcdef0123456789abcdef""",
}
# How a program is ill, and what the archive must then say of its stage.
ILL = {
    "fail": ("echo the library is unwell >&2; exit 7", "the library is unwell"),
    "hang": ("echo still there >&2; exec sleep 600", "not done after"),
    "die": ("echo last words >&2; kill -SEGV $$", "last words"),
    "refuse": ("echo no GPU for you >&2; exit 85", "no GPU for you"),
}
# The programs of each stage, one of them ill: what runs with them, and needs no real GPU.
OF = {"gpu-first": "gpu-first", "bits": "kernels-bits", "ceilings": "bench-device", "unet-libraries": "test-unet", "plans-512": "sdtrainer", "plans-256": "sdtrainer",
      "retuned-512": "sdtrainer", "profile-512": "bench-profile", "profile-256": "bench-profile", "graph-256": "bench-profile",
      "job-512": "sdtrainer", "exactness": "test-exactness",
      "attention-far": "check-operations", "peer-eager-512": "torch", "peer-shapes-512": "torch", "sanitizer-brief": "compute-sanitizer"}


class Calls(Bundle):
    def setUp(self):
        super().setUp()
        golden = os.path.join(self.folder, "tests/golden/kernels-cuda.txt")
        self.replace("kernels-bits", f"""awk -v want=$3 '/^{{/ {{ n++ }} n == (want == "f32" ? 1 : 2)' {golden}""")
        for program, script in WELL.items():
            self.replace(program, script + "\n")
        self.tools = os.path.join(self.folder, "tools")
        os.makedirs(self.tools)
        self.replace("../tools/torch", """cat <<'END'
{"torch":"stand-in","operations":{"conv 1x8x8 4->4 k3 s1":{"forward":10}},"samples_per_second":1,"memory_bytes":1}
END
""")
        self.replace("../tools/compute-sanitizer", "echo ========= ERROR SUMMARY: 0 errors\n")

    def call(self, name, scale=0.05):
        """The archive's results of one call: {stage: result}, and its other files."""
        bring = tempfile.mkdtemp(dir=self.folder)
        environment = dict(os.environ, SDTRAIN_CUDA_LIBRARIES="/nonexistent", SDTRAIN_TORCH_PYTHON=os.path.join(self.tools, "torch"),
                           PATH=self.tools + ":" + os.environ["PATH"])
        done = subprocess.run([os.path.join(self.folder, "ops/gpu"), "run", "--call", name, "--emulated", "--scale", str(scale), "--bring", bring,
                               "--out", os.path.join(self.folder, "out")], check=False, timeout=300, cwd="/", env=environment, capture_output=True, text=True)
        self.said = done.stdout + done.stderr
        self.assertEqual(os.listdir(bring), [gpu_calls.ARCHIVE], self.said)
        files = {}
        with tarfile.open(os.path.join(bring, gpu_calls.ARCHIVE)) as archive:
            for member in archive.getmembers():
                files[member.name] = archive.extractfile(member).read()
        results = json.loads(files["results/emulator/result.json"])
        for stage, result in results.items():
            result.update(json.loads(files.get(f"results/emulator/{stage}.json", "{}")))
        return results, files

    def forget(self):
        shutil.rmtree(os.path.join(self.folder, "out"), ignore_errors=True)

    def earlier(self):
        """What stages need of an earlier call: a set of plans, and a profile whose shapes PyTorch is asked for."""
        for name, text in (("plans/emulator.json", SET), ("emulator/profile-512-operations.json", PROFILE)):
            path = os.path.join(self.folder, "out", name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="ascii") as file:
                file.write(text)

    def test_the_calls_fit(self):
        """With their starts they take 12 minutes at most, and every stage of `first` comes before it is needed."""
        self.assertLessEqual(gpu_calls.planned_seconds(), gpu_calls.TOTAL_SEC)
        for limits in gpu_calls.LIMITS.values():
            self.assertLessEqual(max(limits.values()), 80)
        self.run_python("""import importlib.machinery, importlib.util, sys
sys.argv = ["gpu"]
loader = importlib.machinery.SourceFileLoader("gpu", "gpu")
gpu = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu", loader))
loader.exec_module(gpu)
gpu.add_later([], [])
named = {name for limits in gpu.gpu_calls.LIMITS.values() for name in limits} - {"failed"}
assert named <= set(gpu.STAGES), named - set(gpu.STAGES)
rest = gpu.stages_of("rest")[0]
assert sorted([*named, *rest[1:]]) == sorted(gpu.STAGES), set(gpu.STAGES) ^ {*named, *rest}
for name, stage in gpu.STAGES.items():
    assert stage.least <= stage.seconds <= gpu.BUDGET, name
""")

    def test_calls_that_are_well(self):
        for name in gpu_calls.CALLS:
            results, files = self.call(name)
            for stage in gpu_calls.LIMITS[name]:
                if stage not in ("failed", "devprop"):  # an emulator has no record
                    self.assertIn(results[stage]["how"], ("passed", "skipped"), self.said)
            self.assertIn("results/plans/emulator.json", files)
        self.assertIn("results/emulator/profile-512-operations.json", files)

    def test_each_fault_is_named(self):
        began = time.monotonic()
        named = 0
        for kind, (script, told) in ILL.items():
            for program in set(OF.values()):
                folder = "../tools/" if program in ("torch", "compute-sanitizer") else ""
                self.replace(folder + program, script + "\n")
            for name in gpu_calls.CALLS:
                self.forget()
                self.earlier()
                results, _ = self.call(name)
                for stage in gpu_calls.LIMITS[name]:
                    if stage not in OF:
                        continue
                    result = results[stage]
                    late = (kind, stage) == ("hang", "sanitizer-brief")  # which has shown nothing, neither good nor bad
                    self.assertEqual(result["how"], "not run" if late else "failed", f"{kind} {stage}: {json.dumps(result)[:2000]}")
                    self.assertIn(told, json.dumps(result), f"{kind} {stage}")
                    named += 1
        self.assertGreaterEqual(named, 40)
        print(f"{named} faults named in {time.monotonic() - began:.0f} s", file=sys.stderr)


class Rehearsal(Bundle):
    """The first call by the programs themselves, on the emulator and by libraries that compute on the host."""

    def test_the_first_call_is_rehearsed(self):
        began = time.monotonic()
        with self.fakes():
            code, results = self.stages("--call", "first", "--emulated")
        self.assertEqual(code, 0, self.said)
        how = {name: results[name]["how"] for name in gpu_calls.LIMITS["first"]}
        elsewhere = {name for name in how if name.startswith("peer-") or name == "devprop"}  # PyTorch's, and a real GPU's
        self.assertEqual({how[name] for name in set(how) - elsewhere}, {"passed"}, self.said)
        self.assertTrue(all(how[name] in ("passed", "not run") for name in elsewhere), self.said)
        self.assertEqual({one["case"] for one in results["gpu-first"]["cases"] if one.get("done")} & {"cublaslt", "cudnn"}, {"cublaslt", "cudnn"})
        print(f"rehearsed in {time.monotonic() - began:.0f} s", file=sys.stderr)


class Archive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def brought(self, files, most):
        results, to = os.path.join(self.folder, "results"), os.path.join(self.folder, "to")
        for name, data in files.items():
            os.makedirs(os.path.dirname(os.path.join(results, name)), exist_ok=True)
            with open(os.path.join(results, name), "wb") as file:
                file.write(data)
        os.makedirs(to)
        gpu_calls.bring(results, to, most)
        with tarfile.open(os.path.join(to, gpu_calls.ARCHIVE)) as archive:
            return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}

    def test_logs_are_cut_first_and_what_is_left_out_is_named(self):
        noise = os.urandom(1 << 20)
        found = self.brought({"gpu/a.json": b"{}", "gpu/b.log": noise, "plans/c.json": b"{}"}, 200000)
        self.assertEqual(found["results/gpu/a.json"], b"{}")
        self.assertTrue(found["results/gpu/b.log"].endswith(noise[-1000:]))
        self.assertIn(b"gpu/b.log: the last 65536 of 1048576 bytes", found["results/left-out.txt"])

    def test_the_largest_is_left_out(self):
        found = self.brought({"gpu/a.json": b"{}", "gpu/profile.json": os.urandom(1 << 20)}, 200000)
        self.assertEqual(sorted(found), ["results/gpu/a.json", "results/left-out.txt"])
        self.assertIn(b"gpu/profile.json: left out, 1048576 bytes", found["results/left-out.txt"])


if __name__ == "__main__":
    unittest.main(verbosity=2)

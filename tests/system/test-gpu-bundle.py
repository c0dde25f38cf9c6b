#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ops/gpu carries to a machine with a GPU starts there from a folder of its own, and its stages tell right from wrong: tried
with the emulator of the kernels in the GPU's place."""
import contextlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from bundle import SOURCE, Bundle

MEBIBYTE = 2**20


def no_files():
    """In a child: no byte can be written to a file, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class Stages(Bundle):
    """Stages that look at kernels and at the device."""

    def test_a_bundle_runs_by_itself(self):
        # The kernels run once: what they have said is said again from then on.
        os.rename(os.path.join(self.folder, "bin/kernels-bits"), os.path.join(self.folder, "bin/real"))
        self.replace("kernels-bits", f"""kept={self.folder}/bits-$3
[ -e $kept ] || "$(dirname "$0")/real" "$@" >$kept || exit
cat $kept
""")
        code, how, results = self.emulated("ceilings,lanes,bits,float64,elementwise")
        self.assertEqual((code, set(how.values())), (0, {"passed"}), self.said)
        self.assertGreater(results["ceilings"]["copies"]["device_to_device"], 1e6)
        self.check_elementwise(results["elementwise"])
        self.assertGreater(len(results["float64"]["bf16"]), 10)
        self.assertTrue(os.path.isfile(os.path.join(self.folder, "lib/plans/NVIDIA-H200.json")))

        # Another bit in the golden file is a kernel that computes otherwise; and the file is what the stage depends on.
        golden = self.own("tests/golden/kernels-cuda.txt")
        with open(golden, encoding="utf-8") as file:
            text = file.read()
        at = text.index("\nsilu forward ") + len("\nsilu forward ")
        with open(golden, "w", encoding="utf-8") as file:
            file.write(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1:])
        earlier = os.path.join(self.folder, "earlier")
        os.rename(os.path.join(self.folder, "results"), earlier)
        code, how, results = self.emulated("ceilings,lanes,bits", "--results", earlier)
        self.assertEqual((code, how), (1, {"ceilings": "skipped", "lanes": "skipped", "bits": "failed"}), self.said)
        self.assertIn("silu forward", results["bits"]["differ"]["f32"][0])

        # What failed is not a result to rely on, a skipped stage's is; a program that changed is run, and only its stages.
        os.rename(os.path.join(self.folder, "results"), earlier + "-2")
        with open(self.own("bin/bench-device"), "ab") as file:
            file.write(b"another build")
        self.replace("kernels-bits", "exit 9\n")
        code, how, _ = self.emulated("ceilings,lanes,bits", "--results", earlier + "-2")
        self.assertEqual((code, how), (1, {"ceilings": "passed", "lanes": "skipped", "bits": "failed"}), self.said)
        code, how, _ = self.emulated("lanes", "--results", earlier + "-2", "--again")
        self.assertEqual((code, how), (0, {"lanes": "passed"}), self.said)

    def test_operations_that_are_done_are_left_out(self):
        def told(*arguments):
            command = [os.path.join(self.folder, "bin/check-operations"), "cuda", "f32", "8", "1", "attention", "64", *arguments]
            done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True, env=dict(
                os.environ, LD_LIBRARY_PATH=os.path.join(self.folder, "lib"), SDTRAIN_CUDA_PLANS="/nonexistent",
                SDTRAIN_CUDA_MODULE=os.path.join(self.folder, "lib/libsdtrain-emulated.so")))
            return [(one["operation"], one["pass"]) for one in map(json.loads, done.stdout.splitlines())]
        passes = told("sd2")
        self.assertEqual(told("sd2", "0"), passes)
        last = passes[-1][0]
        n = len({name for name, _ in passes})
        self.assertEqual(told("sd2", str(n - 1)), [one for one in passes if one[0] == last])

    def check_elementwise(self, result):
        """Sums, by the calls that they are the sums of."""
        calls = result["told"]["calls"]
        for where, names in result["operations"].items():
            for name, sums in names.items():
                of = [call for call in calls if name in ("all", call["name"])]
                self.assertEqual(sums["calls"], sum(call[where] for call in of))
                self.assertEqual(sums["bytes"], sum(call[where] * call["bytes"] for call in of))
                self.assertAlmostEqual(sums["share"], sums["bytes"] / sums["usec"] * 1e6 / result["told"]["copy"], places=3)
        self.assertTrue({"group_norm backward", "layer_norm forward", "geglu forward", "gradient_take"} <= set(result["operations"]["per_grain"]))
        self.assertEqual({"all", "state_squares", "state_update"} - set(result["operations"]["per_step"]), set())

    def test_the_elementwise_calls_are_those_of_sd2_base(self):
        told = json.loads(subprocess.run([os.path.join(self.folder, "bin/bench-device"), "list", "cpu", "f32", "sd2"], check=True, timeout=60,
                                         capture_output=True, text=True, env={"LD_LIBRARY_PATH": os.path.join(self.folder, "lib")}).stdout)
        calls, megabytes = {}, {}
        for call in told["calls"]:
            calls[call["name"]] = calls.get(call["name"], 0) + call["per_grain"] + call["per_step"]
            megabytes[call["name"]] = megabytes.get(call["name"], 0) + call["per_grain"] * call["bytes"] / told["grain"] / 1e6
        # The network's modules, counted in its description: 22 blocks of two norms, 16 transformers of one and three, one at the end.
        of_modules = {"group_norm forward": 22 * 2 + 16 + 1, "group_norm backward": 61, "layer_norm forward": 16 * 3, "layer_norm backward": 48,
                      "geglu forward": 16, "geglu backward": 16, "concat forward": 12, "upsample forward": 3, "time gradient": 22,
                      "time_embedding forward": 1, "cast_from_f32": 2, "mse_loss": 1, "state_squares": 1, "state_update": 1}
        self.assertEqual({name: calls[name] for name in of_modules}, of_modules)
        self.assertEqual((told["operations"], told["parameters"]), (409, 865910724))
        # GEGLU's hidden width is 4 c, and a row is read and written 3 times forward, 5 times backward; c, sides and layers are sd2-base's.
        geglu = sum(4 * side * side * 4 * c * 8 * layers for side, c, layers in ((64, 320, 5), (32, 640, 5), (16, 1280, 5), (8, 1280, 1))) / 1e6
        self.assertAlmostEqual(megabytes["geglu forward"] + megabytes["geglu backward"], geglu, places=3)

    def test_a_product_is_what_it_should_be(self):
        with self.fakes():
            code, how, results = self.emulated("ceilings")
        self.assertEqual((code, how), (0, {"ceilings": "passed"}), self.said)
        self.assertGreater(results["ceilings"]["product"]["candidates"], 1)
        self.assertLess(results["ceilings"]["product"]["squared_error"], 1e-3)
        # Libraries that are not there are no failure of the copies, and are told.
        with unittest.mock.patch.dict(os.environ, SDTRAIN_CUDA_LIBRARIES="/nonexistent"):
            code, how, results = self.emulated("ceilings", "--again")
        self.assertEqual((code, how), (0, {"ceilings": "passed"}), self.said)
        self.assertIn("/nonexistent", results["ceilings"]["text"])
        self.assertIn("no product", results["ceilings"]["note"])

    def test_the_record_of_a_device_is_read_back(self):
        record = os.path.join(self.folder, "record")
        told = {"deviceName": "NVIDIA Imagined", "deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132, "warpSize": 32,
                "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
                "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
                "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "l2CacheSize": 62914560,
                "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "totalGlobalMem": 150754820096, "cudaDeviceId": 0, "pciDeviceId": 0,
                "isTccDriver": 0, "supportCoopLaunch": 1}
        with open(record, "w", encoding="utf-8") as file:
            json.dump(told, file)
        done = subprocess.run([os.path.join(self.folder, "bin/bench-libraries"), "record", record], check=False, timeout=60,
                              capture_output=True, text=True, env=dict(os.environ, LD_LIBRARY_PATH=os.path.join(self.folder, "lib")))
        if done.returncode == 3:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        read = json.loads(done.stdout)
        self.assertEqual({key: read.get(key) for key in told}, told)

    def test_a_failing_stage_keeps_its_text(self):
        self.replace("check-operations", 'echo \'{"operation":"conv","error":1.5,"right":\'$([ $2 = f32 ] && echo true || echo false)"}"; [ $2 = f32 ]\n')
        code, how, results = self.emulated("float64")
        self.assertEqual((code, how), (1, {"float64": "failed"}), self.said)
        self.assertEqual([results["float64"][kind][0]["right"] for kind in ("f32", "bf16")], [True, False])
        self.assertIn("1 passes, 1 wrong", results["float64"]["note"])

        self.replace("test-lanes", "echo what it said; echo and why, with \"<$LD_LIBRARY_PATH>\" >&2; exit 7\n")
        real = os.path.join(self.folder, "bin/bench-device")
        os.rename(real, real + ".real")
        self.replace("bench-device", "echo '{ no json'\n")
        code, how, results = self.emulated("ceilings,lanes,elementwise")
        self.assertEqual((code, set(how.values())), (1, {"failed"}), self.said)
        folders = ":".join(filter(None, [os.path.join(self.folder, "lib"), os.environ.get("LD_LIBRARY_PATH")]))  # none is empty
        self.assertEqual((results["lanes"]["text"], results["lanes"]["code"]), (f"what it said\nand why, with <{folders}>\n", 7))
        self.assertIn("JSONDecodeError", results["ceilings"]["text"])
        self.replace("bench-device", "echo the GPU fell off the bus >&2; exit 1\n")
        _, how, results = self.emulated("elementwise")
        self.assertEqual(how, {"elementwise": "failed"})
        self.assertIn("the GPU fell off the bus", results["elementwise"]["text"])

        # Plans that cannot be used are told, and the calls are measured without.
        self.replace("bench-device", '[ -n "$SDTRAIN_CUDA_PLANS" ] || { echo of another version >&2; exit 1; }; exec "$0.real" "$@"\n')
        _, how, results = self.emulated("elementwise")
        self.assertEqual(how, {"elementwise": "passed"}, self.said)
        self.assertIn("of another version", results["elementwise"]["text"])
        self.assertTrue(results["elementwise"]["note"].startswith("without plans: "))
        self.check_elementwise(results["elementwise"])


class Training(Bundle):
    """Stages that make plans and train with them."""

    def test_plans_are_made_and_train(self):
        later = "unet-libraries,encoders,plans-512,plans-256,sd2-256"
        # What a training run has said is kept; test-unet with libraries is a test of its own.
        os.rename(os.path.join(self.folder, "bin/sdtrainer"), os.path.join(self.folder, "bin/real"))
        said = os.path.join(self.folder, "said")
        self.replace("sdtrainer", f"""[ $1 = run ] || exec "$(dirname "$0")/real" "$@"
"$(dirname "$0")/real" "$@" >{said} 2>&1
code=$?
cat {said}
exit $code
""")
        self.replace("test-unet", "[ $SDTRAIN_TEST_DEVICE = cuda-bf16 ] && [ ! $SDTRAIN_CUDA_PLANS ]\n")
        with self.fakes():
            code, how, results = self.emulated(later)
            self.assertEqual((code, set(how.values())), (0, {"passed"}), self.said)
            with open(os.path.join(self.folder, "results/plans/emulator.json"), encoding="utf-8") as file:
                operations = json.load(file)["operations"]
            self.assertIn("linear bf16 128x32->96 forward", operations)  # of two pictures; half of it of one
            self.assertIn("linear bf16 64x32->96 forward", operations)
            lives = results["sd2-256"]["runs"]
            self.assertEqual((len(lives), lives[0]["digest"]), (2, lives[1]["digest"]))
            self.assertEqual(len(lives[0]["losses"]), 8)
            # Who has made a set is skipped, but not where the set is gone.
            again = ["--emulated", "--stages", "plans-256", "--results", os.path.join(self.folder, "results"), "--bound", "0.1"]
            self.assertEqual(self.stages(*again)[1]["plans-256"]["how"], "skipped", self.said)
            os.rename(os.path.join(self.folder, "results/plans"), os.path.join(self.folder, "away"))
            self.assertEqual(self.stages(*again)[1]["plans-256"]["how"], "failed", self.said)
            os.rename(os.path.join(self.folder, "away"), os.path.join(self.folder, "results/plans"))
            # A network that ends with other weights the second time is not a success.
            self.replace("sdtrainer", f'sed "s/digest=./digest=$(test -e {self.folder}/once && echo 1 || echo 0)/" {said}\n'
                                      f"touch {self.folder}/once\n")
            code, how, results = self.emulated("sd2-256")
            self.assertEqual((code, how), (1, {"sd2-256": "failed"}), self.said)
            self.assertIs(results["sd2-256"].get("digests_equal"), False, results["sd2-256"])
        shutil.rmtree(os.path.join(self.folder, "results/plans"))
        self.assertEqual(self.stages("--emulated", "--stages", "sd2-512")[1]["sd2-512"]["note"], "there are no plans")


class Exactness(Bundle):
    """The stage with one digest, by the real program."""

    def test_one_job_has_one_digest(self):
        with self.fakes(), unittest.mock.patch.dict(os.environ, SDTRAIN_EXACT_KINDS="plans"):
            code, how, results = self.emulated("exactness")
            self.assertEqual((code, how), (0, {"exactness": "passed"}), self.said)
            cases = results["exactness"]["cases"]
            self.assertEqual(len({one["digest"] for one in cases}), 1)
            self.assertEqual({one["kind"] for one in cases}, {"plans"})
            self.assertTrue(any("killed" in one["case"] for one in cases) and any("addresses" in one["case"] for one in cases), cases)
            # Who goes on has the plans of then, and runs what is left.
            path = os.path.join(self.folder, "results/emulator/exactness.json")
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            self.assertIn('"linear bf16 ', kept["plans"])
            with open(path, "w", encoding="utf-8") as file:
                json.dump(dict(kept, passed=None, more_to_do=True, cases=cases[:-1]), file)
            with unittest.mock.patch.dict(os.environ, FAKE_CUDNN_USEC="1:1"):  # who tuned now would choose otherwise
                code, how, results = self.emulated("exactness")
            again = results["exactness"]
            self.assertEqual((code, how, again["plans"]), (0, {"exactness": "passed"}, kept["plans"]), self.said)
            self.assertEqual(again["cases"][:-1], cases[:-1])
            self.assertEqual([again["cases"][-1][key] for key in ("key", "digest")], [cases[-1][key] for key in ("key", "digest")])
            # An engine that answers otherwise the second time is told by what the rank said.
            with unittest.mock.patch.dict(os.environ, FAKE_CUDNN_WAVER="forward:1"):
                code, how, results = self.emulated("exactness", "--again")
            self.assertEqual((code, how), (1, {"exactness": "failed"}), self.said)
            self.assertIn("by the plan of conv bf16 ", results["exactness"]["text"])
        self.replace("test-exactness", """for i in 1 2; do echo '{"kind": "own", "case": "'$i'", "digest": "'$i'"}'; done\n""")
        code, how, results = self.emulated("exactness", "--again")
        self.assertEqual((code, how), (1, {"exactness": "failed"}), self.said)
        self.assertIn("2 cases, 1 with another digest", results["exactness"]["note"])


class Measures(Bundle):
    """Stages that measure, and stand beside PyTorch."""

    def test_a_step_is_measured_beside_torch(self):
        torch = os.path.join(self.folder, "python")  # stands for the machine's own
        stages = "ceilings,plans-512,profile-512,graph-256,bench-512,peer-shapes-512,peer-eager-512"
        with self.fakes():
            code, results = self.stages("--emulated", "--stages", stages)
            how = {name: results[name]["how"] for name in stages.split(",")}
            self.assertEqual((code, how.pop("peer-shapes-512"), how.pop("peer-eager-512"), set(how.values())), (0, "not run", "not run", {"passed"}), self.said)
            self.assertEqual(results["peer-shapes-512"]["note"], "skipped: no torch")
            self.check_profile(results)
            self.assertEqual(results["graph-256"]["note"], "refused: only a GPU has graphs")
            self.check_bench(results["bench-512"])

            # A torch that is as fast as the libraries' operations, but twice as slow as one of them.
            with open(os.path.join(self.folder, "results/emulator/profile-512-operations.json"), encoding="utf-8") as file:
                first = next(launch for one in json.load(file)["operations"] for launch in one["launches"] if "flop" in launch)
            self.assertIn(" forward", first["name"])
            with open(torch, "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env python3\nimport json, sys\n"
                           "if sys.argv[2] == 'shapes':\n"
                           "    names = json.load(open(sys.argv[3]))['operations']\n"
                           "    print(json.dumps({'torch': 'fake', 'operations': {name: {'forward': 1e9, 'backward_data': 1e9, 'backward_weight': 1e9,"
                           " 'backward': 1e9} for name in names[1:]}}))\n"
                           "else:\n    print(json.dumps({'torch': 'fake', 'samples_per_second': 0.5, 'memory_bytes': 1 << 30}))\n")
            os.chmod(torch, 0o755)
            earlier = os.path.join(self.folder, "earlier")
            shutil.copytree(os.path.join(self.folder, "results"), earlier)
            shutil.rmtree(os.path.join(self.folder, "results"))
            with unittest.mock.patch.dict(os.environ, SDTRAIN_TORCH_PYTHON=torch):
                code, how, results = self.emulated("peer-shapes-512,peer-eager-512", "--results", earlier)  # beside what another call has left
            self.assertEqual((code, how), (1, {"peer-shapes-512": "failed", "peer-eager-512": "passed"}), self.said)
            self.assertEqual(results["peer-shapes-512"]["missing"], 3)  # the passes of the longest, of which torch did not tell
            self.assertLess(results["peer-shapes-512"]["ratio"], 0.01)
            ours = results["peer-eager-512"]["ours"]
            self.assertAlmostEqual(results["peer-eager-512"]["ratio"], ours / 0.5, delta=0.001)
            self.assertRegex(self.said, r"\nfailed: +1  peer-shapes-512\n")

    def check_profile(self, results):
        """Each launch is an operation's, and each operation's least is the larger of the two that the ceilings give."""
        with open(os.path.join(self.folder, "results/emulator/profile-512-operations.json"), encoding="utf-8") as file:
            profile = json.load(file)
        copy, product = results["ceilings"]["copies"]["device_to_device"], results["ceilings"]["product"]["flops"]
        self.assertEqual(sum(len(one["launches"]) for one in profile["operations"]), profile["launches"])
        self.assertAlmostEqual(sum(one["share"] for one in profile["operations"]), 1)
        for one in profile["operations"]:
            self.assertAlmostEqual(one["roofline_usec"], max(one["bytes"] / copy, one["flop"] / product) * 1e6, places=3)
            self.assertAlmostEqual(one["usec"], sum(launch["usec"] for launch in one["launches"]), places=1)
            done = sum(launch.get("flop", 0) for launch in one["launches"])  # attention has no library here
            self.assertEqual(done, 0 if one["kind"] == "attention" else one["flop"], one["operation"])
        kinds = {(one["kind"], one["pass"]): one["operations"] for one in results["profile-512"]["kinds"]}
        self.assertEqual((kinds["conv", "forward"], kinds["conv", "backward"], kinds["attention", "backward"]), (20, 20, 8))
        self.assertIn("a step that nobody times", self.said)

    def check_bench(self, result):
        for life in (result["first"], result["resumed"]):
            self.assertEqual(list(life["start"]), ["data", "device", "plans", "memory", "weights", "canned grain", "restoring", "waiting",
                                                   "joining", "first save", "step"])
            self.assertAlmostEqual(sum(life["start"].values()), life["start_seconds"], delta=0.01)
            self.assertGreater(life["seconds"], life["start_seconds"])
        self.assertEqual([save["step"] for save in result["first"]["saves"]], [0, 3])
        self.assertEqual(len(result["first"]["step_seconds"]), 2)
        self.assertAlmostEqual(result["samples_per_second"], result["grain"] * result["steps_per_second"], places=2)


class Encoding(Bundle):
    """The stage that encodes."""

    def test_a_batch_is_encoded(self):
        with self.fakes():
            code, how, results = self.emulated("encoded")
            self.assertEqual((code, how), (0, {"encoded": "passed"}), self.said)
            for name in ("64 f32", "64 bf16", "72 f32", "72 bf16"):
                one = results["encoded"][name]
                self.assertGreater(one["samples_per_second"], 0)
                self.assertTrue(0 < max(one["latents"]) < (2e-3 if "f32" in name else 5e-2) and max(one["text"]) < 5e-2, one)
            # A set of plans that has none for the encoders' batch: the operation is named.
            plans, model = os.path.join(self.folder, "sets"), os.path.join(self.folder, "tests/models/tiny-encoders")
            os.makedirs(plans)
            with open(os.path.join(self.folder, "lib/plans/NVIDIA-H200.json"), encoding="utf-8") as file:
                machine = dict(json.load(file), architecture="emulated", device="emulator", sms=1, operations={})
            with open(os.path.join(plans, "emulator.json"), "w", encoding="utf-8") as file:
                json.dump(machine, file)
            module = os.path.join(self.folder, "lib/libsdtrain-emulated.so")
            done = subprocess.run([os.path.join(self.folder, "bin/bench-encoder"), "--model", model, "--side", "64", "--device", "cuda", "--bf16"], check=False,
                                  timeout=120, capture_output=True, text=True, env=dict(os.environ, SDTRAIN_CUDA_MODULE=module, SDTRAIN_CUDA_PLANS=plans))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("the plans of GPU emulator have none for conv bf16 n1 64x64 3->8 ", done.stderr)
        # What a GPU gives that is not what the CPU gives, and what does not run.
        self.replace("bench-encoder", """
for one; do case $one in *:*) head -c $(echo $((3 * 2 * 4 * 64))) /dev/zero >${one#*:}; head -c 20000 /dev/urandom >>${one#*:};; esac; done
echo '{"value": 2.5}'
""")
        code, how, results = self.emulated("encoded", "--again")
        self.assertEqual((code, how), (1, {"encoded": "failed"}), self.said)
        self.assertEqual((results["encoded"]["64 f32"]["right"], results["encoded"]["64 f32"]["samples_per_second"]), (False, 1200))
        self.replace("bench-encoder", "for one; do [ $one != cuda ] || { echo no such GPU; exit 7; }; done; for one; do case $one in *:*) : >${one#*:};; esac; done\n")
        code, how, results = self.emulated("encoded", "--again")
        self.assertEqual((code, how), (1, {"encoded": "failed"}), self.said)
        self.assertIn("exit code 7: no such GPU", results["encoded"]["text"])

    def test_random_encoders_are_of_one_scale(self):
        written = os.path.join(self.folder, "model")
        script = ("import gpu_encoders; gpu_encoders.write_model('%s', 'vae encoder.conv_in.weight [128, 3, 3, 3]\\nvae decoder.conv_in.bias [4]\\n"
                  "vae encoder.norm.weight [9]\\ntext_encoder a.fc.weight [64, 256]\\n')" % written)
        subprocess.run(["python3", "-c", script], check=True, timeout=60, cwd=os.path.join(self.folder, "ops"))
        for part, name, shape, rms in (("vae/diffusion_pytorch_model", "encoder.conv_in.weight", [128, 3, 3, 3], 27 ** -0.5), ("vae/diffusion_pytorch_model", "encoder.norm.weight", [9], 1),
                                       ("text_encoder/model", "a.fc.weight", [64, 256], 1 / 16)):
            with open(os.path.join(written, part + ".safetensors"), "rb") as file:
                header = json.loads(file.read(*struct.unpack("<Q", file.read(8))))
                body = file.read()
            self.assertEqual(header[name]["shape"], shape)
            self.assertNotIn("decoder.conv_in.bias", header)
            begin, end = header[name]["data_offsets"]
            values = struct.unpack(f"<{(end - begin) // 2}e", body[begin:end])
            self.assertEqual(max(one["data_offsets"][1] for one in header.values()), len(body))
            found = (sum(value * value for value in values) / len(values)) ** 0.5
            self.assertTrue(rms / 2 < found < rms * 2, (name, found))
            self.assertGreater(len(set(values)), len(values) / 50)


class Sanitizer(Bundle):
    """The stage with a machine's own tool."""

    def test_the_sanitizer_is_heard(self):
        if not os.path.exists("/usr/local/cuda/bin/compute-sanitizer") and not shutil.which("compute-sanitizer"):
            code, results = self.stages("--emulated", "--stages", "sanitizer")
            self.assertEqual((code, results["sanitizer"]["how"]), (0, "not run"), self.said)
            self.assertIn("compute-sanitizer is not on this machine", results["sanitizer"]["note"])
        tools = os.path.join(self.folder, "tools")
        os.makedirs(tools)
        tool = os.path.join(tools, "compute-sanitizer")
        with open(tool, "w", encoding="utf-8") as file:  # it runs what it is given, and then says what it would find
            file.write("""#!/bin/sh
tool=$2
while [ "$1" != env ]; do shift; done
[ $tool != memcheck ] || [ "$SAYS" ] || "$@" || exit
case "$SAYS $*" in $tool/*) echo "========= COMPUTE-SANITIZER
${SAYS#*/}"; exec sleep ${LASTS:-0};; esac
[ $tool = racecheck ] && echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" || echo "========= ERROR SUMMARY: 0 errors"
""")
        os.chmod(tool, 0o755)
        with unittest.mock.patch.dict(os.environ, PATH=tools + ":" + os.environ["PATH"]):
            code, how, results = self.emulated("sanitizer")
            self.assertEqual((code, how), (0, {"sanitizer": "passed"}), self.said)
            self.assertEqual(set(results["sanitizer"]["tools"]), {f"{tool} {what} {kind}" for tool in ("memcheck", "initcheck", "racecheck")
                                                                  for what in ("kernels", "unet") for kind in ("f32", "bf16")})
            for says, how, note, errors in (
                    ("racecheck/========= Error: Race reported between Write access at f and Read access at f\n"
                     "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)", "failed", "; wrong: racecheck kernels bf16, ", 2),
                    ("memcheck/========= Invalid __global__ write of size 4 bytes\n========= ERROR SUMMARY: 1 error", "failed", "; wrong: memcheck ", 1),
                    ("initcheck/========= ERROR SUMMARY: 130 errors\n========= ERROR SUMMARY: 30 errors were not printed.", "failed", "; wrong: initcheck ", 160),
                    ("initcheck/========= Internal Sanitizer Error: out of memory", "failed", "; wrong: initcheck ", None),
                    ("memcheck/========= Error: Device not supported. Please refer to the \"Supported Devices\" section\n"
                     "========= ERROR SUMMARY: 1 error", "not run", "cannot look at this device", 1)):
                with unittest.mock.patch.dict(os.environ, SAYS=says):
                    code, results = self.stages("--emulated", "--stages", "sanitizer", "--again")
                found = results["sanitizer"]
                self.assertEqual((code, found["how"]), (0 if how == "not run" else 1, how), self.said)
                self.assertIn(note, found["note"])
                self.assertEqual(found["tools"][says.partition("/")[0] + " kernels bf16"]["errors"], errors)
                self.assertIn(says.partition("/")[2].splitlines()[0], found["text"])
            # A run that is stopped has found what it has told until then, or nothing yet.
            for says, how, late in (("racecheck/=========", "not run", "late"), ("racecheck/========= Error: Race reported between", "failed", "wrong")):
                with unittest.mock.patch.dict(os.environ, SAYS=says, LASTS="600"):
                    code, results = self.stages("--emulated", "--stages", "sanitizer", "--again", "--bound", "12")
                self.assertEqual(results["sanitizer"]["how"], how, self.said)
                self.assertEqual(results["sanitizer"]["tools"]["racecheck unet f32"], {"how": late, "code": None, "errors": None})
                self.assertEqual(results["sanitizer"]["tools"]["memcheck unet f32"]["how"], "right")


class Calls(Bundle):
    """What a call does with its time, its records and its end, whatever the stages are."""

    def test_a_stage_has_its_time_and_no_more(self):
        pids = os.path.join(self.folder, "pids")
        # A child in its group, one in a session of its own that holds the output open, and a word before all stops.
        self.replace("test-lanes", f"echo began; sleep 1000 & echo $! >{pids}; setsid sleep 1000 & echo $! >>{pids}; wait\n")
        code, how, results = self.emulated("lanes,ceilings", "--bound", "3")
        self.assertEqual((code, how), (1, {"lanes": "failed", "ceilings": "passed"}), self.said)
        self.assertIn("began", results["lanes"]["text"])
        self.assertIn("not done after 3 s", results["lanes"]["text"])
        self.assertLess(results["lanes"]["seconds"], 60)
        with open(pids, encoding="utf-8") as file:
            left = file.read().split()
        self.assertEqual(len(left), 2)
        self.assertFalse([pid for pid in left if os.path.exists(f"/proc/{pid}")])

        # Whoever comes when the budget is used up is not run, and it is said.
        code, results = self.stages("--emulated", "--stages", "lanes,bits,unet", "--bound", "3", "--budget", "4")
        self.assertEqual((code, {name: results[name]["how"] for name in ("lanes", "bits", "unet")}),
                         (1, {"lanes": "failed", "bits": "not run", "unet": "not run"}), self.said)
        self.assertRegex(results["bits"]["note"], r"^[01] s of the budget are left, and it may take 3$")

    # Of four operations with two passes each: two, and half of the next, until time is up.
    SLOW = """done=$8
for i in 1 2 3 4; do
    [ $i -gt $done ] || continue
    [ $i -le $((done + 2)) ] || { echo '{"operation":"'$i'","pass":"forward","right":true}'; exec sleep 600; }
    for pass in forward backward; do echo '{"operation":"'$i'","pass":"'$pass'","right":true}'; done
done
"""

    def test_what_a_call_has_no_time_for_is_done_by_the_next(self):
        self.replace("check-operations", self.SLOW)
        names = ["f32", "bf16", "encoders f32", "encoders bf16"]
        for call, passes in enumerate([(4, 0, 0, 0), (8, 4, 0, 0), (8, 8, 4, 0), (8, 8, 8, 4), (8, 8, 8, 8)]):
            code, how, results = self.emulated("float64", "--bound", "5")
            told = results["float64"]
            self.assertEqual((code, how["float64"]), (0, "passed" if call == 4 else "partly"), self.said)
            self.assertEqual(tuple(len(told[name]) for name in names), passes)
            self.assertEqual(told["whole"], names[:call])
            self.assertRegex(self.said, rf"\n{'passed' if call == 4 else 'partly'}: +[12]  .*float64\n")
        self.assertEqual([one["operation"] + one["pass"][0] for one in told["bf16"]], ["1f", "1b", "2f", "2b", "3f", "3b", "4f", "4b"])
        self.assertEqual(self.emulated("float64")[1], {"float64": "skipped"})

    def test_a_call_that_is_killed_leaves_what_the_last_one_left(self):
        hangs, began = os.path.join(self.folder, "hangs"), os.path.join(self.folder, "began")
        os.mkfifo(began)
        self.replace("check-operations", f"[ ! -e {hangs} ] || {{ echo >{began}; exec sleep 600; }}\n" + self.SLOW)
        self.assertEqual(self.emulated("float64", "--bound", "5")[1], {"float64": "partly"})
        path = os.path.join(self.folder, "results/emulator/float64.json")
        with open(path, encoding="utf-8") as file:
            kept = file.read()
        with open(hangs, "w", encoding="ascii"):
            pass
        with subprocess.Popen([os.path.join(self.folder, "ops/gpu"), "run", "--emulated", "--stages", "float64"], cwd="/", stdout=subprocess.DEVNULL) as run:
            with open(began, encoding="ascii") as file:
                file.read()
            run.kill()
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), kept)
        os.unlink(hangs)
        told = self.emulated("float64", "--bound", "5")[2]["float64"]
        self.assertEqual((told["whole"], len(told["bf16"])), (["f32"], 4))

    def test_a_stage_that_does_not_get_forward_has_failed(self):
        self.replace("check-operations", "exec sleep 600\n")
        code, how, results = self.emulated("float64", "--bound", "5")
        self.assertEqual((code, how), (1, {"float64": "failed"}), self.said)
        self.assertIn("nothing was done in time", results["float64"]["note"])
        # What is wrong is not a part of what is done: the stage begins anew.
        self.replace("check-operations", "echo '{\"operation\":\"1\",\"right\":false}'; echo '{\"operation\":\"2\",\"right\":true}'; exec sleep 600\n")
        for _ in range(2):
            code, how, results = self.emulated("float64", "--bound", "5")
            self.assertEqual((code, how, len(results["float64"]["f32"])), (1, {"float64": "failed"}, 1), self.said)

    def test_one_digest_is_looked_for_in_several_calls(self):
        told = os.path.join(self.folder, "told")
        self.replace("test-exactness", f'''echo "$SDTRAIN_EXACT_DONE" >>{told}
case $SDTRAIN_EXACT_DONE in "  ") echo made >$SDTRAIN_EXACT_PLANS; n=0;; *plans-0*) n=1;; esac
grep -q made $SDTRAIN_EXACT_PLANS || exit 8
echo '{{"kind": "plans", "key": "plans-'$n'", "case": "'$n'", "digest": "aa"}}'
[ $n = 1 ] || exec sleep 600
''')
        for how, cases in (("partly", 1), ("passed", 2)):
            code, _, results = self.emulated("exactness", "--bound", "5")
            self.assertEqual((code, results["exactness"]["how"], len(results["exactness"]["cases"])), (0, how, cases), self.said)
        with open(told, encoding="utf-8") as file:
            self.assertEqual(file.read(), "  \n plans-0 \n")
        # The next call's digest is another one.
        self.replace("test-exactness", """n=0; case $SDTRAIN_EXACT_DONE in *own-0*) n=1;; esac
echo '{"kind": "own", "key": "own-'$n'", "case": "'$n'", "digest": "'$n'"}'
[ $n = 1 ] || exec sleep 600
""")
        for how, note in (("partly", "1 cases, 0 with another digest, more to do"), ("failed", "2 cases, 1 with another digest")):
            results = self.emulated("exactness", "--bound", "5")[2]
            self.assertEqual(results["exactness"]["how"], how, self.said)
            self.assertIn(note, results["exactness"]["note"])

    def test_a_process_that_does_not_end_is_given_up(self):
        # As one that a hanging driver holds: no signal reaches it. It is told once, and nobody waits for it again.
        said = self.run_python("""import os, time, gpu_children
gpu_children.DYING_SEC = 0.2
kill, os.kill = os.kill, lambda *_: None
gpu_children.end_what_is_left.__defaults__ = (0.2,)
code, text, said = gpu_children.call(["sleep", "600"], 0.1, None)
assert code is None and "were killed and do not end" in said, (code, said)
pids = set(gpu_children.given_up)
began = time.monotonic()
assert gpu_children.call(["echo", "more"], 60, None) == (0, "more\\n", "")
assert len(pids) == 1 and gpu_children.given_up == pids
for pid in pids: kill(pid, 9)
""")
        self.assertEqual(said, "")

    def test_a_run_that_is_ended_leaves_nothing(self):
        temporary = os.path.join(self.folder, "temporary")
        os.makedirs(temporary)
        child = os.path.join(self.folder, "child")
        os.mkfifo(child)
        script = f"mkdir -p $(ls -d {temporary}/sdtrain-gpu-run-*)/checkpoints; setsid sleep 600 & echo $$ $! >{child}; wait\n"
        self.replace("test-lanes", script)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen([os.path.join(self.folder, "ops/gpu"), "run", "--emulated", "--stages", "lanes", "--again"], cwd="/", stdout=subprocess.DEVNULL,
                                  env=dict(os.environ, TMPDIR=temporary)) as run:
                with open(child, encoding="ascii") as file:
                    pids = [int(pid) for pid in file.read().split()]
                run.send_signal(number)
                self.assertEqual(run.wait(120), {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGKILL: -signal.SIGKILL}[number])
            if number == signal.SIGTERM:
                self.assertEqual(os.listdir(temporary), [])
                self.assertFalse([pid for pid in pids if os.path.exists(f"/proc/{pid}")])
        self.assertEqual(len(os.listdir(temporary)), 1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[1], signal.SIGKILL)  # in a session of its own, and without its parents
        for _ in range(6000):  # the stage's own program ends with the run
            if not os.path.exists(f"/proc/{pids[0]}"):
                break
            time.sleep(0.01)
        else:
            self.fail("the program of a stage lives longer than its run")
        # The next run removes what is left, and no folder of a run that is under way.
        os.makedirs(os.path.join(temporary, f"sdtrain-gpu-run-{os.getpid()}-of-another"))
        with unittest.mock.patch.dict(os.environ, TMPDIR=temporary):
            self.assertEqual(self.emulated("ceilings")[0], 0)
        self.assertEqual(os.listdir(temporary), [f"sdtrain-gpu-run-{os.getpid()}-of-another"])

    def test_a_full_disk_ends_no_run(self):
        self.replace("test-lanes", "head -c 40000 /dev/zero | tr '\\0' x\n")
        self.replace("test-update", "echo updated\n")
        done = subprocess.run(["prlimit", "--fsize=20000", os.path.join(self.folder, "ops/gpu"), "run", "--emulated", "--stages", "lanes,update"], check=False,
                              timeout=120, cwd="/", capture_output=True, text=True)
        results = os.path.join(self.folder, "results/emulator")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"lanes\.json cannot be written: File too large\n")
        self.assertRegex(done.stdout, r"\nupdate +passed")
        self.assertIn("\nnot written: " + os.path.join(results, "lanes.json"), done.stdout)
        self.assertEqual(sorted(os.listdir(results)), ["machine.json", "result.json", "update.json"])
        for name in os.listdir(results):  # whole, if old
            with open(os.path.join(results, name), encoding="utf-8") as file:
                json.load(file)
        # Nothing at all can be written: what stages say is on the screen.
        done = subprocess.run([os.path.join(self.folder, "ops/gpu"), "run", "--emulated", "--stages", "update", "--again", "--out", "/dev/full"], check=False,
                              timeout=120, cwd="/", capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"\nupdate +passed")
        self.assertIn("update.json cannot be written", done.stdout)
        done = subprocess.run([os.path.join(self.folder, "ops/gpu"), "run", "--emulated", "--stages", "update"], check=False, timeout=120, cwd="/proc",
                              capture_output=True, text=True, env=dict(os.environ, TMPDIR="/dev/full"), preexec_fn=no_files)
        self.assertIn("ops/gpu: no temporary file can be written: ", done.stderr)
        # Who would wait for room until the time is up does not begin.
        self.run_python("""import shutil, tempfile, unittest.mock, gpu_jobs, gpu_profile
with tempfile.TemporaryDirectory() as folder, unittest.mock.patch("shutil.disk_usage", lambda _: unittest.mock.Mock(free=29e9)):
    open(folder + "/NVIDIA-H200.json", "w").close()
    jobs = gpu_jobs.Jobs(None, ".", [folder], False, lambda: "NVIDIA H200")
    for stage in (jobs.train("512", 8), gpu_profile.Measures(None, ".", jobs, [folder], False).bench("512", 20)):
        told = stage(10)
        assert told["passed"] is None and "29.0 GB are free in " in told["note"], told
""")

    def test_what_depends_on_plans_is_run_again_with_others(self):
        plans = os.path.join(self.folder, "results/plans")
        os.makedirs(plans)
        self.replace("sdtrainer", "exit 9\n")
        for count, text in enumerate(("{}", "{} ")):
            with open(os.path.join(plans, "emulator.json"), "w", encoding="utf-8") as file:
                file.write(text)
            depends = {}
            for _ in range(2):
                results = self.stages("--emulated", "--stages", "sd2-512")[1]["sd2-512"]
                depends[results["depends"]] = results["how"]
            self.assertEqual(list(depends.values()), ["failed"])
            if count == 0:
                first = depends
        self.assertNotEqual(first, depends)
        path = os.path.join(self.folder, "results/emulator/sd2-512.json")
        with open(path, encoding="utf-8") as file:
            passed = json.dumps(dict(json.load(file), passed=True))
        for kept, how in ((passed, "skipped"), (passed[:len(passed) // 2], "failed"), ("", "failed"), ("[]", "failed"), ("\x00" * 9, "failed")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(kept)
            self.assertEqual(self.stages("--emulated", "--stages", "sd2-512", "--results", os.path.join(self.folder, "results"))[1]["sd2-512"]["how"], how, kept)

    def test_what_is_no_bundle_is_not_deleted(self):
        other = os.path.join(os.path.dirname(self.folder), "thesis")
        os.makedirs(other)
        kept = os.path.join(other, "chapter")
        with open(kept, "w", encoding="utf-8") as file:
            file.write("years of work")
        for name in ("chapter", "ops/gpu", "CMakeLists.txt"):  # the last two: as a source tree has them
            path = os.path.join(other, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a", encoding="utf-8"):
                pass
            if name == "ops/gpu":
                continue
            done = subprocess.run([os.path.join(SOURCE, "ops/gpu"), "bundle", "--no-build", "--out", other], check=False, timeout=60,
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(other, done.stderr)
            self.assertTrue(os.path.exists(kept))

    def test_one_file_is_carried(self):
        other = os.path.join(os.path.dirname(self.folder), "there")
        os.makedirs(other)
        subprocess.run([os.path.join(SOURCE, "ops/gpu"), "bundle", "--no-build", "--archive", "--out", self.folder], check=True, timeout=300)
        carried = os.path.join(other, "gpu.tar.xz")
        os.rename(self.folder + ".tar.xz", carried)
        tree = sum(os.path.getsize(os.path.join(SOURCE, name)) for name in subprocess.run(
            ["git", "ls-files", "-z"], check=False, cwd=SOURCE, capture_output=True, text=True).stdout.split("\0") if os.path.isfile(os.path.join(SOURCE, name)))
        self.assertLess(os.path.getsize(carried) + tree, 56e6)  # what travels has 64 MiB
        unpack = [os.path.join(SOURCE, "ops/gpu"), "unpack", "--out", os.path.join(other, "gpu")]
        for _ in range(2):  # the second time over the first
            subprocess.run(unpack, check=True, timeout=120)
            self.assertEqual(subprocess.run(["diff", "-r", self.folder, os.path.join(other, "gpu")], check=False, capture_output=True).stdout, b"")
        self.assertEqual(sorted(os.listdir(other)), ["gpu", "gpu.tar.xz"])
        # A file that was cut short leaves what was there.
        os.truncate(carried, os.path.getsize(carried) // 2)
        done = subprocess.run(unpack, check=False, timeout=120, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu.tar.xz cannot be unpacked: ", done.stderr)
        self.assertEqual(sorted(os.listdir(other)), ["gpu", "gpu.tar.xz"])
        self.folder = os.path.join(other, "gpu")
        self.assertEqual(self.emulated("lanes")[0], 0)

    def test_without_a_gpu_nothing_is_run(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("there is a GPU's driver")
        code, results = self.stages(gpu="no-GPU")
        self.assertEqual(code, 2)
        self.assertEqual(results["machine"]["how"], "failed")
        self.assertIn("nvidia-smi", results["machine"]["text"])
        self.assertEqual(results["bits"]["how"], "not run")

    def test_a_gpu_that_does_not_open_is_no_success(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("there is a GPU's driver")
        tools = os.path.join(self.folder, "tools")
        os.makedirs(tools)
        with open(os.path.join(tools, "nvidia-smi"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho NVIDIA H200, 00000000:3B:00.0, 580.82, 143771 MiB, 1980 MHz, 3201 MHz, 9.0, 700.00 W\n")
        os.chmod(file.name, 0o755)
        with unittest.mock.patch.dict(os.environ, PATH=tools + ":" + os.environ["PATH"]):
            code, results = self.stages("--stages", "lanes,bits,ceilings,devprop", gpu="NVIDIA-H200")
        self.assertEqual(code, 1, self.said)
        self.assertEqual(results["machine"]["gpus"][0]["address"], "0000:3b:00")
        self.assertEqual({results[name]["how"] for name in ("lanes", "bits", "ceilings", "devprop")}, {"failed"}, self.said)
        for name in ("bits", "ceilings"):
            self.assertRegex(results[name]["text"], "no GPU|no NVIDIA driver")

    def test_what_a_bundle_cannot_do_is_said(self):
        done = subprocess.run([os.path.join(SOURCE, "ops/gpu"), "run"], check=False, timeout=60, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is not a bundle", done.stderr)
        done = subprocess.run([os.path.join(self.folder, "ops/gpu"), "run", "--stages", "lanes,tea"], check=False, timeout=60,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no stage tea", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

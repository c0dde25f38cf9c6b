# SPDX-License-Identifier: Apache-2.0
"""Stages of ops/gpu that need the libraries' kernels: plans made on the GPU, the matrix kernels held against float64 at
their full shapes, and sd2-base trained.

Jobs lie in a scratch folder of their own, which is removed at the end: a checkpoint of sd2-base is 13.9 GB."""
import datetime
import json
import os
import re
import shutil
import statistics
import tempfile
import time

import gpu_children
import gpu_encoders
import gpu_parts

TEXT_MAX = 1 << 18
HALF_EXPONENT = 14  # 0.5 to 1
CHECKPOINTS_BYTES = 30e9  # two of sd2-base, and their data
STEP = re.compile(r"^(\S+)Z info sdtrainer: step (\d+)/\d+ loss (\S+),", re.M)
PEAK = re.compile(r"memory of rank 0 of 1: at most ([\d.]+) MiB, planned ([\d.]+) MiB")
STARTED = re.compile(r"the first step after (.*?)(?: STEP=|$)", re.M)
DIGEST = re.compile(r"^step=\d+ digest=([0-9a-f]{32})$", re.M)
SD2 = {"_class_name": "UNet2DConditionModel", "sample_size": 64, "in_channels": 4, "out_channels": 4,
       "block_out_channels": [320, 640, 1280, 1280],
       "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
       "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
       "layers_per_block": 2, "attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024,
       "norm_num_groups": 32, "use_linear_projection": True}
SMALL = dict(SD2, sample_size=8, block_out_channels=[32, 64], down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
             up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"], layers_per_block=1, attention_head_dim=[1, 2],
             cross_attention_dim=16, norm_num_groups=4)


def file_of(gpu):
    """As the module looks for it."""
    return gpu.replace(" ", "-").replace("/", "-") + ".json"


def first_of(folders, gpu=None):
    """The plan set in the first of the folders that has one, of a GPU if one is named: its folder and file; None."""
    for folder in folders:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json")) if os.path.isdir(folder) else []
        names = [name for name in names if gpu is None or name == file_of(gpu)]
        if names:
            return folder, os.path.join(folder, names[0])
    return None


class Jobs:
    """Of one run of ops/gpu. call(command, seconds, **environment) is its; plans: folders in which a set may lie, the first of
    which gets the one that is made; gpu() tells the GPU's name."""

    def __init__(self, call, root, plans, small, gpu):
        self.call, self.root, self.plans, self.small, self.gpu, self.datasets = call, root, plans, small, gpu, {}

    def data(self, side, n):
        """The folder of a dataset of n samples, made once a run. Its values are random signs and mantissas with one exponent: Python
        would take 4 to 14 s to draw normal ones."""
        import dataset  # pylint: disable=import-outside-toplevel,import-error
        if (side, n) not in self.datasets:
            folder = os.path.join(tempfile.mkdtemp(prefix="sdtrain-gpu-data-"), "data")
            text = (7, 16) if self.small else (77, 1024)
            dataset.write(folder, n, 1, latents=(4, side, side), text=text,
                          halves=lambda rng, count: gpu_encoders.halves(rng, count, 0x83FF, HALF_EXPONENT << 10))
            self.datasets[side, n] = folder
        return self.datasets[side, n]

    def job(self, folder, side, grain, steps, grains=1, **train):
        """Writes a job file of `grains` grains a step into the folder."""
        data = self.data(side, grain * grains)
        files = {"unet.json": SMALL if self.small else SD2, "job.json": {
            "name": "sd2", "world": {"min": 1, "max": 1}, "model": {"config": os.path.join(folder, "unet.json")},
            "data": {"streams": [{"uri": data}], "empty_text": os.path.join(data, "empty.npy")},
            "train": {"device": "cuda", "precision": "bf16", "global_batch": grain * grains, "grain": grain, "steps": steps,
                      "optimizer": {"lr": 1e-4, "warmup_steps": 1}, "ema": {}, "plans": "installed", **train},
            "checkpoint": {"uri": os.path.join(folder, "checkpoints"), "every_steps": steps, "keep_last": 2}}}
        for name, value in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
        return os.path.join(folder, "job.json")

    def no_room(self):
        """Why there is no room for two checkpoints, as a result; None: there is. A trainer waits for room until its time is up."""
        at = tempfile.gettempdir()
        free = shutil.disk_usage(at).free
        if self.small or free >= CHECKPOINTS_BYTES:
            return None
        return {"passed": None, "note": f"{free / 1e9:.1f} GB are free in {at}, {CHECKPOINTS_BYTES / 1e9:.0f} GB are needed (TMPDIR)"}

    def sdtrainer(self, seconds, *arguments, **more):
        code, text, said = self.call([os.path.join(self.root, "bin/sdtrainer"), *arguments], seconds, **more)
        return code, text + said

    def sizes(self):
        """{pictures' side: (latents' side, grain)}; small ones for the emulator."""
        return {"512": (8, 1), "256": (8, 2)} if self.small else {"512": (64, 32), "256": (32, 128)}

    def found(self):
        """The plan set of this GPU in the first folder that has one: its folder and file; None."""
        return first_of(self.plans, self.gpu())

    def known(self):
        """The newest set that there is, as an object; else the GPU's installed one; None."""
        found = first_of([*self.plans, *([] if self.small else [os.path.join(self.root, "lib/plans")])], self.gpu())
        if not found:
            return None
        with open(found[1], encoding="utf-8") as file:
            return json.load(file)

    def make_plans(self, size, anew=()):
        """A stage: a set for one size, beside what an earlier set has; the kinds of operation in `anew` are tuned again."""
        def stage(seconds):
            side, grain = self.sizes()[size]
            with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
                path, known, more = os.path.join(folder, "plans.json"), self.known(), []
                if known:
                    kept = {name: entry for name, entry in known["operations"].items() if name.split(" ", 1)[0] not in anew}
                    gpu_children.write(os.path.join(folder, "from.json"), json.dumps(dict(known, operations=kept)))
                    more = ["--from", os.path.join(folder, "from.json")]
                # What there is no time to measure has a plan all the same.
                code, text = self.sdtrainer(seconds, "plan", "--job", self.job(folder, side, grain, 1), "--plans", path, *more,
                                            SDTRAIN_CUDA_TUNE_SEC=str(max(int(seconds * 0.5), 1)))
                if code != 0:
                    return {"passed": False, "code": code, "text": text}
                with open(path, encoding="utf-8") as file:
                    made = json.load(file)
            made["operations"] = {**(known or made)["operations"], **made["operations"]}  # other sizes keep theirs
            os.makedirs(self.plans[0], exist_ok=True)
            gpu_children.write(os.path.join(self.plans[0], file_of(made["device"])), json.dumps(made, sort_keys=True, separators=(",", ":")))
            untimed, tuned = text.count(", untimed: "), text.count("plan of ")
            return {"passed": True, "untimed": untimed, "tuned": tuned, "text": text[-TEXT_MAX:],
                    "note": f"{len(made['operations'])} operations, {tuned} of them new" + (f", {untimed} untimed" if untimed else "")}
        stage.__doc__ = f"Plans for sd2-base at {size}^2."
        return stage

    def matrix(self, seconds, before):
        """check-operations at the full shapes of both sizes, by the plans."""
        found = self.found()
        if not found or self.small:
            raise gpu_parts.NotRun("the emulator has no day" if self.small else "there are no plans")
        runs = [(size, ["bf16", str(side), str(grain), "all", "4096", "sd2"]) for size, (side, grain) in self.sizes().items()]
        return gpu_parts.check_operations(self.call, [os.path.join(self.root, "bin/check-operations"), "cuda"], seconds, runs, before,
                                          {"SDTRAIN_CUDA_PLANS": found[0]})

    def attention_far(self, seconds):
        """check-operations of the attentions of both sizes, by the plans, on few samples: where lengths fill no tile also with scores
        far below zero, where libraries are known to give NaN."""
        found = self.found()
        if not found and not self.small:
            raise gpu_parts.NotRun("there are no plans")
        runs = [(size, ["bf16", str(side), str(grain), "attention", "16", "sd2"]) for size, (side, grain) in self.sizes().items()]
        return gpu_parts.check_operations(self.call, [os.path.join(self.root, "bin/check-operations"), "cuda"], seconds, runs, {},
                                          {"SDTRAIN_CUDA_PLANS": found[0] if found else "/nonexistent"})

    def live(self, folder, seconds, job):
        """One training run: what it said of itself."""
        code, text = self.sdtrainer(seconds, "run", "--job", job)
        digest, peak, steps = DIGEST.search(text), PEAK.search(text), STEP.findall(text)
        shutil.rmtree(os.path.join(folder, "checkpoints"), ignore_errors=True)
        if code != 0 or not digest or not peak or len(steps) < 2:
            return {"passed": False, "code": code, "text": text}
        times = [datetime.datetime.fromisoformat(step[0]) for step in steps]
        return {"passed": True, "digest": digest.group(1), "losses": [float(step[2]) for step in steps],
                "step_seconds": [round((b - a).total_seconds(), 3) for a, b in zip(times, times[1:])], "host_mib": float(peak.group(1)), "start": started.group(1) if (started := STARTED.search(text)) else None}

    def train(self, size, steps, grains=1):
        """A stage: a job of one size, twice; digests and losses are equal, and no loss is that of a network gone wild."""
        def stage(seconds):
            found, (side, grain) = self.found(), self.sizes()[size]
            if not found or self.no_room():
                return self.no_room() if found else {"passed": None, "note": "there are no plans"}
            with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
                job, lives = self.job(folder, side, grain, steps, grains, plans=found[1]), []
                deadline = time.monotonic() + seconds
                for run in range(2):  # the first one loads what the second finds in memory
                    lives.append(self.live(folder, (deadline - time.monotonic()) * (0.6 if run == 0 else 1), job))
                    if not lives[-1]["passed"]:
                        return dict(lives[-1], run=run)
            usual = max(statistics.median(lives[0]["step_seconds"] + lives[1]["step_seconds"]), 0.001)
            equal = lives[0]["digest"] == lives[1]["digest"] and lives[0]["losses"] == lives[1]["losses"]
            plausible = all(0 < loss < 2 for loss in lives[0]["losses"])
            return {"passed": equal and plausible, "digests_equal": equal, "losses_plausible": plausible, "runs": lives,
                    "grains": grains, "samples_per_second": round(grain * grains / usual, 2),
                    "note": f"{grain * grains / usual:.1f} samples/s, digest {lives[0]['digest']}" + ("" if equal else ": the other run has another one")}
        stage.__doc__ = f"sd2-base at {size}^2, {steps} steps, twice."
        return stage

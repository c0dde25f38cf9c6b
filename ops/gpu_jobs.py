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

import gpu_children
import gpu_parts

TEXT_MAX = 1 << 18
CHECKPOINTS_BYTES = 30e9  # two of sd2-base, and their data
STEP = re.compile(r"^(\S+)Z info sdtrainer: step (\d+)/\d+ loss (\S+),", re.M)
PEAK = re.compile(r"memory of rank 0 of 1: at most ([\d.]+) MiB, planned ([\d.]+) MiB")
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


def first_of(folders):
    """The plan set in the first of the folders that has one: its folder and file; None."""
    for folder in folders:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json")) if os.path.isdir(folder) else []
        if names:
            return folder, os.path.join(folder, names[0])
    return None


class Jobs:
    """Of one run of ops/gpu. call(command, seconds, **environment) is its; plans: folders in which a set may lie, the first of
    which gets the one that is made."""

    def __init__(self, call, root, plans, small):
        self.call, self.root, self.plans, self.small = call, root, plans, small

    def job(self, folder, side, grain, steps, **train):
        """Writes dataset and job file into the folder."""
        import dataset  # pylint: disable=import-outside-toplevel,import-error
        text = (7, 16) if self.small else (77, 1024)
        data = os.path.join(folder, "data")
        dataset.write(data, grain, 1, latents=(4, side, side), text=text)
        files = {"unet.json": SMALL if self.small else SD2, "job.json": {
            "name": "sd2", "world": {"min": 1, "max": 1}, "model": {"config": os.path.join(folder, "unet.json")},
            "data": {"streams": [{"uri": data}], "empty_text": os.path.join(data, "empty.npy")},
            "train": {"device": "cuda", "precision": "bf16", "global_batch": grain, "grain": grain, "steps": steps,
                      "optimizer": {"lr": 1e-4, "warmup_steps": 1}, "ema": {}, **train},
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

    def make_plans(self, seconds):
        """The fastest deterministic algorithms for both sizes, as one set."""
        whole, said = None, ""
        for size, (side, grain) in self.sizes().items():
            with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
                path = os.path.join(folder, "plans.json")
                # What there is no time to measure has a plan all the same.
                code, text = self.sdtrainer(seconds / 2, "plan", "--job", self.job(folder, side, grain, 1), "--plans", path,
                                            SDTRAIN_CUDA_TUNE_SEC=str(max(int(seconds / 2 - 25), 1)))
                if code != 0:
                    return {"passed": False, "size": size, "code": code, "text": text}
                with open(path, encoding="utf-8") as file:
                    one = json.load(file)
            whole, said = whole or one, said + text
            whole["operations"].update(one["operations"])
        name = whole["device"].replace(" ", "-").replace("/", "-") + ".json"
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        os.makedirs(self.plans[0], exist_ok=True)
        gpu_children.write(os.path.join(self.plans[0], name), text)
        untimed = said.count(", untimed: ")
        return {"passed": True, "untimed": untimed, "text": said[-TEXT_MAX:],
                "note": f"{len(whole['operations'])} operations" + (f", {untimed} of them untimed" if untimed else "")}

    def matrix(self, seconds, before):
        """check-operations at the full shapes of both sizes, by the plans."""
        found = first_of(self.plans)
        if not found or self.small:
            raise gpu_parts.NotRun("the emulator has no day" if self.small else "there are no plans")
        runs = [(size, ["bf16", str(side), str(grain), "all", "4096", "sd2"]) for size, (side, grain) in self.sizes().items()]
        return gpu_parts.check_operations(self.call, [os.path.join(self.root, "bin/check-operations"), "cuda"], seconds, runs, before,
                                          {"SDTRAIN_CUDA_PLANS": found[0]})

    def live(self, folder, seconds, job):
        """One training run: what it said of itself."""
        code, text = self.sdtrainer(seconds, "run", "--job", job)
        digest, peak, steps = DIGEST.search(text), PEAK.search(text), STEP.findall(text)
        shutil.rmtree(os.path.join(folder, "checkpoints"), ignore_errors=True)
        if code != 0 or not digest or not peak or len(steps) < 2:
            return {"passed": False, "code": code, "text": text}
        times = [datetime.datetime.fromisoformat(step[0]) for step in steps]
        return {"passed": True, "digest": digest.group(1), "losses": [float(step[2]) for step in steps],
                "step_seconds": [round((b - a).total_seconds(), 3) for a, b in zip(times, times[1:])], "host_mib": float(peak.group(1))}

    def train(self, size, steps):
        """A stage: a job of one size, twice; digests and losses are equal, and no loss is that of a network gone wild."""
        def stage(seconds):
            found, (side, grain) = first_of(self.plans), self.sizes()[size]
            if not found or self.no_room():
                return self.no_room() if found else {"passed": None, "note": "there are no plans"}
            with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
                job, lives = self.job(folder, side, grain, steps, plans=found[1]), []
                for run in range(2):
                    lives.append(self.live(folder, seconds / 2, job))
                    if not lives[-1]["passed"]:
                        return dict(lives[-1], run=run)
            usual = max(statistics.median(lives[0]["step_seconds"] + lives[1]["step_seconds"]), 0.001)
            equal = lives[0]["digest"] == lives[1]["digest"] and lives[0]["losses"] == lives[1]["losses"]
            plausible = all(0 < loss < 2 for loss in lives[0]["losses"])
            return {"passed": equal and plausible, "digests_equal": equal, "losses_plausible": plausible, "runs": lives,
                    "samples_per_second": round(grain / usual, 2),
                    "note": f"{grain / usual:.1f} samples/s, digest {lives[0]['digest']}" + ("" if equal else ": the other run has another one")}
        stage.__doc__ = f"sd2-base at {size}^2, {steps} steps, twice."
        return stage

# SPDX-License-Identifier: Apache-2.0
"""Stages of ops/gpu that measure: where a step's time goes, how fast sd2-base trains, how long a start and a save take; and PyTorch
beside it, in the machine's own python."""
import contextlib
import datetime
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time

import gpu_jobs

NAMES = ["profile-512", "profile-256", "graph-256", "bench-512", "bench-256", "peer-shapes-512", "peer-shapes-256", "peer-eager-512", "peer-compiled-512", "peer-eager-256", "peer-compiled-256"]
NO_TORCH = 3  # gpu_torch.py's exit code
TORCH_STARTS_SEC = 8
STARTED = re.compile(r"the first step after ([\d.]+) s: (.*?)(?: STEP=|$)", re.M)
PART = re.compile(r"([a-z][a-z ]*) ([\d.]+)(?:,|$)")
WRITTEN = re.compile(r"step (\d+) is written: blocked ([\d.]+) ms, wrote ([\d.]+) ms")


def read(path):
    """The JSON object of a file, {} where there is none."""
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
            return value if isinstance(value, dict) else {}
    return {}


def roofline(operation, ceilings):
    """The microseconds that the operation's bytes or its arithmetic take at least; None where a ceiling is not known."""
    usec = operation["bytes"] / ceilings["copy"] * 1e6 if ceilings.get("copy") else None
    if usec is not None and operation["flop"] > 0:
        return max(usec, operation["flop"] / ceilings["product"] * 1e6) if ceilings.get("product") else None
    return usec


def by_kind(operations):
    """Sums over the operations of a kind and pass, the longest first."""
    kinds = {}
    for one in operations:
        sums = kinds.setdefault((one["kind"], one["pass"]), {"kind": one["kind"], "pass": one["pass"], "operations": 0, "usec": 0.0, "bytes": 0,
                                                             "flop": 0, "roofline_usec": 0.0, "share": 0.0})
        sums["operations"] += 1
        for key in ("usec", "bytes", "flop", "roofline_usec", "share"):
            sums[key] = None if sums[key] is None or one[key] is None else sums[key] + one[key]
    return sorted(kinds.values(), key=lambda one: -one["usec"])


def digest(told, ceilings):
    """What bench-profile told, with the least that each operation could take, its share, and sums."""
    whole = sum(one["usec"] for one in told["operations"])
    for one in told["operations"]:
        one["roofline_usec"] = roofline(one, ceilings)
        one["share"] = one["usec"] / whole if whole else 0
    return dict(told, sum_usec=whole, ceilings=ceilings, kinds=by_kind(told["operations"]))


def table(profile):
    """The kinds that take a hundredth of the step and more, for people."""
    lines = [f"{'kind':16} {'pass':8} {'n':>4} {'ms':>9} {'share':>6} {'roofline':>9} {'reached':>7}"]
    for one in profile["kinds"]:
        if one["share"] < 0.01:
            continue
        least = one["roofline_usec"]
        reached = f"{least / one['usec']:7.0%}" if least is not None and one["usec"] > 0 else "      -"
        lines.append(f"{one['kind']:16} {one['pass']:8} {one['operations']:4} {one['usec'] / 1e3:9.3f} {one['share']:6.1%} "
                     f"{'        -' if least is None else f'{least / 1e3:9.3f}'} {reached}")
    lines.append(f"sum {profile['sum_usec'] / 1e3:.3f} ms; a step that nobody times {profile['step_usec'] / 1e3:.3f} ms")
    return "\n".join(lines)


SHAPES = 12  # that PyTorch is measured at: the longest
GRAINS = (1, 4, 8)  # of a step


def speeds(profile):
    """Samples a second with so many grains a step: what a step does once (weights packed, the update) is done once."""
    once = sum(one["usec"] for one in profile["operations"] if one["pass"] == "pack" or one["kind"].startswith("state_"))
    share = once / profile["sum_usec"] if profile["sum_usec"] else 0
    return {n: n * profile["grain"] / profile["step_usec"] / (share + n * (1 - share)) * 1e6 for n in GRAINS}


def shape_of(operation):
    """An operation's text without the name of its weights: equal shapes have one."""
    words = operation["operation"].split()
    return " ".join(words[:-1] if words[-1].endswith(".weight") else words)


def library_times(profile):
    """{shape: {pass of a library: usec}}: the mean of the equal calls."""
    times = {}
    for one in profile["operations"]:
        for launch in one["launches"]:
            if "flop" in launch:
                which = launch["name"].rsplit(" ", 1)[-1]
                times.setdefault(shape_of(one), {}).setdefault(which, []).append((id(one), launch["usec"]))
    result = {}
    for shape, passes in times.items():
        for which, calls in passes.items():  # attention may take its images in groups
            sums = {}
            for key, usec in calls:
                sums[key] = sums.get(key, 0) + usec
            result.setdefault(shape, {})[which] = statistics.mean(sums.values())
    return result


def compare(ours, theirs):
    """Sums over the distinct calls that both have, their ratio, and the worst one."""
    rows = [{"operation": f"{shape} {which}", "usec": usec, "torch_usec": theirs[shape][which], "ratio": usec / theirs[shape][which]}
            for shape, passes in ours.items() for which, usec in passes.items() if theirs.get(shape, {}).get(which)]
    if not rows:
        return {"rows": [], "missing": sum(len(passes) for passes in ours.values())}
    sums = [sum(row[key] for row in rows) for key in ("usec", "torch_usec")]
    return {"rows": sorted(rows, key=lambda row: -row["ratio"]), "usec": sums[0], "torch_usec": sums[1], "ratio": sums[0] / sums[1],
            "worst": max(row["ratio"] for row in rows), "missing": sum(len(passes) for passes in ours.values()) - len(rows)}


class Watch:
    """The most memory of the GPU that nvidia-smi sees in use while the block runs; MiB, 0 where it says nothing."""

    def __init__(self, wanted):
        self.wanted, self.peak, self.end = wanted, 0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.end.wait(0.5):
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=True, timeout=10,
                                     capture_output=True, text=True).stdout
                self.peak = max(self.peak, *(int(line) for line in out.split()))

    def __enter__(self):
        if self.wanted:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        if self.wanted:
            self.thread.join()


class Measures:
    """Of one run of ops/gpu: call() is its; jobs: gpu_jobs.Jobs; folders: of results, this run's first."""

    def __init__(self, call, root, jobs, folders, small):
        self.call, self.root, self.jobs, self.folders, self.small = call, root, jobs, folders, small

    def earlier(self, name):
        """What a stage of this run, or of an earlier one, has left: of the same GPU, whose folder this run has made."""
        gpus = [entry for entry in (os.listdir(self.folders[0]) if os.path.isdir(self.folders[0]) else [])
                if os.path.isfile(os.path.join(self.folders[0], entry, "machine.json"))]
        found = [read(os.path.join(folder, gpu, name + ".json")) for gpu in gpus for folder in self.folders]
        return next((one for one in found if one), {})

    def commit(self):
        """What the bundle was made of."""
        with contextlib.suppress(OSError), open(os.path.join(self.root, "commit"), encoding="utf-8") as file:
            return file.read().strip()
        return None

    def ceilings(self):
        told = self.earlier("ceilings")
        return {"copy": told.get("copies", {}).get("device_to_device"), "product": told.get("product", {}).get("flops")}

    # ---- where the time goes ----

    def profile(self, size):
        """A stage: each operation of a step at one size: usec, bytes, FLOP, the least, and its share; and the samples/s that follow."""
        def stage(seconds):
            found = self.jobs.found()
            if not found and not self.small:
                return {"passed": None, "note": "there are no plans"}
            code, text, said = self.call([os.path.join(self.root, "bin/bench-profile"), "cuda", "bf16", "small" if self.small else f"sd2-{size}"],
                                         seconds, **({"SDTRAIN_CUDA_PLANS": found[0]} if found else {}))
            if code != 0:
                return {"passed": False, "code": code, "text": said + text[:10000]}
            one = digest(json.loads(text), self.ceilings())
            one["samples_per_second"] = speeds(one)
            print(f"\n{size}^2\n{table(one)}\n", flush=True)
            return {"passed": True, **{key: one[key] for key in ("scale", "grain", "step_usec", "sum_usec", "launches", "ceilings", "kinds", "samples_per_second")},
                    "files": {f"profile-{size}-operations.json": json.dumps(one, separators=(",", ":")).replace('{"operation"', '\n{"operation"') + "\n"},
                    "note": f"{one['step_usec'] / 1e3:.1f} ms a step, most by {one['kinds'][0]['kind']} {one['kinds'][0]['pass']}; samples/s by grains a step: "
                            + ", ".join(f"{n}: {rate:.1f}" for n, rate in one["samples_per_second"].items())}
        stage.__doc__ = f"Where a step of sd2-base at {size}^2 takes its time."
        return stage

    def graph(self, size):
        """A stage: what a step recorded as one CUDA graph takes, of one put launch by launch; or what cannot be recorded."""
        def stage(seconds):
            found = self.jobs.found()
            if not found and not self.small:
                return {"passed": None, "note": "there are no plans"}
            code, text, said = self.call([os.path.join(self.root, "bin/bench-profile"), "cuda", "bf16", "small" if self.small else f"sd2-{size}", "graph"],
                                         seconds, **({"SDTRAIN_CUDA_PLANS": found[0]} if found else {}))
            if code != 0:
                return {"passed": False, "code": code, "text": said + text[:10000]}
            told = json.loads(text)
            graph = told["graph"]
            return {"passed": True, "step_usec": told["step_usec"], "graph": graph,
                    "note": f"refused: {graph['refused']}" if "refused" in graph else
                            f"{graph['nodes']} nodes, {graph['step_usec'] / told['step_usec']:.3f} of the step put launch by launch"}
        stage.__doc__ = f"A step of sd2-base at {size}^2 as one CUDA graph."
        return stage

    # ---- how fast it trains ----

    def live(self, seconds, job):
        """One run of sdtrainer: its steps, its start and its saves."""
        began = time.monotonic()
        with Watch(not self.small) as watch:
            code, text = self.jobs.sdtrainer(seconds, "run", "--job", job)
        took, started = time.monotonic() - began, STARTED.search(text)
        if code != 0 or not started:
            return {"passed": False, "code": code, "text": text}
        times = [datetime.datetime.fromisoformat(step[0]) for step in gpu_jobs.STEP.findall(text)]
        saves = [{"step": int(step), "blocked_ms": float(blocked), "wrote_ms": float(wrote)} for step, blocked, wrote in WRITTEN.findall(text)]
        parts = {name: float(value) for name, value in PART.findall(started.group(2))}
        return {"passed": True, "seconds": round(took, 2), "start_seconds": float(started.group(1)), "start": parts, "saves": saves,
                "step_seconds": [round((b - a).total_seconds(), 3) for a, b in zip(times, times[1:])], "memory_mib": watch.peak}

    def bench(self, size, steps):
        """A stage: sd2-base at one size as a job trains it, started twice: the second start finds plans and checkpoint."""
        def stage(seconds):
            found, (side, grain) = self.jobs.found(), self.jobs.sizes()[size]
            if not found and not self.small:
                return {"passed": None, "note": "there are no plans"}
            if self.jobs.no_room():
                return self.jobs.no_room()
            with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
                job = self.jobs.job(folder, side, grain, steps, **({"plans": found[1]} if found else {}))
                lives = [self.live(seconds * 0.6, job)]
                with open(job, encoding="utf-8") as file:
                    longer = json.load(file)
                longer["train"]["steps"] = steps + 2
                with open(job, "w", encoding="utf-8") as file:
                    json.dump(longer, file)
                if lives[0]["passed"]:
                    lives.append(self.live(seconds * 0.4, job))
            if not all(life["passed"] for life in lives) or not lives[0]["step_seconds"]:
                return dict(lives[-1], passed=False, lives=len(lives))
            first, again = lives
            usual, memory = max(statistics.median(first["step_seconds"]), 0.001), max(life["memory_mib"] for life in lives)
            return {"passed": True, "grain": grain, "steps_per_second": round(1 / usual, 4), "samples_per_second": round(grain / usual, 3),
                    "memory_mib": memory, "first": first, "resumed": again,
                    "note": f"{grain / usual:.1f} samples/s, {memory} MiB; to the first step without its save "
                            f"{first['start_seconds'] - first['start'].get('first save', 0):.1f} s"}
        stage.__doc__ = f"sd2-base at {size}^2: samples/s, memory, start and saves."
        return stage

    # ---- beside PyTorch ----

    def torch(self, seconds, *arguments):
        """What gpu_torch.py told; (None, why) where the machine has no torch, or where it failed."""
        more = ["--device", "cpu"] if self.small else []
        code, text, said = self.call(["env", os.environ.get("SDTRAIN_TORCH_PYTHON", "python3"), os.path.join(self.root, "ops/gpu_torch.py"), *arguments, *more],
                                     seconds)
        if code in (NO_TORCH, 127):
            return None, {"passed": None, "note": "skipped: no torch", "text": said}
        if code != 0:
            return None, {"passed": False, "code": code, "text": (said + text)[-10000:]}
        return json.loads(text.strip().splitlines()[-1]), None

    def peer_shapes(self, size, most=None):
        """A stage: the libraries' times in the profile beside torch's for the same shapes, summed over the distinct calls; most: of so
        many alone, those that take longest."""
        def stage(seconds):
            gpu = self.earlier("machine").get("gpus", [{}])[0].get("name", "no GPU").replace(" ", "-")
            found = [read(os.path.join(folder, gpu, f"profile-{size}-operations.json")) for folder in self.folders]
            profile = next((one for one in found if one), None)
            if not profile:
                return {"passed": None, "note": "there is no profile"}
            ours = library_times(profile)
            if not ours:
                return {"passed": None, "note": "no library computed the profile"}
            ours = dict(sorted(ours.items(), key=lambda one: -sum(one[1].values()))[:most])
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
                json.dump({"operations": list(ours)}, file)
                file.flush()
                theirs, why = self.torch(seconds, "shapes", file.name, "--seconds", str(seconds - TORCH_STARTS_SEC))
            if why:
                return why
            result = dict(compare(ours, theirs["operations"]), torch=theirs["torch"])
            return {"passed": result["missing"] == 0, **result,
                    "note": f"{result.get('ratio', 0):.2f} of torch's time, at worst {result.get('worst', 0):.2f}"
                            + (f", {result['missing']} not measured" if result["missing"] else "")}
        stage.__doc__ = f"The libraries' operations at {size}^2 beside PyTorch's."
        return stage

    def peer_step(self, size, compiled):
        """A stage: PyTorch's whole step, eager or compiled, beside what this machine's bench stage has."""
        def stage(seconds):
            told, why = self.torch(seconds, "step", "small" if self.small else size, "--steps", "2" if self.small else "8",
                                   *(["--compile"] if compiled else []))
            if why:
                return why
            bench, profile = self.earlier(f"bench-{size}"), self.earlier(f"profile-{size}")
            ours = bench.get("samples_per_second") or profile.get("samples_per_second", {}).get("1")
            of = (bench if bench.get("samples_per_second") else profile).get("commit")
            ratio = round(ours / told["samples_per_second"], 3) if ours else None
            return dict(told, passed=True, ours=ours, ours_commit=of, ratio=ratio,
                        note=f"torch {told['samples_per_second']:.1f} samples/s, {told['memory_bytes'] >> 20} MiB; ours "
                             + (f"{ratio:.2f} times it" if ratio else "was not measured") + (f", by commit {of}" if ratio and of != self.commit() else ""))
        stage.__doc__ = f"PyTorch's step at {size}^2, {'compiled' if compiled else 'eager'}."
        return stage

    def stages(self):
        """{name: (seconds, function, programs)}, in the order in which they are run."""
        named = {}
        for size in ("512", "256"):
            named[f"profile-{size}"] = (60, self.profile(size), ["bench-profile"])
        named["graph-256"] = (30, self.graph("256"), ["bench-profile"])
        for size in ("512", "256"):
            named[f"bench-{size}"] = (150, self.bench(size, 20 if not self.small else 3), ["sdtrainer"])
        for size in ("512", "256"):
            named[f"peer-shapes-{size}"] = (60, self.peer_shapes(size, SHAPES), ["bench-profile"])
        for size in ("512", "256"):
            for compiled in (False, True):
                named[f"peer-{'compiled' if compiled else 'eager'}-{size}"] = (240 if compiled else 120, self.peer_step(size, compiled), [])
        return named

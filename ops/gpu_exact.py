# SPDX-License-Identifier: Apache-2.0
"""Stages of ops/gpu that look for what hides behind equal results: one job in many worlds has one digest, and the kernels read
and write what is theirs, as compute-sanitizer sees it."""
import os
import re
import tempfile
import time

import gpu_calls
import gpu_children
import gpu_parts

TOOLS = ("memcheck", "initcheck", "racecheck")  # the slowest last
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
# What was found until a run was stopped, which then has no summary.
FOUND = re.compile(r"^========= (Invalid |Uninitialized |Misaligned |Program hit |(Error|Warning): Race )", re.M)
# As on a machine whose kernel the tool cannot work under; nothing is found then, whatever the program says.
REFUSED = re.compile(r"^========= .*device not supported", re.I | re.M)
KERNELS = lambda kind: ["kernels-bits", "cuda", "0", kind, "0", "brief"]  # noqa: E731
TEXT_MAX = 1 << 20
TEXT_EACH = 1 << 15  # of a run under the sanitizer


class Exact:
    """Of one run of ops/gpu. call(command, seconds, **environment) and environment() are its; gpu() tells the GPU's address."""

    def __init__(self, call, root, environment, gpu, emulated):
        self.call, self.root, self.environment, self.gpu, self.emulated = call, root, environment, gpu, emulated

    def exactness(self, seconds, before):
        """test-exactness: worlds of 1, 2 and 4 ranks, ZeRO 0 to 2, kills, restores and other addresses; by plans that are made on
        the spot, and by the project's own kernels. Who goes on does so with the plans that were made then: others have other bits."""
        more = {"SDTRAIN_RUNS_MODULE": self.environment()["SDTRAIN_CUDA_MODULE"], "SDTRAIN_RUNS_GPU": self.gpu(), "SDTRAIN_CUDA_TUNE_SEC": str(max(int(seconds / 6), 1))}
        without = self.emulated and "SDTRAIN_CUDA_LIBRARIES" not in os.environ  # real libraries want a real GPU
        if not self.emulated:
            more["SDTRAIN_EXACT"] = "all"
        if without:
            more["SDTRAIN_EXACT_KINDS"] = "own"
        with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
            plans = os.path.join(folder, "plans.json")
            if before.get("plans"):
                gpu_children.write(plans, before["plans"])
            more.update(SDTRAIN_EXACT_PLANS=plans, SDTRAIN_EXACT_DONE=f" {' '.join(one['key'] for one in before.get('cases', []))} ")
            code, text, said = self.call([os.path.join(self.root, "bin/test-exactness")], seconds, **more)
            made = open(plans, encoding="utf-8").read() if os.path.exists(plans) else ""
        new, digests = gpu_parts.lines(text), {}
        cases = before.get("cases", []) + new
        for one in cases:
            digests.setdefault(one["kind"], one["digest"])
        differ = [one for one in cases if one["digest"] != digests[one["kind"]]]
        late = code is None and not differ and new
        result = {"passed": None if late else code == 0 and bool(cases) and not differ, "cases": cases, "digests": digests, "plans": made,
                  "note": f"{len(cases)} cases, {len(differ)} with another digest" + (", more to do" if late else "") + (", without libraries" if without else "")}
        return result if result["passed"] else dict(result, code=code, text=(text + said)[-TEXT_MAX:])

    def under(self, command, seconds, tool, program, **more):
        """A program of ours under one of compute-sanitizer's tools: (what it found, its text). The tool is the machine's and what it
        looks at is ours, so each has its own libraries."""
        ours = dict(self.environment(), SDTRAIN_CUDA_PLANS="/nonexistent", **more)
        names = ("LD_LIBRARY_PATH", "SDTRAIN_CUDA_MODULE", "SDTRAIN_CUDA_PLANS", "SDTRAIN_SOURCE", *more)
        code, text, said = self.call(["env", command, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9",
                                      "env", *(f"{name}={ours[name]}" for name in names), os.path.join(self.root, "bin", program[0]), *program[1:]], seconds)
        text += said
        found = SUMMARY.findall(text)
        errors = sum(int(a or b) for a, b in found) if found else None
        how = ("refused" if REFUSED.search(text) else "wrong" if errors or FOUND.search(text) else
               "late" if code is None else "right" if code == 0 and errors == 0 else "wrong")
        return {"how": how, "code": code, "errors": errors}, text

    def sanitizer_brief(self, seconds):
        """The kernels at a few small shapes in bf16 under memcheck and racecheck."""
        return self.sanitizer(seconds, [(f"{tool} kernels bf16", tool, "bf16", KERNELS("bf16")) for tool in ("memcheck", "racecheck")])

    def sanitizer(self, seconds, runs=None):
        """The kernels at a few small shapes and a small U-Net, in both types, under each tool of compute-sanitizer. A run that is late
        has shown nothing, neither good nor bad."""
        path = gpu_calls.sanitizer()
        if not path:
            return {"passed": None, "note": "compute-sanitizer is not on this machine"}
        deadline = time.monotonic() + seconds
        runs = runs or [(f"{tool} {name} {kind}", tool, kind, program) for tool in TOOLS for kind in ("bf16", "f32")
                        for name, program in (("kernels", KERNELS(kind)), ("unet", ["test-unet", "brief"]))]
        result, texts = {"tools": {}}, []
        for i, (name, tool, kind, program) in enumerate(runs):
            left = max((deadline - time.monotonic() - 1) / (len(runs) - i), 1)
            one, text = self.under(path, left, tool, program, SDTRAIN_TEST_DEVICE="cuda-bf16" if kind == "bf16" else "cuda")
            result["tools"][name] = one
            if one["how"] != "right":  # the first finding says most
                texts.append(f"{name}, exit code {one['code']}:\n{text[:TEXT_EACH]}")
            if one["how"] == "refused":
                return dict(result, passed=None, note="compute-sanitizer cannot look at this device", text="\n".join(texts))
        named = {how: [name for name, one in result["tools"].items() if one["how"] == how] for how in ("wrong", "late")}
        result["passed"] = False if named["wrong"] else None if named["late"] else True
        result["note"] = f"{len(runs)} runs" + "".join(f"; {how}: {', '.join(names)}" for how, names in named.items() if names)
        return dict(result, text="\n".join(texts)) if texts else result

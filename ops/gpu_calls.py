# SPDX-License-Identifier: Apache-2.0
"""The calls of ops/gpu: which stages each has, in which order, and how many seconds each stage gets there; the archive that
brings back what is known after each stage; and the second look at a stage that failed.

A GPU machine is lent for 15 minutes in all, and a start of it takes about 90 seconds. What comes first is therefore what only a GPU
can show and what a mend would begin with: the libraries, then the first figure with its profile."""
import io
import json
import os
import re
import shutil
import tarfile

START_SEC, TRANSFER_SEC = 90, 20  # of each call: the machine comes; the tree goes in and the archive out
TOTAL_SEC = 12 * 60               # both calls, with their starts

# (stage, seconds). A stage that has fewer left than half of its seconds is not begun.
CALLS = {
    "first": [("machine", 5), ("gpu-first", 45), ("bits", 10), ("ceilings", 8), ("devprop", 5), ("unet-libraries", 60), ("plans-512", 20),
              ("profile-512", 15), ("peer-eager-512", 55), ("peer-shapes-512", 25)],
    "second": [("machine", 5), ("failed", 20), ("plans-256", 10), ("retuned-512", 25), ("profile-512", 13), ("profile-256", 13), ("graph-256", 10), ("job-512", 80),
               ("exactness", 35), ("attention-far", 20), ("sanitizer-brief", 20)],
}
LIMITS = {call: dict(stages) for call, stages in CALLS.items()}


def planned_seconds():
    """Of both calls with what surrounds them."""
    return sum(START_SEC + TRANSFER_SEC + sum(seconds for _, seconds in stages) for stages in CALLS.values())


# ---- what comes back ----

ARCHIVE = "results.tar.xz"
ARCHIVE_MAX = 12 << 20
TEXT_LEFT = 1 << 16  # of a log that is cut


def cut(data):
    """The end of a log, which tells most."""
    return data if len(data) <= TEXT_LEFT else b"... cut ...\n" + data[-TEXT_LEFT:]


def pack(files):
    """The archive of {name: bytes}."""
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w:xz", preset=1) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo("results/" + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return to.getvalue()


def bring(results, folder, most=ARCHIVE_MAX):
    """Writes the archive of the folder `results` into `folder`, whole or not at all. What is too large is cut, logs first, or left
    out, the largest first, and left-out.txt names it."""
    files, told = {}, []
    for at, _, names in os.walk(results):
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path) and not os.path.islink(path) and not name.endswith(".new"):
                with open(path, "rb") as file:
                    files[os.path.relpath(path, results)] = file.read()
    packed = pack(files)
    for name in sorted((name for name in files if name.endswith(".log")), key=lambda name: -len(files[name])):
        if len(packed) <= most:
            break
        if len(files[name]) > TEXT_LEFT:
            told.append(f"{name}: the last {TEXT_LEFT} of {len(files[name])} bytes")
            files[name] = cut(files[name])
            packed = pack(files)
    for name in sorted(files, key=lambda name: -len(files[name])):
        if len(packed) <= most:
            break
        told.append(f"{name}: left out, {len(files.pop(name))} bytes")
        packed = pack(dict(files, **{"left-out.txt": "\n".join(told).encode() + b"\n"}))
    if told:
        packed = pack(dict(files, **{"left-out.txt": "\n".join(told).encode() + b"\n"}))
    path = os.path.join(folder, ARCHIVE)
    with open(path + ".new", "wb") as file:
        file.write(packed)
    os.rename(path + ".new", path)


# ---- a second look ----

SYNC_SEC, SANITIZER_SEC = 20, 30
LOG_BYTES = 1 << 18
# What is said where the device itself failed, and not a library's call or a check of ours.
DEVICE_FAILED = re.compile(r"cudaError(IllegalAddress|MisalignedAddress|LaunchFailure|IllegalInstruction|InvalidPc|HardwareStackError|Assert|"
                           r"InvalidAddressSpace|LaunchTimeout)|\bXid\b")


def sanitizer():
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def with_logs(folder):
    """The environment of a second try: each launch is waited for, and the libraries write what they are asked."""
    return {"SDTRAIN_CUDA_SYNC": "1", "CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": os.path.join(folder, "cudnn.log"),
            "CUBLASLT_LOG_LEVEL": "5", "CUBLASLT_LOG_FILE": os.path.join(folder, "cublaslt.log")}


def logs(folder, stage):
    """{file: text} of what the libraries wrote, the end of each."""
    found = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            file.seek(max(os.path.getsize(path) - LOG_BYTES, 0))
            text = file.read().decode(errors="replace")
        if text:
            found[f"{stage}-{name}"] = text
    return found


def failed_before(folders):
    """The stages of the first call that failed in the newest of the earlier runs: {name: result}."""
    for folder in folders:
        try:
            with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
                told = json.load(file)
        except (OSError, ValueError):
            continue
        return {name: one for name, one in told.items() if isinstance(one, dict) and one.get("how") == "failed"}
    return {}

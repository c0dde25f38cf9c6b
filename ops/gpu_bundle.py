# SPDX-License-Identifier: Apache-2.0
"""The bundle of ops/gpu: makes it of a build, packs it into one file, and unpacks that on the machine with the GPU."""
import glob
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = ["sdtrainer", "gpu-first", "kernels-bits", "bench-device", "bench-libraries", "bench-profile", "bench-encoder", "check-operations", "test-lanes", "test-unet",
            "test-train-state", "test-update", "test-grain", "test-checkpoint", "test-emulated-runs", "test-exactness"]
# What every Linux has, and what must be the machine's own.
NOT_CARRIED = re.compile(r"^(linux-vdso|ld-linux|libc\.so|libm\.so|libpthread|libdl\.so|librt\.so|libresolv|libnss|libcuda\.so|libnvidia)")


def libraries(program):
    out = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if match and not NOT_CARRIED.match(match.group(1)):
            yield match.group(1), match.group(2)


GOLDEN = ["cuda-digests.txt", "kernels-cuda.txt", "sd2-encoders-parameters.txt", "unet-*"]  # what the stages and their programs read


def may_be_made(out):
    """Ends the program if what lies there is no bundle."""
    if os.path.lexists(out) and (os.path.islink(out) or os.listdir(out)) and not os.path.isfile(os.path.join(out, "ops/gpu")):
        sys.exit(f"ops/gpu: {out} is there and is not a bundle: it would be deleted. Name another folder")
    if os.path.exists(os.path.join(out, "CMakeLists.txt")):
        sys.exit(f"ops/gpu: {out} is a source tree, and no bundle")


def archive(out):
    """Packs the bundle, all of it below the folder `gpu`; whole or not at all."""
    path = out + ".tar.xz"
    with tarfile.open(path + ".new", "w:xz", preset=0) as file:  # 16 MiB in 5 s; 13 in 18
        file.add(out, "gpu")
    os.rename(path + ".new", path)
    print(f"{path}: {os.path.getsize(path) / 2**20:.1f} MiB")


def unpack(out):
    may_be_made(out)
    new = out + ".new"
    shutil.rmtree(new, ignore_errors=True)  # of one that was ended
    try:
        with tarfile.open(out + ".tar.xz", "r:xz") as file:
            file.extractall(new)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        shutil.rmtree(new, ignore_errors=True)
        sys.exit(f"ops/gpu: {out}.tar.xz cannot be unpacked: {error}")
    shutil.rmtree(out, ignore_errors=True)  # an older bundle
    os.rename(os.path.join(new, "gpu"), out)
    os.rmdir(new)


def bundle(out, builds):
    may_be_made(out)
    build = os.path.join(ROOT, "build/release")
    if builds:
        subprocess.run(["cmake", "--preset", "release", "-DSDTRAIN_CUDA=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", build, "--target", "sdtrain-cuda", "sdtrain-emulated", *PROGRAMS], check=True)
    shutil.rmtree(out, ignore_errors=True)  # an older bundle
    for folder in ("bin", "lib", "ops", "tests"):
        os.makedirs(os.path.join(out, folder))
    module = os.path.join(build, "cuda/libsdtrain-cuda.so")
    shutil.copy2(module, os.path.join(out, "lib"))
    shutil.copytree(os.path.join(ROOT, "kernels/cuda/plans"), os.path.join(out, "lib/plans"))
    shutil.copy2(os.path.join(build, "bin/libsdtrain-emulated.so"), os.path.join(out, "lib"))
    shutil.copy2(os.path.join(ROOT, "ops/gpu"), os.path.join(out, "ops/gpu"))
    for source in ("ops/gpu_bundle.py", "ops/gpu_calls.py", "ops/gpu_children.py", "ops/gpu_encoders.py", "ops/gpu_exact.py", "ops/gpu_jobs.py", "ops/gpu_parts.py", "ops/gpu_profile.py", "ops/gpu_torch.py", "tests/system/dataset.py"):
        shutil.copy2(os.path.join(ROOT, source), os.path.join(out, "ops"))
    os.makedirs(os.path.join(out, "tests/golden"))
    for path in (path for pattern in GOLDEN for path in glob.glob(os.path.join(ROOT, "tests/golden", pattern))):
        shutil.copy2(path, os.path.join(out, "tests/golden"))
    shutil.copytree(os.path.join(ROOT, "tests/models"), os.path.join(out, "tests/models"))
    if os.path.isdir(os.path.join(ROOT, "ops/gpu-results")):
        shutil.copytree(os.path.join(ROOT, "ops/gpu-results"), os.path.join(out, "ops/gpu-results"))
    needed = dict(libraries(module))
    for name in PROGRAMS:
        path = os.path.join(build, "bin", name)
        shutil.copy2(path, os.path.join(out, "bin"))
        needed.update(libraries(path))
    for name, path in needed.items():
        shutil.copy2(os.path.realpath(path), os.path.join(out, "lib", name))
    carried = [*(os.path.join(out, "bin", name) for name in PROGRAMS), *glob.glob(os.path.join(out, "lib/*.so*"))]
    for path in carried:
        os.chmod(path, 0o755)  # a module is not writable
    subprocess.run(["strip", "--strip-unneeded", *carried], check=True)
    head = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=ROOT, check=False, capture_output=True, text=True)
    with open(os.path.join(out, "commit"), "w", encoding="utf-8") as file:
        file.write(head.stdout)
    size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(out) for name in names)
    print(f"{out}: {len(PROGRAMS)} programs, {len(needed)} libraries, {size / 2**20:.1f} MiB")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The U-Net that ops/gpu measures PyTorch with is the one that sdtrain trains: it gives what the golden files hold, and sd2-base has as
many parameters; and each of its measurements runs, here on a CPU at small shapes."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def told(*arguments):
    done = subprocess.run([sys.executable, str(ROOT / "ops/gpu_torch.py"), *arguments], check=True, timeout=300, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    for name in ("two-levels", "odd-sides"):
        result = told("check", str(ROOT / f"tests/golden/unet-{name}.safetensors"))
        assert result["error"] < 1e-6 * result["size"], (name, result)
        assert result["parameters"] == 865910724, result
    step = told("step", "small", "--device", "cpu", "--steps", "2")
    assert step["losses"][-1] < step["losses"][0] and step["samples_per_second"] > 0, step
    names = ["conv 1x8x8 4->32 k3 s1", "conv 2x8x8 16->8 k3 s2", "linear 1x8x8 32->96", "attention n1 h2 d16 64x7"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"operations": [*names, "silu 1x8x8 4->4"]}, file)
        file.flush()
        result = told("shapes", file.name, "--device", "cpu", "--seconds", "10")
    assert list(result["operations"]) == names and not result["whole"], result
    assert all(usec > 0 for passes in result["operations"].values() for usec in passes.values()), result
    print("torch's U-Net is ours")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ptxas.py finds a kernel that spills, one with a stack, one with too many registers, and one that was not reported."""
import os
import re
import subprocess
import tempfile
import unittest

SOURCE, NVCC = os.environ["SDTRAIN_SOURCE"], os.environ["SDTRAIN_NVCC"]

PLANTED = """
__global__ void good(float *x) { x[threadIdx.x] *= 2; }
__global__ void stacked(const int *at, float *x)
{
    float some[64] = {0};
    for (int i = 0; i < 64; i++)
        some[at[i] & 63] += x[i];
    x[threadIdx.x] = some[at[threadIdx.x] & 63];
}
template <int N> __device__ float wide(const float *x, float *to)
{
    float v[N], sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = x[i * 1000 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i * 1000 + threadIdx.x] = v[N - 1 - i] * 2 + v[(i * 7 + 3) % N];
    return sum;
}
__global__ void __launch_bounds__(1024, 2) spilling(const float *x, float *to) { wide<64>(x, to); }
__global__ void greedy(const float *x, float *to) { wide<150>(x, to); }
"""


class Ptxas(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, *objects):
        done = subprocess.run([os.path.join(SOURCE, "tests/tidy/ptxas.py"), os.path.join(self.folder, "table"), *objects], check=False,
                              timeout=60, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_planted_kernels(self):
        source, built = os.path.join(self.folder, "planted.cu"), os.path.join(self.folder, "planted.cu.o")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PLANTED)
        done = subprocess.run([os.path.join(SOURCE, "kernels/cuda/keep-report"), NVCC, "-arch=sm_90a", "-O3", "-Xptxas=-v", "-c", source,
                               "-o", built], check=False, timeout=120, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        code, said = self.check(built)
        self.assertEqual(code, 1)
        self.assertRegex(said, r"(?m)^stacked: [1-9]\d* bytes of stack, 0 of spills$")
        self.assertRegex(said, r"(?m)^spilling: [1-9]\d* bytes of stack, [1-9]\d* of spills$")
        self.assertRegex(said, r"(?m)^greedy: \d{3} registers a thread, at most 128$")
        self.assertNotRegex(said, r"(?m)^good: ")
        with open(os.path.join(self.folder, "table"), encoding="utf-8") as file:
            self.assertEqual(len(re.findall(r"  (?:good|stacked|spilling|greedy)$", file.read(), re.M)), 4)

    def test_what_was_not_reported(self):
        built = os.path.join(self.folder, "silent.cu.o")
        code, said = self.check(built)
        self.assertEqual(code, 1)
        self.assertIn("silent.cu.o.ptxas", said)
        with open(built + ".ptxas", "w", encoding="utf-8"):
            pass
        code, said = self.check(built)
        self.assertEqual(code, 1)
        self.assertIn("no kernel was reported", said)
        self.assertEqual(self.check("device.c.o")[0], 1)

    def test_what_a_compiler_says_else_is_shown(self):
        source = os.path.join(self.folder, "wrong.cu")
        with open(source, "w", encoding="utf-8") as file:
            file.write("__global__ void wrong(float *x) { x = 1.5; }\n")
        done = subprocess.run([os.path.join(SOURCE, "kernels/cuda/keep-report"), NVCC, "-Xptxas=-v", "-c", source, "-o", source + ".o"],
                              check=False, timeout=120, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("wrong.cu(1): error", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

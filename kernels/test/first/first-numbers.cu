/* SPDX-License-Identifier: Apache-2.0 */
/* first-numbers.cu - see first-numbers.h. Compiled as the module's kernels are. */
#include "kernels/test/first/first-numbers.h"

#include <cuda_runtime.h>
#include <string.h>
#include <time.h>

static double now_sec()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int named(cudaError_t code, const char **ret_name)
{
    *ret_name = cudaGetErrorName(code);
    return (int)code;
}

/* ---- the reciprocal ---- */

static __device__ float newton(float d, float y)
{
    const float e = __fmaf_rn(-d, y, 1.0f);
    return __fmaf_rn(y, e, y);
}

static __global__ void reciprocal_kernel(FirstReciprocals *to)
{
    const uint32_t mantissa = blockIdx.x * blockDim.x + threadIdx.x;
    const float d = __uint_as_float(0x3f800000u | mantissa), right = __frcp_rn(d);
    float raw;
    asm("rcp.approx.f32 %0, %1;" : "=f"(raw) : "f"(d));
    const float once = newton(d, raw), twice = newton(d, once);
    const int64_t apart = (int64_t)__float_as_uint(raw) - (int64_t)__float_as_uint(right);
    atomicMax(&to->raw_ulps, (uint32_t)(apart < 0 ? -apart : apart));
    if (once != right)
        atomicAdd((unsigned long long *)&to->differ_once, 1ull);
    if (twice == right)
        return;
    atomicAdd((unsigned long long *)&to->differ, 1ull);
    if (atomicCAS(&to->first, 0u, __float_as_uint(d)) == 0)
        to->refined = __float_as_uint(twice);
}

extern "C" int first_reciprocals(FirstReciprocals *ret, const char **ret_name)
{
    FirstReciprocals *to = nullptr;
    cudaError_t code = cudaMalloc((void **)&to, sizeof(*to));
    if (code == cudaSuccess)
        code = cudaMemset(to, 0, sizeof(*to));
    if (code == cudaSuccess) {
        reciprocal_kernel<<<(1 << 23) / 256, 256>>>(to);
        code = cudaGetLastError();
    }
    if (code == cudaSuccess)
        code = cudaMemcpy(ret, to, sizeof(*ret), cudaMemcpyDeviceToHost);
    (void)cudaFree(to); /* an error is ignored: the process ends soon */
    return named(code, ret_name);
}

/* ---- mma ---- */

static __device__ uint32_t pair(const uint16_t *from)
{
    return (uint32_t)from[0] | ((uint32_t)from[1] << 16);
}

/* All rows of A are equal, and so are all columns of B. So all elements of D must be equal. */
static __global__ void mma_kernel(FirstMma *cases)
{
    FirstMma *m = &cases[blockIdx.x];
    const int k = (int)(threadIdx.x & 3) * 2;
    const uint32_t a0 = pair(m->a + k), a2 = pair(m->a + k + 8);
    const uint32_t b0 = pair(m->b + k), b1 = pair(m->b + k + 8);
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
                 : "r"(a0), "r"(a0), "r"(a2), "r"(a2), "r"(b0), "r"(b1), "f"(m->c));
    const uint32_t bits = __float_as_uint(d0), first = __shfl_sync(0xffffffffu, bits, 0);
    const int same = bits == first && __float_as_uint(d1) == first &&
                     __float_as_uint(d2) == first && __float_as_uint(d3) == first;
    const int all = __all_sync(0xffffffffu, same);
    if (threadIdx.x == 0) {
        m->d = first;
        m->equal = (uint32_t)all;
    }
}

extern "C" int first_mma(FirstMma *cases, size_t n, const char **ret_name)
{
    FirstMma *to = nullptr;
    cudaError_t code = cudaMalloc((void **)&to, n * sizeof(*to));
    if (code == cudaSuccess)
        code = cudaMemcpy(to, cases, n * sizeof(*to), cudaMemcpyHostToDevice);
    if (code == cudaSuccess) {
        mma_kernel<<<(unsigned)n, 32>>>(to);
        code = cudaGetLastError();
    }
    if (code == cudaSuccess)
        code = cudaMemcpy(cases, to, n * sizeof(*to), cudaMemcpyDeviceToHost);
    (void)cudaFree(to); /* an error is ignored: the process ends soon */
    return named(code, ret_name);
}

/* ---- page-locking ---- */

extern "C" int first_page_lock(size_t n_bytes, double *ret_sec, double *ret_free_sec,
                               double *ret_copy_sec, const char **ret_name)
{
    void *host = nullptr, *device = nullptr;
    cudaError_t code = cudaMalloc(&device, n_bytes); /* creates the context before timing */
    double began = now_sec();
    if (code == cudaSuccess)
        code = cudaHostAlloc(&host, n_bytes, cudaHostAllocDefault);
    *ret_sec = now_sec() - began;
    began = now_sec();
    if (code == cudaSuccess)
        code = cudaMemcpy(device, host, n_bytes, cudaMemcpyHostToDevice);
    *ret_copy_sec = now_sec() - began;
    began = now_sec();
    if (host)
        (void)cudaFreeHost(host); /* an error is ignored: the process ends soon */
    *ret_free_sec = now_sec() - began;
    (void)cudaFree(device); /* an error is ignored: the process ends soon */
    return named(code, ret_name);
}

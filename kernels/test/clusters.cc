/* SPDX-License-Identifier: Apache-2.0 */
/* clusters.cc - see testing-clusters.h. */
#include "kernels/test/testing-clusters.h"

#include "kernels/cuda/kernels/mma.cuh"
#include "kernels/test/emulator/emulated.h"

#include <cstdio>
#include <cstdlib>

static double outside;

static void use_warp(ClusterUse use)
{
    MmaSums sums = {};
    if (use == CLUSTER_MIXES_OPERATIONS && threadIdx.x == 3)
        (void)warp_sum(1.0f);
    else if (use == CLUSTER_MIXES_OPERATIONS ? threadIdx.x < 32 : threadIdx.x >= 32)
        warp_mma(MmaA{}, MmaB{}, &sums);
}

static void cluster_kernel(ClusterUse use, double *to)
{
    SHARED_ARRAY(double, mine);
    const unsigned rank = cluster_rank();
    mine[threadIdx.x] = 1.0 / (1.0 + blockIdx.x);
    if (use == CLUSTER_ENDS_EARLY && rank == 1 && threadIdx.x == 3)
        return;
    if (use == CLUSTER_DIVERGES && threadIdx.x == 3)
        __syncthreads();
    if (use == CLUSTER_MIXES_OPERATIONS || use == CLUSTER_PART_OF_A_WARP)
        use_warp(use);
    if (use != CLUSTER_NO_FIRST_BARRIER)
        cluster_sync();
    double sum = 0;
    for (unsigned i = 0; i < cluster_size(); i++)
        sum += (i + 1) * cluster_read(&mine[CLUSTER_THREADS - 1 - threadIdx.x], i);
    if (use == CLUSTER_BEYOND)
        sum += cluster_read(mine, cluster_size());
    if (use == CLUSTER_NOT_SHARED)
        sum += cluster_read(&outside, 0);
    if (threadIdx.x == rank)
        to[blockIdx.x] = sum;
    if (use == CLUSTER_LAST_OF_BLOCK)
        __syncthreads();
    else if (use != CLUSTER_NO_LAST_BARRIER)
        cluster_sync();
}

extern "C" void clusters_run(ClusterUse use, uint64_t seed, double to[CLUSTER_BLOCKS])
{
    const DeviceOptions options = {DEVICE_CUDA, 0, 1, DATA_F32, nullptr, false, 0, false};
    Device *device = nullptr;
    Error err = {};
    if (emulated_device_open(&options, &device, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
    emulated_device_seed(seed);
    LAUNCH_CLUSTERS(device, CLUSTER_OF, CLUSTER_BLOCKS + (use == CLUSTER_ODD_GRID), CLUSTER_THREADS,
                    CLUSTER_THREADS * sizeof(double), cluster_kernel, use, to);
    (void)device_free(device);
}

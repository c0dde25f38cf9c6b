/* SPDX-License-Identifier: Apache-2.0 */
/* testing-clusters.h - launches of emulated kernels whose blocks form clusters, right launches and wrong launches.
 * Some wrong launches also use operations of a warp.
 *
 * Ownership: none. Units: threads, blocks. Threads: the main thread.
 * Errors:    a wrong launch ends the process with a message.
 */
#pragma once

#include "base/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ClusterUse {
    CLUSTER_RIGHT,
    CLUSTER_NO_FIRST_BARRIER, /* reads values that may not have been written yet */
    CLUSTER_NO_LAST_BARRIER,  /* a block may end while another block reads its memory */
    CLUSTER_LAST_OF_BLOCK, /* ends with the block's barrier only; here all blocks read before any block ends */
    CLUSTER_DIVERGES,         /* some threads are at the block's barrier, others at the cluster's */
    CLUSTER_ENDS_EARLY,       /* some threads end before the cluster's barrier */
    CLUSTER_BEYOND,           /* reads a block that does not exist */
    CLUSTER_NOT_SHARED,       /* reads an address outside shared memory */
    CLUSTER_ODD_GRID,         /* the grid is not whole clusters */
    CLUSTER_MIXES_OPERATIONS, /* some lanes of a warp are at a shuffle, others at an mma */
    CLUSTER_PART_OF_A_WARP,   /* the 8 threads of the last warp are at an mma */
} ClusterUse;

enum { CLUSTER_BLOCKS = 6, CLUSTER_OF = 3, CLUSTER_THREADS = 40 };

/* Each block i stores 1 / (1 + i) in its shared memory. to[i] gets the sum over the blocks of i's cluster, in order of
 * rank, of (1 + rank) times the stored number. So a read from a wrong block gives a wrong sum. */
void clusters_run(ClusterUse use, uint64_t seed, double to[CLUSTER_BLOCKS]);

#ifdef __cplusplus
}
#endif

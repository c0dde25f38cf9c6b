/* SPDX-License-Identifier: Apache-2.0 */
/* testing-clusters.h - launches of emulated kernels whose blocks form clusters, right ones and wrong ones; the latter
 * also with operations of a warp.
 *
 * Ownership: none.
 * Units:     threads, blocks.
 * Errors:    a wrong one ends the process with a text.
 * Threads:   the main thread.
 */
#pragma once

#include "base/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ClusterUse {
    CLUSTER_RIGHT,
    CLUSTER_NO_FIRST_BARRIER, /* reads what may not have been written */
    CLUSTER_NO_LAST_BARRIER,  /* a block may end while another reads its memory */
    CLUSTER_LAST_OF_BLOCK,    /* the same, though here all read before any ends */
    CLUSTER_DIVERGES,         /* some threads are at the block's barrier, others at the cluster's */
    CLUSTER_ENDS_EARLY,       /* some threads end before the cluster's barrier */
    CLUSTER_BEYOND,           /* reads a block that is not there */
    CLUSTER_NOT_SHARED,       /* reads what is not shared memory */
    CLUSTER_ODD_GRID,         /* the grid is not whole clusters */
    CLUSTER_MIXES_OPERATIONS, /* lanes of a warp are at a shuffle, others at an mma */
    CLUSTER_PART_OF_A_WARP,   /* the 8 threads of the last warp are at an mma */
} ClusterUse;

enum { CLUSTER_BLOCKS = 6, CLUSTER_OF = 3, CLUSTER_THREADS = 40 };

/* to[block] = the sum over the cluster's blocks, in their order, of 1 / (1 + block) seen by the block, times the
 * position of the one that is read: so that a wrong rank shows. */
void clusters_run(ClusterUse use, uint64_t seed, double to[CLUSTER_BLOCKS]);

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* testing-peers.h - for tests and fuzzers: a comm whose other ranks are played by the test.
 *
 * Every collective returns what the play makes of it: it is handed the buffer as this rank left it, and overwrites
 * what the others send. So a peer can say anything.
 *
 * Ownership: comm_open_played() gives the caller a Comm; borrows the play.
 * Units:     bytes.
 * Errors:    the play's, negative errno.
 * Threads:   as the comm's.
 */
#pragma once

#include "trainer/comm/comm.h"

typedef enum PlayedCall {
    PLAYED_ALL_REDUCE,
    PLAYED_REDUCE_SCATTER,
    PLAYED_ALL_GATHER,
    PLAYED_BROADCAST
} PlayedCall;

typedef struct Play {
    /* data: all ranks' parts of an all-gather (own_bytes each, this rank's in its place), else the
     * one buffer. A broadcast of this rank's own is not played. */
    int (*play)(void *arg, PlayedCall call, void *data, size_t n_bytes, size_t own_bytes);
    void *arg;
} Play;

int comm_open_played(int rank, int size, const Play *play, Comm **ret, Error *err);

/* SPDX-License-Identifier: Apache-2.0 */
/* testing-peers.h - for tests and fuzzers: a comm whose other ranks are played by the test.
 *
 * Every collective calls the test's play() with the buffer as this rank filled it; play() overwrites the other
 * ranks' parts and returns the result of the call. So a peer can send anything.
 *
 * Units: bytes. Threads: as the comm's.
 * Ownership: comm_open_played() gives the caller a Comm; borrows the play.
 * Errors:    the errors of play(), as negative errno.
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
    /* Plays the other ranks in a call. data: for an all-gather, the parts of all ranks (own_bytes
     * each, this rank's part filled in); else the only buffer. It is not called for a broadcast of
     * this rank's own data. */
    int (*play)(void *arg, PlayedCall call, void *data, size_t n_bytes, size_t own_bytes);
    void *arg;
} Play;

int comm_open_played(int rank, int size, const Play *play, Comm **ret, Error *err);

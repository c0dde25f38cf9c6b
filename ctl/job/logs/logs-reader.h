/* SPDX-License-Identifier: Apache-2.0 */
/* logs-reader.h - asks daemons for what their ranks print, through etcd: asks/<node>/<id> and lines/<node>/<id>.
 *
 * Each node is asked by one record under a lease of our own, and answers at most LOG_TEXT_MAX bytes at a time; what was
 * shown is asked on from. When we end, or are killed, the lease ends, and all of it vanishes.
 *
 * Ownership: log_readers_new() gives the caller a LogReaders, which borrows the client. log_readers_free() accepts
 *            NULL.
 * Units:     microseconds, bytes.
 * Errors:    what concerns one node is told by `failed`, in words; the others go on.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/client.h"

typedef struct LogReaders LogReaders;

enum {
    LOG_READERS_AT_ONCE = 64,   /* nodes that are asked at the same time */
    LOG_READERS_ANSWER_SEC = 5, /* a node that has not answered by then does not answer */
    LOG_READERS_LEASE_SEC = 10, /* so long our records outlive us when we are killed */
    LOG_READERS_BURST_BYTES = 4 * 1024 * 1024, /* that all nodes may answer at once, together */
    LOG_READERS_BYTES_A_SEC = 64 * 1024,       /* and in the long run */
};

/* One node that is to be read. */
typedef struct LogWanted {
    char node[NODE_NAME_MAX + 1], address[128];
    char folder[640];            /* of the generation's logs there */
    int ranks[RECORD_SLOTS_MAX]; /* n_ranks 0: whichever it has */
    size_t n_ranks;
    int64_t tail_bytes; /* of each rank: older lines are left out */
    bool follow;
} LogWanted;

typedef struct LogReadersEvents {
    void *userdata;
    /* Bytes of what that rank prints, in order; UTF-8 without control characters, if the node is honest. */
    void (*text)(void *userdata, int rank, const char *text, size_t n);
    /* Bytes were left out; first: they are older than all that is shown. */
    void (*skipped)(void *userdata, int rank, int64_t bytes, bool first, const LogWanted *wanted);
    /* The node has no log of that rank; rank -1: of none. */
    void (*missing)(void *userdata, int rank, const LogWanted *wanted);
    /* The node is not read any more, and why. */
    void (*failed)(void *userdata, const LogWanted *wanted, const char *why);
} LogReadersEvents;

/* Runs the loop until the lease is there and the watch has begun. -EACCES: this user may not read logs. */
int log_readers_new(CtlClient *client, const char *job, const LogReadersEvents *events,
                    LogReaders **ret, Error *err);
LogReaders *log_readers_free(LogReaders *readers);
DEFINE_CLEANUP(LogReaders, log_readers_free)

/* Nodes are read in this order; at_once of them at the same time. */
void log_readers_add(LogReaders *readers, int64_t generation, const LogWanted *wanted);
void log_readers_start(LogReaders *readers, size_t at_once);
/* Nothing more is to be waited for: what is there is read to its end. */
void log_readers_finish(LogReaders *readers);
bool log_readers_busy(const LogReaders *readers); /* a node is still to be read */
/* The node is gone: nothing of it is waited for. */
void log_readers_forget(LogReaders *readers, const char *node);
/* Forgets all nodes. */
void log_readers_stop(LogReaders *readers);
/* Called again and again, some times a second: deadlines, pauses, what failed. */
void log_readers_tick(LogReaders *readers);
/* Takes our records out of etcd; `done` runs when that is done, or could not be done within a second or so. */
void log_readers_close(LogReaders *readers, void (*done)(void *userdata), void *userdata);

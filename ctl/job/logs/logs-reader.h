/* SPDX-License-Identifier: Apache-2.0 */
/* logs-reader.h - requests the logs of ranks from the daemons, through etcd: asks/<node>/<id> and lines/<node>/<id>.
 *
 * sdctl writes one request for each node, under its own lease. A node answers with at most LOG_TEXT_MAX bytes at a
 * time; then the request is written again with the position after the shown bytes. When sdctl ends or is killed, its
 * lease ends, and etcd deletes the requests.
 *
 * Units: microseconds, bytes. Threads: the main thread.
 * Ownership: log_readers_new() gives the caller a LogReaders, which borrows the client. log_readers_free() accepts
 *            NULL.
 * Errors:    an error of one node is reported by the callback `failed` as a text; the other nodes continue.
 */
#pragma once

#include "cluster/log-records.h"
#include "ctl/client.h"

typedef struct LogReaders LogReaders;

enum {
    LOG_READERS_AT_ONCE = 64,   /* nodes that are read at the same time */
    LOG_READERS_ANSWER_SEC = 5, /* after this time a node is taken as not answering */
    LOG_READERS_LEASE_SEC = 10, /* how long the records remain if sdctl is killed */
    /* Limit for all nodes' answers together, in a burst. */
    LOG_READERS_BURST_BYTES = 4 * 1024 * 1024,
    /* Limit for all nodes' answers together, on average. */
    LOG_READERS_BYTES_A_SEC = 64 * 1024,
};

/* A node from which to read logs. */
typedef struct LogWanted {
    char node[NODE_NAME_MAX + 1], address[128];
    char folder[640];            /* folder of the generation's logs on the node */
    int ranks[RECORD_SLOTS_MAX]; /* n_ranks 0: all ranks that the node has */
    size_t n_ranks;
    int64_t tail_bytes; /* for each rank: how many bytes before the log's end reading starts */
    bool follow;
} LogWanted;

typedef struct LogReadersEvents {
    void *userdata;
    /* Passes bytes that the rank has printed, in order. The bytes are UTF-8 without control characters, if the node is
     * honest. */
    void (*text)(void *userdata, int rank, const char *text, size_t n);
    /* `bytes` bytes were omitted; first: the omitted bytes are older than all bytes that were passed on. */
    void (*skipped)(void *userdata, int rank, int64_t bytes, bool first, const LogWanted *wanted);
    /* The node has no log of this rank, or with rank -1 no log of any rank. */
    void (*missing)(void *userdata, int rank, const LogWanted *wanted);
    /* The node is no longer read; `why` is the reason as text. */
    void (*failed)(void *userdata, const LogWanted *wanted, const char *why);
} LogReadersEvents;

/* Runs the event loop until the lease is granted and the watch has begun. -EACCES: this user may not read logs. */
int log_readers_new(CtlClient *client, const char *job, const LogReadersEvents *events,
                    LogReaders **ret, Error *err);
LogReaders *log_readers_free(LogReaders *readers);
DEFINE_CLEANUP(LogReaders, log_readers_free)

/* Adds a node. Nodes are read in the order of addition. */
void log_readers_add(LogReaders *readers, int64_t generation, const LogWanted *wanted);
/* Starts reading. At most at_once nodes are read at the same time. */
void log_readers_start(LogReaders *readers, size_t at_once);
/* Stops following: each log is read to its present end. */
void log_readers_finish(LogReaders *readers);
/* Tells whether the logs of at least one node have not been read to their end. */
bool log_readers_busy(const LogReaders *readers);
/* Stops reading a node that is gone. */
void log_readers_forget(LogReaders *readers, const char *node);
/* Stops reading all nodes and removes the nodes from `readers`. */
void log_readers_stop(LogReaders *readers);
/* Handles deadlines, pauses and retries. To be called several times a second. */
void log_readers_tick(LogReaders *readers);
/* Deletes sdctl's records from etcd. Calls `done` when they are deleted, or after about a second if the deletion
 * fails. */
void log_readers_close(LogReaders *readers, void (*done)(void *userdata), void *userdata);

/* SPDX-License-Identifier: Apache-2.0 */
/* commit.h - commits a saved checkpoint: appends a line to checkpoints/<job> and, in the same transaction, puts its
 * mark into progress/<job>. The mark shows that there was a commit in case checkpoints/<job> is lost.
 *
 * Two worlds could both believe that they commit. So worlds/<job> and checkpoints/<job> are read together, and if
 * the world is still ours the line is appended under guards on both mod revisions. After every answer other than
 * success the records are read again before anything is decided: if our line is there, the commit has succeeded; if
 * the world has moved, the commit is refused; else the write is tried once more.
 *
 * A record that does not decode is written anew, as if there were none; a record of another version is never
 * overwritten. A commit ends with its world: a rank that cannot commit trains on until the fence or the leader ends
 * it.
 *
 * Ownership: part of a LocalWorld.
 * Units:     as in records.h.
 * Errors:    -EBUSY from commit_begin(): a commit is under way (a trainer saves one checkpoint at a time).
 * Invariant: I3 (no two generations can both commit), I4 (the latest never regresses).
 */
#pragma once

#include "cluster/records.h"
#include "daemon/loop/timer.h"
#include "etcd/etcd.h"
#include "protocol/channel.h"

typedef struct LocalWorld LocalWorld;

typedef struct Commit {
    LocalWorld *local;
    bool busy; /* a commit is under way */
    /* The saved checkpoint, or the checkpoints that were found, the oldest first. */
    CheckpointCommit lines[RECORD_COMMITS_MAX];
    size_t n_lines;
    EtcdCall *call;
    Timer retry;
    unsigned attempts; /* failed attempts of this commit */
} Commit;

void commit_init(Commit *commit, LocalWorld *local);
void commit_clear(Commit *commit);
/* Commits a checkpoint that rank 0 has saved. The answer goes to rank 0 as `committed` or `refused`. */
int commit_begin(Commit *commit, const ChannelMessage *saved);
/* Notes a checkpoint that rank 0 has found in the folder. All found checkpoints are committed together, once the last
 * of them is noted. */
int commit_found(Commit *commit, const ChannelMessage *found);

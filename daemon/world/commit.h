/* SPDX-License-Identifier: Apache-2.0 */
/* commit.h - makes a saved checkpoint count: one line more in checkpoints/<job>, and in the same transaction
 * its mark in progress/<job>, which says that there was a commit should the first record get lost.
 *
 * Two worlds could both believe that they commit. So worlds/<job> and checkpoints/<job> are read together, and if the
 * world is still ours the line is appended under the guard of both mod revisions. After every answer but success the
 * records are read again before anything is decided: our line is there: committed; the world has moved: refused; else
 * the write is tried once more.
 *
 * A record that does not decode is written anew, as if there were none; a record of another version is never
 * overwritten. A commit ends with its world: a rank that cannot commit trains on until the fence or the leader ends
 * it.
 *
 * Ownership: part of a LocalWorld.
 * Units:     as records.h.
 * Errors:    -EBUSY from commit_begin(): one is under way (a trainer saves one at a time).
 * Threads:   loop thread only.
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
    /* The saved checkpoint, or those that were found, the oldest first. */
    CheckpointCommit lines[RECORD_COMMITS_MAX];
    size_t n_lines;
    EtcdCall *call;
    Timer retry;
    unsigned attempts; /* failed ones of this commit */
} Commit;

void commit_init(Commit *commit, LocalWorld *local);
void commit_clear(Commit *commit);
/* Rank 0 has saved a checkpoint; the answer goes to rank 0 as `committed` or `refused`. */
int commit_begin(Commit *commit, const ChannelMessage *saved);
/* Rank 0 has found a checkpoint in the folder. All that it found are committed together, after the last. */
int commit_found(Commit *commit, const ChannelMessage *found);

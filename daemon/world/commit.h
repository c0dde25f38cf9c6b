/* commit.h - makes a saved checkpoint count: one line more in checkpoints/<job>, and in the same transaction
 * its mark in progress/<job>, which tells whoever finds the former lost that there was one.
 *
 * Read worlds/<job> and checkpoints/<job> together; if the world is still ours, append under the
 * guard of both mod revisions. Whatever the write answers but success, known or unknown, read again
 * before deciding: our line is there = committed; the world has moved = refused; else try once
 * more. A record that does not decode is written anew, as one that is not there; one of another version
 * is never overwritten. It ends with the world: a rank that cannot commit trains on until the fence or the leader
 * ends it.
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
    bool busy;
    CheckpointCommit lines[RECORD_COMMITS_MAX]; /* one, or what was found, the oldest first */
    size_t n_lines;
    EtcdCall *call;
    Timer retry;
    unsigned attempts;
} Commit;

void commit_init(Commit *commit, LocalWorld *local);
void commit_clear(Commit *commit);
int commit_begin(Commit *commit, const ChannelMessage *saved);
/* One of those that rank 0 has found in the checkpoint folder; all together once no more follow. */
int commit_found(Commit *commit, const ChannelMessage *found);

/* SPDX-License-Identifier: Apache-2.0 */
/* occupant.h - decides whose record is found under this node's name, and what this node does about it.
 *
 * Other clients can read and write everything in a record: machine id, incarnation, and the id of the record's
 * lease. But only this sdtraind has the lease that it keeps alive, and its state folder. So a node whose own lease
 * lives does not yield the name; a node without a lease yields to a machine that keeps a lease alive, and waits.
 *
 * Ownership: values. Errors: none. Threads: any; pure.
 */
#pragma once

#include "base/macro.h"

typedef enum Occupant {
    OCCUPANT_NOBODY,    /* no client keeps the record's lease alive: the record is overwritten */
    OCCUPANT_OURS,      /* this sdtraind wrote the record, but did not receive etcd's answer */
    OCCUPANT_LAST_LIFE, /* the node's previous sdtraind wrote the record: its lease is revoked */
    OCCUPANT_STRANGER,  /* another client's record, while our lease lives: ours is put back */
    OCCUPANT_HOLDER,    /* another machine holds the name: this node waits */
} Occupant;

typedef struct OccupantFacts {
    int64_t lease;      /* lease of the record; 0: none */
    bool has_our_words; /* the record is valid, and has our machine id and our incarnation */
    int64_t own_lease;  /* lease that this sdtraind keeps alive; 0: none now */
    int64_t held_lease; /* lease under which etcd last acknowledged our record; 0: never */
    int64_t last_lease; /* lease of the previous sdtraind, from the state folder; 0: unknown */
} OccupantFacts;

Occupant occupant_judge(const OccupantFacts *facts);

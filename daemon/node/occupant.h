/* SPDX-License-Identifier: Apache-2.0 */
/* occupant.h - whose record it is that lies under this node's name, and what is done about it.
 *
 * Everything in a record can be read by others and written by others: machine id, incarnation, and the id of the lease
 * that the record hangs on. Nobody else has the lease that this sdtraind keeps alive, or its state folder. So a node
 * whose own lease lives gives the name to nobody; one without yields to whoever keeps a lease alive, and waits.
 *
 * Ownership: values.
 * Units:     none.
 * Errors:    none.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"

typedef enum Occupant {
    OCCUPANT_NOBODY, /* the record hangs on no lease that somebody keeps alive: it is written over */
    OCCUPANT_OURS,   /* this sdtraind wrote it, and did not hear that it had */
    OCCUPANT_LAST_LIFE, /* the last life of this sdtraind wrote it: its lease is ended first */
    OCCUPANT_STRANGER,  /* another writer, while our own lease lives: our record is put back */
    OCCUPANT_HOLDER,    /* another one holds the name: it is waited for */
} Occupant;

typedef struct OccupantFacts {
    int64_t lease;      /* that the record hangs on; 0: none */
    bool has_our_words; /* it can be read, and has our machine id and our incarnation */
    int64_t own_lease;  /* that this sdtraind keeps alive; 0: it has none now */
    int64_t held_lease; /* under which our record was last acknowledged in this life; 0: never */
    int64_t last_lease; /* of the last life, by the state folder; 0: not known */
} OccupantFacts;

Occupant occupant_judge(const OccupantFacts *facts);

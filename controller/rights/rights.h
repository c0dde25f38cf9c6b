/* SPDX-License-Identifier: Apache-2.0 */
/* rights.h - the kinds of records that this controller may write in etcd.
 *
 * One denied operation makes etcd refuse the whole transaction. So a controller asks at its start, for each kind of
 * record that it writes, whether it may. Roles made for an older version may lack newer kinds: those that
 * rights_without() names are left out of transactions. Decisions that need another denied kind fail until somebody
 * grants it. A denial is told once in the log and in the controller's election record, and asked again until none is
 * left.
 *
 * Ownership: part of a Leader; borrows the client and the cluster's name.
 * Units:     none.
 * Errors:    none: an unknown right counts as denied.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "etcd/etcd.h"

typedef struct Rights Rights;

/* Called when the set of denied kinds has changed. */
typedef void (*RightsChanged)(void *userdata);

typedef struct RightsQuestion {
    Rights *rights;
    KeyKind kind;
    EtcdCall *call; /* the question under way; NULL: none */
} RightsQuestion;

struct Rights {
    bool may[KEY_KINDS];    /* etcd's last answer was yes */
    bool denied[KEY_KINDS]; /* etcd's last answer was no; before the first answer both are false */
    char lacks[64];         /* the names of denied kinds, blanks between; cut to fit */
    bool asked;             /* a denied transaction has made it ask since the last tick */
    unsigned ticks;         /* ticks in a row with a kind denied or unknown */
    Etcd *etcd;
    const char *cluster; /* its name */
    RightsChanged changed;
    void *userdata;
    RightsQuestion questions[KEY_KINDS];
};

/* Asks at once, so that etcd answers before anything that the controller asks later. */
void rights_open(Rights *rights, Etcd *etcd, const char *cluster, RightsChanged changed,
                 void *userdata);
void rights_clear(Rights *rights);
/* Called every two seconds; asks again from time to time while a kind is denied. */
void rights_tick(Rights *rights);
/* Called when a transaction was denied, perhaps for a right that was taken away: asks for all kinds again. */
void rights_denied(Rights *rights);
/* Tells whether transactions leave this kind out. False if rights is NULL, or if rights_without() is NULL. */
bool rights_leave_out(const Rights *rights, KeyKind kind);
/* Names the feature that is missing while a leader leaves the kind out; NULL: the kind is never left out. */
const char *rights_without(KeyKind kind);

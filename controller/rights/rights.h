/* SPDX-License-Identifier: Apache-2.0 */
/* rights.h - the kinds of records that this controller may write in etcd.
 *
 * One denied operation makes etcd refuse the whole transaction. So at its start a controller asks etcd, for each kind
 * of record that it writes, whether it may write that kind. Roles made for an older version may lack newer kinds: the
 * kinds that rights_without() names are left out of transactions. Decisions that need another denied kind fail until
 * the right is granted. A denial is reported once in the log and in the controller's election record, and the rights
 * are requested again until none is denied.
 *
 * Units: none. Threads: loop thread only.
 * Ownership: part of a Leader; borrows the client and the cluster's name.
 * Errors:    none: an unknown right counts as denied.
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
    EtcdCall *call; /* the request under way; NULL: none */
} RightsQuestion;

struct Rights {
    bool may[KEY_KINDS]; /* etcd's last answer was that this kind may be written */
    /* etcd's last answer was a denial; before the first answer, may and denied are false */
    bool denied[KEY_KINDS];
    char lacks[64]; /* names of the denied kinds, separated by blanks; cut to fit */
    bool asked;     /* rights were requested after a denial since the last tick */
    unsigned ticks; /* ticks in a row with a kind denied or unknown */
    Etcd *etcd;
    const char *cluster; /* the cluster's name */
    RightsChanged changed;
    void *userdata;
    RightsQuestion questions[KEY_KINDS];
};

/* Requests the rights at once, so that etcd answers before any later request of the controller. */
void rights_open(Rights *rights, Etcd *etcd, const char *cluster, RightsChanged changed,
                 void *userdata);
void rights_clear(Rights *rights);
/* Called every two seconds; requests the rights again from time to time while a kind is denied. */
void rights_tick(Rights *rights);
/* Called when a transaction was denied, perhaps because a right was revoked: requests all rights again. */
void rights_denied(Rights *rights);
/* Returns whether transactions leave this kind out. False if rights is NULL, or if rights_without() is NULL. */
bool rights_leave_out(const Rights *rights, KeyKind kind);
/* Returns the feature that is missing while a leader leaves the kind out; NULL: the kind is never left out. */
const char *rights_without(KeyKind kind);

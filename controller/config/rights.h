/* SPDX-License-Identifier: Apache-2.0 */
/* rights.h - what this controller may write in etcd.
 *
 * An operation that etcd denies takes the whole transaction with it. So a controller asks at its start, for each kind
 * of record that it writes. A kind that came later than the roles may have (rights_without()) it leaves out; what the
 * others are for fails until somebody gives the right. It says either once, in its log and in the record by which it
 * stands for election, and looks again until there is nothing to say.
 *
 * Ownership: part of the Controller; borrows the client and the settings.
 * Units:     none.
 * Errors:    none: what is not known is not allowed.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "controller/config/config.h"
#include "etcd/etcd.h"

typedef struct Rights Rights;

/* What is lacking is not what it was. */
typedef void (*RightsChanged)(void *userdata);

typedef struct RightsQuestion {
    Rights *rights;
    KeyKind kind;
    EtcdCall *call; /* under way */
} RightsQuestion;

struct Rights {
    bool may[KEY_KINDS];    /* as etcd said last */
    bool denied[KEY_KINDS]; /* and whether it was no; neither before its first word */
    char lacks[64];         /* the names of those that are denied, blanks between; cut */
    bool asked;             /* since the last tick, for a denial */
    unsigned ticks;         /* with something denied or unknown */
    Etcd *etcd;
    const ControllerConfig *config;
    RightsChanged changed;
    void *userdata;
    RightsQuestion questions[KEY_KINDS];
};

/* Asks at once: it is answered before anything that is asked of etcd later. */
void rights_open(Rights *rights, Etcd *etcd, const ControllerConfig *config, RightsChanged changed,
                 void *userdata);
void rights_clear(Rights *rights);
/* Every STATUS_SEC: asks now and then while something is denied. */
void rights_tick(Rights *rights);
/* A transaction was denied, perhaps for a right that was taken away: asks for all; a later one goes without it. */
void rights_denied(Rights *rights);
/* Is this kind to be left out? NULL: all may be written. Kinds that are never left out: no. */
bool rights_leave_out(const Rights *rights, KeyKind kind);
/* What there is not while a leader leaves the kind out; NULL: it is never left out. */
const char *rights_without(KeyKind kind);

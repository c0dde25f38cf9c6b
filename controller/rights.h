/* rights.h - what this controller may write in etcd, of the kinds that an older role lacks.
 *
 * An operation that etcd denies takes the whole transaction with it: what a controller may not write it
 * leaves out, says so once, and looks again until somebody gives the right.
 *
 * Ownership: part of the Manager; borrows the client and the cluster's name.
 * Units:     none.
 * Errors:    none: what is not known is not allowed.
 * Threads:   loop thread only.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct Rights {
    bool may_secrets; /* as etcd said last */
    bool said_secrets;
    unsigned ticks; /* without it */
    Etcd *etcd;
    const char *cluster;
    EtcdCall *call;
} Rights;

/* Asks at once: it is answered before anything that is asked of etcd later. */
void rights_open(Rights *rights, Etcd *etcd, const char *cluster);
void rights_clear(Rights *rights);
/* Every STATUS_SEC: asks now and then while something is denied. */
void rights_tick(Rights *rights);
/* A transaction was denied: perhaps for a right that was taken away; the next one goes without. */
void rights_denied(Rights *rights);

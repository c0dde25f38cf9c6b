/* sender.h - the courier's hands: its messages go out by HTTP, its marks into etcd.
 *
 * Ownership: outbox_new() gives the caller an Outbox; it borrows what OutboxOptions point to, which
 *            must outlive it.
 * Units:     microseconds.
 * Errors:    -errno with the text. Sinks that fail are logged when they begin and when they end to.
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/alerting/alerts-file.h"
#include "controller/config/rights.h"
#include "controller/feed/feed.h"
#include "etcd/etcd.h"

typedef struct Outbox Outbox;

typedef struct OutboxOptions {
    sd_event *event;
    Etcd *etcd;
    const EtcdLease *lease; /* the leader's: nothing is said after its deadline */
    const Feed *feed;
    const char *cluster;
    const char *leader_key;  /* of this controller; filled in when it leads */
    const char *alerts_file; /* path; empty: no sinks */
    int pages_max;
    Rights *rights; /* without alerts nothing is told: a mark that cannot be stored is not begun */
    /* A record that was read again, with value NULL when it is gone; then outbox_observe(). */
    void (*on_record)(const char *key, const char *value, size_t n_value, int64_t revision,
                      void *userdata);
    void *userdata;
} OutboxOptions;

int outbox_new(const OutboxOptions *options, Outbox **ret, Error *err);
Outbox *outbox_free(Outbox *outbox);
DEFINE_CLEANUP(Outbox, outbox_free)

/* Every event that the core sees; acts when it is the last of its moment (not event->more). */
void outbox_observe(Outbox *outbox, const Event *event);
/* Reads the alerts file again; on error all stays as it is. */
int outbox_reload(Outbox *outbox, Error *err);

/* For metrics: -ENOENT beyond the last sink. */
int outbox_count(const Outbox *outbox, int sink, const char **ret_name, SinkCounts *ret);

/* SPDX-License-Identifier: Apache-2.0 */
/* sender.h - the notifier's hands: its messages go out by HTTP, its marks into etcd.
 *
 * Ownership: sender_new() gives the caller an Sender; it borrows what SenderOptions point to, which
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

typedef struct Sender Sender;

typedef struct SenderOptions {
    sd_event *event;
    Etcd *etcd;
    const EtcdLease *lease; /* the leader's: nothing is said after its deadline */
    const Feed *feed;
    const char *cluster;
    const char *leader_key;  /* of this controller; filled in when it leads */
    const char *alerts_file; /* path; empty: no sinks */
    int notifications_max;
    Rights *rights; /* without alerts nothing is told: a mark that cannot be stored is not begun */
    /* A record that was read again, with value NULL when it is gone; then sender_observe(). */
    void (*on_record)(const char *key, const char *value, size_t n_value, int64_t revision,
                      void *userdata);
    void *userdata;
} SenderOptions;

int sender_new(const SenderOptions *options, Sender **ret, Error *err);
Sender *sender_free(Sender *sender);
DEFINE_CLEANUP(Sender, sender_free)

/* Every event that the core sees; acts when it is the last of its moment (not event->more). */
void sender_observe(Sender *sender, const Event *event);
/* Reads the alerts file again; on error all stays as it is. */
int sender_reload(Sender *sender, Error *err);

/* For metrics: -ENOENT beyond the last sink. */
int sender_count(const Sender *sender, int sink, const char **ret_name, SinkCounts *ret);

/* SPDX-License-Identifier: Apache-2.0 */
/* sender.h - carries out what the notifier decides: notifications by HTTP or mail, marks into etcd.
 *
 * Units: microseconds. Threads: loop thread only.
 * Ownership: sender_new() gives the caller a Sender; everything that SenderOptions point to must outlive it.
 * Errors:    -errno with the text. A sink is logged when it begins to fail and when it works again.
 */
#pragma once

#include "controller/alerting/alerts-file.h"
#include "controller/feed/feed.h"
#include "controller/rights/rights.h"
#include "etcd/etcd.h"

typedef struct Sender Sender;

typedef struct SenderOptions {
    sd_event *event;
    Etcd *etcd;
    const EtcdLease *lease; /* the leader's lease: no message is sent after its deadline */
    const Feed *feed;
    const char *cluster;
    const char *leader_key;  /* this controller's election key; set while the controller leads */
    const char *alerts_file; /* path of the alerts file; empty: no sinks */
    int notifications_max;
    /* Without the right to write alerts/ no message is sent, because its mark could not be stored. */
    Rights *rights;
    /* Called with a record that the sender has read again; value is NULL if the key does not exist. The caller feeds
     * the record to the core and calls sender_observe(). */
    void (*on_record)(const char *key, const char *value, size_t n_value, int64_t revision,
                      void *userdata);
    void *userdata;
} SenderOptions;

int sender_new(const SenderOptions *options, Sender **ret, Error *err);
Sender *sender_free(Sender *sender);
DEFINE_CLEANUP(Sender, sender_free)

/* Receives every event that the core sees; acts on the last event of a batch (event->more is false). */
void sender_observe(Sender *sender, const Event *event);
/* Reads the alerts file again; on an error the sinks stay unchanged. */
int sender_reload(Sender *sender, Error *err);

/* For metrics: the counts of the sink with this index; -ENOENT if there is no such sink. */
int sender_count(const Sender *sender, int sink, const char **ret_name, SinkCounts *ret);

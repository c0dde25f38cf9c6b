/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - what sdcontroller exports: itself, its requests, and while it leads the jobs, nodes
 * and incidents.
 *
 * Counters of incidents and histograms of recoveries are made from the records, by every controller,
 * also while it follows: a new leader knows what is in etcd. What only the leader sees (decisions,
 * worlds, watch lag) counts from the start of the process.
 *
 * Ownership: controller_metrics_new() gives the caller a ControllerMetrics. NULL is accepted
 *            everywhere: metrics are off.
 * Units:     *_usec microseconds of one clock.
 * Errors:    -errno with the address in the text.
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/alerting/sender.h"
#include "controller/config/config.h"
#include "metrics/metrics.h"

#include <systemd/sd-event.h>

typedef struct ControllerMetrics ControllerMetrics;

typedef struct ControllerView {
    Cluster *cluster;
    const Sender *sender;
    int64_t term;   /* 0: following */
    bool loaded;    /* every record has been read once */
    bool connected; /* the watch is up and has caught up */
} ControllerView;

typedef ControllerView (*ControllerLook)(void *userdata);

/* *ret is NULL when config->metrics is empty. */
int controller_metrics_new(sd_event *event, const ControllerConfig *config, ControllerLook look,
                           void *userdata, ControllerMetrics **ret, Error *err);
ControllerMetrics *controller_metrics_free(ControllerMetrics *metrics);
DEFINE_CLEANUP(ControllerMetrics, controller_metrics_free)

/* What docs/reference/metrics.md shows. */
const MetricFamily *controller_metrics_families(size_t *ret_n);
/* Has the client tell of its requests; it must go before the metrics do. */
void controller_metrics_observe(ControllerMetrics *metrics, Etcd *etcd);
/* A record, before the core hears of it. */
void controller_metrics_note_event(ControllerMetrics *metrics, const Cluster *cluster,
                                   const Event *event);
void controller_metrics_note_leading(ControllerMetrics *metrics);
/* What became of a decision that was begun then; revision: what it wrote when it is done. */
void controller_metrics_note_outcome(ControllerMetrics *metrics, const Decision *decision,
                                     Outcome outcome, uint64_t begun_usec, int64_t revision);
/* The watch has shown everything up to this revision. */
void controller_metrics_note_shown(ControllerMetrics *metrics, int64_t revision);

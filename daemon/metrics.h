/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - exports the metrics of sdtraind: of the node, its ranks and their trainers.
 *
 * A trainer has no port; its numbers arrive through its channel. All counters start with the process; the counters
 * of a job are removed when neither etcd nor this node knows the job any more.
 *
 * Ownership: daemon_metrics_open() gives the caller a DaemonMetrics, or NULL when metrics are off; every function
 *            accepts NULL. It reads the Manager, which must outlive it.
 * Units:     *_usec microseconds of one clock.
 * Errors:    -errno with the address in the text.
 * Threads:   loop thread only.
 */
#pragma once

#include "daemon/world/exit.h"
#include "health/probe.h"
#include "metrics/metrics.h"
#include "protocol/channel.h"

#include <systemd/sd-event.h>

typedef struct Manager Manager;
typedef struct Rank Rank;
typedef struct DaemonMetrics DaemonMetrics;

/* Opens the port at once; requests are answered only while the loop runs. */
int daemon_metrics_open(const Manager *m, sd_event *event, DaemonMetrics **ret, Error *err);
DaemonMetrics *daemon_metrics_free(DaemonMetrics *metrics);
/* For the documents: returns the families that docs/reference/metrics.md shows. */
const MetricFamily *daemon_metrics_families(size_t *ret_n);

/* ---- events ---- */

void daemon_metrics_note_lease(DaemonMetrics *d, bool renewed);
void daemon_metrics_note_fence(DaemonMetrics *d);
void daemon_metrics_note_probe_start(DaemonMetrics *d, const char *probe);
/* outcome: "answered", "failed" or "hung". */
void daemon_metrics_note_probe_end(DaemonMetrics *d, const char *probe, HealthLevel level,
                                   const char *outcome);
void daemon_metrics_note_start(DaemonMetrics *d, const Rank *rank);
void daemon_metrics_note_exit(DaemonMetrics *d, const Rank *rank, const ExitVerdict *verdict);
void daemon_metrics_note_step(DaemonMetrics *d, Rank *rank, const ChannelMessage *step);
void daemon_metrics_note_saved(DaemonMetrics *d, Rank *rank, const ChannelMessage *saved);
void daemon_metrics_note_commit(DaemonMetrics *d, const char *job, bool committed);
void daemon_metrics_forget_job(DaemonMetrics *d, const char *job);

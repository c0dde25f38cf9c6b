/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - the metrics of sdcontroller: of itself and its requests and, while it leads, of jobs, nodes and
 * incidents.
 *
 * Every controller, a follower too, makes counters of incidents and histograms of recoveries from the records, so that
 * a new leader has them. Decisions, worlds and watch lag, which only a leader sees, count since the start.
 *
 * Ownership: controller_metrics_new() gives the caller a ControllerMetrics. NULL is accepted
 *            everywhere: metrics are off.
 * Units:     *_usec microseconds of one clock.
 * Errors:    -errno with the address in the text.
 */
#pragma once

#include "controller/alerting/sender.h"
#include "controller/config/config.h"
#include "controller/leader/leader.h"
#include "metrics/metrics.h"

#include <systemd/sd-event.h>

typedef struct ControllerMetrics ControllerMetrics;

typedef struct ControllerView {
    LeaderView leader;
    const Sender *sender;
} ControllerView;

typedef ControllerView (*ControllerLook)(void *userdata);

/* Sets *ret to NULL when config->metrics is empty. */
int controller_metrics_new(sd_event *event, const ControllerConfig *config, ControllerLook look,
                           void *userdata, ControllerMetrics **ret, Error *err);
ControllerMetrics *controller_metrics_free(ControllerMetrics *metrics);
DEFINE_CLEANUP(ControllerMetrics, controller_metrics_free)

/* For the documents: returns the families that docs/reference/metrics.md shows. */
const MetricFamily *controller_metrics_families(size_t *ret_n);
/* Writes the ADDRESS:PORT of the pages, with `name` in place of an address that stands for every interface; "":
 * metrics are off. */
void controller_metrics_page(const ControllerMetrics *metrics, const char *name, char *ret,
                             size_t n);
/* Makes the client of etcd report its requests to the metrics; the client must be freed before the metrics. */
void controller_metrics_observe(ControllerMetrics *metrics, Etcd *etcd);
/* Notes a record's event, before the core receives it. */
void controller_metrics_note_event(ControllerMetrics *metrics, const Cluster *cluster,
                                   const Event *event);
/* Notes a record evals/<rest> for the live page; value NULL: it is gone. */
void controller_metrics_note_results(ControllerMetrics *metrics, const char *rest,
                                     const char *value, size_t n);
void controller_metrics_note_leading(ControllerMetrics *metrics);
/* Notes the outcome of a decision. revision: the revision of the transaction, if the outcome is
 * OUTCOME_DONE. */
void controller_metrics_note_outcome(ControllerMetrics *metrics, const Decision *decision,
                                     Outcome outcome, uint64_t begun_usec, int64_t revision);
/* Notes that the watch has shown everything up to this revision. */
void controller_metrics_note_shown(ControllerMetrics *metrics, int64_t revision);

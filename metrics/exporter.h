/* SPDX-License-Identifier: Apache-2.0 */
/* exporter.h - /metrics and /healthz of both daemons, with the metrics that every program has
 * (build, process, its loop's lateness, its requests to etcd).
 *
 * Ownership: exporter_new() gives the caller an Exporter, which borrows the loop, the program's
 *            tables and userdata. NULL is accepted everywhere: metrics are off.
 * Units:     microseconds in calls, seconds in metrics.
 * Errors:    -errno with the address in the text.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/error.h"
#include "metrics/http-server.h"
#include "metrics/metrics.h"

#include <systemd/sd-event.h>

enum { EXPORTER_HEALTH_BYTES = 512 };

typedef struct ExporterProgram {
    const char *name, *version;
    const MetricFamily *families;
    size_t n_families;
    /* Sets every gauge of the page; returns the bits of the groups that the page shows. */
    unsigned (*collect)(Metrics *metrics, void *userdata);
    /* Tells whether the program can do its work now; the lines of text say why, and what it does. */
    bool (*is_healthy)(char text[EXPORTER_HEALTH_BYTES], void *userdata);
    void *userdata;
    const HttpPage *pages; /* further ones, each with its userdata; borrowed */
    size_t n_pages;
} ExporterProgram;

typedef struct Exporter Exporter;

/* With an empty address *ret is NULL, and nothing is exported. */
int exporter_new(sd_event *event, const char *address, const ExporterProgram *program,
                 Exporter **ret, Error *err);
Exporter *exporter_free(Exporter *exporter);
DEFINE_CLEANUP(Exporter, exporter_free)

/* Returns the families that every program has (docs/reference/metrics.md). */
const MetricFamily *exporter_families(size_t *ret_n);
/* Returns the series of the program's own families. */
Metrics *exporter_metrics(Exporter *exporter);
/* Returns the server of the pages; NULL: metrics are off. */
HttpServer *exporter_server(Exporter *exporter);
/* Counts a request to etcd that was answered or failed with r; an EtcdObserver. */
void exporter_note_request(const char *method, int r, uint64_t took_usec, void *exporter);

/* Bounds for histograms of durations from a millisecond to minutes. */
extern const double exporter_latency_bounds[15];

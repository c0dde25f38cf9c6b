/* SPDX-License-Identifier: Apache-2.0 */
/* exporter.h - the pages /metrics and /healthz of sdtraind and sdcontroller, including the metrics that both programs
 * have (build, process, lateness of the event loop, requests to etcd).
 *
 * Ownership: exporter_new() gives the caller an Exporter, which borrows the loop, the program's tables and userdata.
 *            All functions accept a NULL Exporter, which means that metrics are off.
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
    /* Sets all gauges for the page; returns the bits of the metric groups that the page shows. */
    unsigned (*collect)(Metrics *metrics, void *userdata);
    /* Tells whether the program can do its work now. Writes the reason and what the program does into text. */
    bool (*is_healthy)(char text[EXPORTER_HEALTH_BYTES], void *userdata);
    void *userdata;
    const HttpPage *pages; /* more pages, each with its userdata; borrowed */
    size_t n_pages;
} ExporterProgram;

typedef struct Exporter Exporter;

/* Starts the server. With an empty address *ret is NULL, and metrics are off. */
int exporter_new(sd_event *event, const char *address, const ExporterProgram *program,
                 Exporter **ret, Error *err);
Exporter *exporter_free(Exporter *exporter);
DEFINE_CLEANUP(Exporter, exporter_free)

/* For the documents: returns the families that both programs have (docs/reference/metrics.md). */
const MetricFamily *exporter_families(size_t *ret_n);
/* Returns the series of the program's own families. */
Metrics *exporter_metrics(Exporter *exporter);
/* Returns the HTTP server of the pages, or NULL if metrics are off. */
HttpServer *exporter_server(Exporter *exporter);
/* Counts a request to etcd that ended with result r. The function is an EtcdObserver. */
void exporter_note_request(const char *method, int r, uint64_t took_usec, void *exporter);

/* Bounds for histograms of durations from a millisecond to minutes. */
extern const double exporter_latency_bounds[15];

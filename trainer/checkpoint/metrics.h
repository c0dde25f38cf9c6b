/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - merges, finds and keeps the objects that hold a history's metrics.
 *
 * Each save adds one segment, and a manifest lists all segments of its history. To keep the list short, METRICS_FAN_IN
 * neighbours of one level become one object of the next level: a million saves make a list of some tens. Objects are
 * never overwritten. The parts of a merged object stay as long as any manifest lists them.
 *
 * Units: steps, bytes. Threads: the writer's.
 * Ownership: as each function says.
 * Errors:    -ENOENT and -EBADMSG: a segment is lost, its steps are a gap, and the job continues. Other errors do not
 *            show whether a segment is lost.
 */
#pragma once

#include "trainer/checkpoint/list.h"

/* Finds the first METRICS_FAN_IN neighbours that should be merged; false: there are none. */
bool metrics_find_merge(const MetricsSegment *segments, size_t n, size_t *ret_first);
/* Reads METRICS_FAN_IN parts and joins them. *ret has no key and no checksums yet; the caller frees
 * *ret_text, of ret->n_bytes. */
int metrics_merge(Store *store, const MetricsSegment *parts, MetricsSegment *ret, char **ret_text,
                  Error *err);
/* Reads a segment's text, of exactly s->n_bytes, and verifies its hash. */
int metrics_read_segment(Store *store, const MetricsSegment *s, char *to, Error *err);
/* Returns whether this error means that the segment is lost. */
bool metrics_is_lost(int r);
/* Adds n_steps of the segment to the gap: steps that have no line. */
void metrics_add_gap(MetricsGap *gap, const MetricsSegment *s, int64_t n_steps);
/* Computes the gap: the steps of listed objects that are missing or have another size, and lines that were lost before
 * a merge. */
int metrics_look(Store *store, const Manifest *manifest, MetricsGap *ret, Error *err);

/* Segments that the store has refused, and that wait until the store accepts them. Together they have at most
 * 64 MiB: beyond this limit the oldest segments are dropped. */
typedef struct MetricsMissed MetricsMissed;
MetricsMissed *metrics_missed_new(void);
MetricsMissed *metrics_missed_free(MetricsMissed *missed);
/* Adds a segment. Copies the text. */
void metrics_missed_add(MetricsMissed *missed, const MetricsSegment *segment, const char *text);
/* Returns how many of the steps that the newest commit lists are in segments that still wait. */
int64_t metrics_missed_steps(const MetricsMissed *missed, const Manifest *latest);
/* Puts the segments that the newest commit lists, and drops the other segments. After an error some segments still
 * wait. */
int metrics_missed_put(MetricsMissed *missed, Store *store, const Manifest *latest, Error *err);

/* Remembers which segments the older manifests of a store list, so that each manifest is read once. */
int metrics_kept_new(MetricsKept **ret);
MetricsKept *metrics_kept_free(MetricsKept *kept);
DEFINE_CLEANUP(MetricsKept, metrics_kept_free)
/* Finds the segments that no needed manifest lists: neither `latest`, nor the manifest of any folder whose entry in
 * `keep` is true. Returns the number of these segments; `keys`, which has room for all objects, gets their keys, which
 * stay in the catalogue. If a needed manifest cannot be read, leaves out every segment that it may list. */
size_t metrics_unlisted(MetricsKept *kept, Store *store, const Catalogue *catalogue,
                        const Manifest *latest, const bool *keep, const char **keys);

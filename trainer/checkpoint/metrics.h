/* metrics.h - the objects that hold a history's metrics: merged as they grow in number, kept
 * as long as a manifest that stays lists them, looked for, and joined into one at the end.
 *
 * A save adds one segment. METRICS_FAN_IN neighbours of one level become one object of the next, so a
 * million saves make a list of some tens. Objects are never overwritten: manifests that list the parts
 * keep them until they go themselves.
 *
 * Ownership: as each function says.
 * Units:     steps, bytes.
 * Errors:    -EHOSTUNREACH and -ENOMEM say nothing about a segment; with any other error it is lost: its
 *            steps are a gap, and everything goes on.
 * Threads:   the writer's.
 */
#pragma once

#include "trainer/checkpoint/list.h"

/* The first METRICS_FAN_IN neighbours that should become one, by their index; false: there are none. */
bool metrics_find_merge(const MetricsSegment *segments, size_t n, size_t *ret_first);
/* Reads them. *ret has no key and no checksums yet; the caller frees *ret_text, of ret->n_bytes. */
int metrics_merge(Store *store, const MetricsSegment *parts, MetricsSegment *ret, char **ret_text,
                  Error *err);
/* Exactly s->n_bytes that have its hash. */
int metrics_read_segment(Store *store, const MetricsSegment *s, char *to, Error *err);
bool metrics_is_lost(int r);
/* n_steps of the segment's have no line. */
void metrics_add_gap(MetricsGap *gap, const MetricsSegment *s, int64_t n_steps);
/* Listed objects that are missing or of another size, and lines that were lost before. */
int metrics_look(Store *store, const Manifest *manifest, MetricsGap *ret, Error *err);

/* Which segments the manifests of one store list that are not the latest one: read once. */
int metrics_kept_new(MetricsKept **ret);
MetricsKept *metrics_kept_free(MetricsKept *kept);
DEFINE_CLEANUP(MetricsKept, metrics_kept_free)
/* The keys of segments that neither latest nor a kept folder's manifest lists; keep[catalogue->n_folders].
 * keys has room for all objects and gets pointers into the catalogue. A kept manifest that cannot be read
 * keeps every segment that it may list. */
size_t metrics_unlisted(MetricsKept *kept, Store *store, const Catalogue *catalogue,
                        const Manifest *latest, const bool *keep, const char **keys);

/* SPDX-License-Identifier: Apache-2.0 */
/* health-record.h - keeps health/<node> in etcd up to date: the last answer of each probe, for operators.
 *
 * Ownership: none; Probes.post holds the write under way.
 * Units:     none.
 * Errors:    logged; the next change writes the record again.
 */
#pragma once

#include <stdbool.h>

typedef struct Probes Probes;

/* Writes the record if anything except its times has changed, or if it was last written 300 s ago. With fresh, writes
 * the record in any case. */
void health_record_update(Probes *p, bool fresh);

/* SPDX-License-Identifier: Apache-2.0 */
/* health-record.h - keeps health/<node> up to date: what each probe said last, for people.
 *
 * Ownership: none; a call under way is Probes.post.
 * Units:     none.
 * Errors:    logged; the next change tries again.
 * Threads:   loop thread only.
 */
#pragma once

#include <stdbool.h>

typedef struct Probes Probes;

/* Puts the record if it has changed in anything but its ages, or was put 300 s ago. fresh: in any case. */
void health_record_update(Probes *p, bool fresh);

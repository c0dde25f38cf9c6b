/* health-record.h - health/<node>: what each probe said last, for people.
 *
 * Ownership: none; a call under way is Probes.post.
 * Units:     none.
 * Errors:    logged; the next change tries again.
 * Threads:   loop thread only.
 */
#pragma once

#include <stdbool.h>

typedef struct Probes Probes;

/* Puts the record when something but the ages has changed, when the ages are old, or when somebody
 * waits for fresh ones. */
void health_record_update(Probes *p, bool fresh);

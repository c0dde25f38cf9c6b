/* SPDX-License-Identifier: Apache-2.0 */
/* cordon.h - the causes that keep a node out of worlds: functions that find, set and drop a cause, and tell which
 * causes apply.
 *
 * The core and the programs share this file, so it does no I/O, allocates nothing and calls no C library.
 *
 * Ownership: records are the caller's; returned pointers point into a record and are valid until the record is changed.
 * Units:     *_usec is CLOCK_REALTIME microseconds, as in the record.
 * Errors:    -1 or NULL: no such cause.
 */
#pragma once

#include "cluster/records.h"

static inline bool cordon_text_equal(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* Tells whether the cause is about this machine. If either machine id is empty (unknown), the answer is yes. */
static inline bool cause_is_of(const CordonCause *cause, const char *machine_id)
{
    return !cause->machine_id[0] || !machine_id[0] ||
           cordon_text_equal(cause->machine_id, machine_id);
}

/* Tells whether the cause keeps the machine from running this job, or with job NULL from running any job. An expired
 * quarantine still applies until a check of the node ends it. */
static inline bool cause_applies(const CordonCause *cause, const char *machine_id, const char *job,
                                 uint64_t real_usec)
{
    if (cause->mode == CORDON_NONE || !cause_is_of(cause, machine_id))
        return false;
    if (cause->mode != CORDON_QUARANTINE && cause->until_usec && cause->until_usec <= real_usec)
        return false;
    return cause->owner != CORDON_JOB || (job && cordon_text_equal(cause->job, job));
}

/* Returns the strongest cause that applies, in the order of CordonMode, or NULL when none applies. */
static inline const CordonCause *cordon_strongest(const CordonRecord *record,
                                                  const char *machine_id, const char *job,
                                                  uint64_t real_usec)
{
    const CordonCause *strongest = NULL;
    for (size_t i = 0; i < record->n_causes; i++) {
        const CordonCause *cause = &record->causes[i];
        if (cause_applies(cause, machine_id, job, real_usec) &&
            (!strongest || cause->mode > strongest->mode))
            strongest = cause;
    }
    return strongest;
}

/* Returns the index of the cause with this identity (owner, job, machine), or -1. */
static inline int cordon_find(const CordonRecord *record, CordonOwner owner, const char *job,
                              const char *machine_id)
{
    for (size_t i = 0; i < record->n_causes; i++)
        if (record->causes[i].owner == owner && cordon_text_equal(record->causes[i].job, job) &&
            cordon_text_equal(record->causes[i].machine_id, machine_id))
            return (int)i;
    return -1;
}

static inline void cordon_drop(CordonRecord *record, size_t at)
{
    assert(at < record->n_causes);
    for (size_t i = at + 1; i < record->n_causes; i++)
        record->causes[i - 1] = record->causes[i];
    record->n_causes--;
    record->causes[record->n_causes] = (CordonCause){0};
}

/* Replaces the cause of the same identity, or adds a new cause. When the record is full, this first drops a cause that
 * only counts strikes. If there is none and the owner is not a job, it drops a cause owned by a job, which the leader
 * sets again if necessary. Returns the index, or -1 when the record is still full. */
static inline int cordon_set(CordonRecord *record, const CordonCause *cause)
{
    int at = cordon_find(record, cause->owner, cause->job, cause->machine_id);
    for (int jobs = 0; at < 0 && jobs <= (cause->owner != CORDON_JOB); jobs++)
        for (size_t i = 0; record->n_causes == RECORD_CAUSES_MAX && i < RECORD_CAUSES_MAX; i++)
            if (record->causes[i].mode == CORDON_NONE ||
                (jobs && record->causes[i].owner == CORDON_JOB)) {
                cordon_drop(record, i);
                break;
            }
    if (at < 0 && record->n_causes == RECORD_CAUSES_MAX)
        return -1;
    if (at < 0)
        at = (int)record->n_causes++;
    record->causes[at] = *cause;
    return at;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cordon.h - the causes that hold a node back: which apply, and each owner's change of its own.
 *
 * For the core as for programs: no I/O, no memory, nothing of the C library.
 *
 * Ownership: the caller's records; returned pointers lie in them, until the next change.
 * Units:     *_usec is realtime, as in the record.
 * Errors:    none; -1 or NULL where there is none.
 * Threads:   any.
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

/* The machine that the cause is about, or one of which nothing is known. */
static inline bool cause_is_of(const CordonCause *cause, const char *machine_id)
{
    return !cause->machine_id[0] || !machine_id[0] ||
           cordon_text_equal(cause->machine_id, machine_id);
}

/* job NULL: for all jobs. A quarantine whose time is over holds until a check ends it. */
static inline bool cause_applies(const CordonCause *cause, const char *machine_id, const char *job,
                                 uint64_t real_usec)
{
    if (cause->mode == CORDON_NONE || !cause_is_of(cause, machine_id))
        return false;
    if (cause->mode != CORDON_QUARANTINE && cause->until_usec && cause->until_usec <= real_usec)
        return false;
    return cause->owner != CORDON_JOB || (job && cordon_text_equal(cause->job, job));
}

/* What holds that machine back most, for that job or for all; NULL: nothing. */
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

/* In place of the one with its identity, or beside the others. Where there is no room, strikes make it,
 * or a job's refusal, which comes again if it must. -1: there is none. */
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

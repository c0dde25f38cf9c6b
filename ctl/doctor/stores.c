/* SPDX-License-Identifier: Apache-2.0 */
/* stores.c - finds the stores that jobs name, and tests whether this machine can use them. */
#include "base/clock.h"
#include "ctl/doctor/checks.h"

#include <string.h>

enum { WORDS_MAX = 300 }; /* characters of an error's text, without the URI */

static const char store_check[] = "stores";

static void add(Stores *s, const char *uri, StoreTryKind kind)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->tries[i].kind == kind && strcmp(s->tries[i].uri, uri) == 0)
            return;
    if (s->n == ELEMENTSOF(s->tries) || strlen(uri) >= sizeof(s->tries[0].uri)) {
        s->n_left_out++;
        return;
    }
    StoreTry *t = &s->tries[s->n++];
    *t = (StoreTry){.kind = kind};
    (void)snprintf(t->uri, sizeof(t->uri), "%s", uri);
    s->has_files = s->has_files || (kind != STORE_TRY_WRITE && strncmp(uri, "s3://", 5) != 0);
}

static void add_data(Stores *s, const Job *job)
{
    for (size_t i = 0; i < job->data.n_streams; i++)
        add(s, job->data.streams[i].uri, STORE_TRY_READ);
}

void stores_collect(const Model *m, const Job *given, Stores *ret)
{
    *ret = (Stores){0};
    if (given) {
        add(ret, given->checkpoint.uri, STORE_TRY_MARK);
        if (given->data.cache_dir)
            add(ret, given->data.cache_dir, STORE_TRY_WRITE);
        if (given->checkpoint.local_dir)
            add(ret, given->checkpoint.local_dir, STORE_TRY_WRITE);
        add_data(ret, given);
        return;
    }
    for (int round = 0; round < 2; round++) /* 0: stores of checkpoints; 1: stores of data */
        for (size_t i = 0; i < m->n_jobs; i++) {
            _cleanup_(job_freep) Job *job = NULL;
            Error ignored = ERROR_INIT;
            const ModelJob *one = &m->jobs[i];
            if (!one->has_spec ||
                job_parse(one->name, one->spec.spec, strlen(one->spec.spec), &job, &ignored) < 0)
                continue;
            if (round == 0)
                add(ret, job->checkpoint.uri, STORE_TRY_MARK);
            else
                add_data(ret, job);
        }
}

static void judge(const StoreTry *t, Findings *f)
{
    const bool only_here = t->may_read;
    char words[WORDS_MAX + 1];
    const bool named = strstr(store_try_words(t, WORDS_MAX, words), t->uri) != NULL;
    if (t->is_missing)
        findings_add(f, FINDING_NOTE, store_check, "here", NULL,
                     "%s: is not there yet; the first save makes it", t->uri);
    else if (t->r == 0)
        findings_add(f, FINDING_OK, store_check, "here", NULL, "%s: %s", t->uri,
                     t->kind == STORE_TRY_READ ? "a dataset that can be read"
                                               : "can be written and read");
    else
        findings_add(
            f, only_here ? FINDING_NOTE : FINDING_WRONG, store_check, "here",
            only_here ? "nodes write there; sdctl itself only needs to read"
            : strncmp(t->uri, "s3://", 5) == 0
                ? "AWS_ENDPOINT_URL, AWS_REGION and AWS_PROFILE of this shell say where and "
                  "as whom"
                : "is it mounted here, and whose is it?",
            "%s%s%s", named ? "" : t->uri, named ? "" : ": ", words);
}

/* Tests all stores except folders on each node's own disk. */
static void try_here(Stores *s)
{
    StoreTry here[RECORD_URIS_MAX];
    size_t n = 0, k = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->tries[i].kind != STORE_TRY_WRITE)
            here[n++] = s->tries[i];
    store_try_all(here, n, STORE_TRY_SEC * USEC_PER_SEC);
    for (size_t i = 0; i < s->n; i++)
        if (s->tries[i].kind != STORE_TRY_WRITE)
            s->tries[i] = here[k++];
}

void check_stores(Stores *s, Findings *f)
{
    store_try_begin();
    for (size_t i = 0; i < s->n; i++)
        if (s->tries[i].kind == STORE_TRY_MARK)
            (void)snprintf(s->tries[i].marker, sizeof(s->tries[i].marker),
                           ".sdtrain-doctor-%llx-%x", (unsigned long long)clock_realtime_usec(),
                           (unsigned)getpid());
    try_here(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->tries[i].kind == STORE_TRY_WRITE)
            continue;
        judge(&s->tries[i], f);
        if (s->tries[i].r < 0)
            s->tries[i].marker[0] = '\0'; /* so that nodes do not look for the marker */
    }
    if (s->n == 0)
        findings_add(f, FINDING_NOTE, store_check, NULL,
                     "sdctl doctor -f JOB.json tries those of a job file",
                     "no job names one, so none was tried");
    if (s->n_left_out > 0)
        findings_add(f, FINDING_NOTE, store_check, NULL,
                     "sdctl doctor -f JOB.json tries those of a job file",
                     "%zu more were not tried", s->n_left_out);
}

void stores_clear(Stores *s)
{
    StoreTry tries[RECORD_URIS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->tries[i].kind != STORE_TRY_MARK || !*s->tries[i].marker)
            continue;
        tries[n] = s->tries[i];
        tries[n++].kind = STORE_TRY_UNMARK;
    }
    /* If a marker remains, its name shows that sdctl doctor made it. */
    store_try_all(tries, n, STORE_TRY_SEC * USEC_PER_SEC);
}

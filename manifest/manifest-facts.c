/* SPDX-License-Identifier: Apache-2.0 */
/* manifest-facts.c - describes how the job, the data and the numerics of a checkpoint differ from
 * those of another job. If the manifest has the terms, the text names the differing keys; if an
 * older version wrote the manifest, the text has the hashes. */
#include "manifest/manifest-internal.h"

#include "base/json/json-diff.h"

#include <string.h>

size_t facts_diff_job(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                      size_t size)
{
    return job_terms_diff(was->job_terms, is->job_terms, text, size);
}

/* Returns the terms of the data as a flat object, without the hashes: a hash differs whenever any
 * other term differs. */
static json_t *counts_of(const char *terms)
{
    _cleanup_json_ json_t *json = json_loads(terms, 0, NULL);
    json_t *flat = json_flat(json), *value;
    const char *key;
    void *next;
    json_object_foreach_safe (flat, next, key, value)
        if (json_is_string(value))
            (void)json_object_del(flat, key); /* cannot fail: the key is in the object */
    return flat;
}

size_t facts_diff_dataset(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                          size_t size)
{
    *text = '\0';
    if (!*was->dataset_terms || !*is->dataset_terms)
        return 0;
    _cleanup_json_ json_t *a = counts_of(was->dataset_terms), *b = counts_of(is->dataset_terms);
    size_t n = json_diff_format(a, b, text, size);
    return n > 0 ? n : json_diff_texts(was->dataset_terms, is->dataset_terms, text, size);
}

size_t facts_diff_numerics(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                           size_t size)
{
    return json_diff_texts(was->numerics, is->numerics, text, size);
}

typedef size_t (*FactsDiff)(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                            size_t size);

static int check_hash(const Manifest *m, const char *what, Hash theirs, Hash ours,
                      const CheckpointFacts *facts, FactsDiff diff, Error *err)
{
    char folder[CHECKPOINT_FOLDER_MAX], differences[200];
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    if (hash_equal(theirs, ours))
        return 0;
    checkpoint_name_format(&m->name, folder);
    if (diff(&m->facts, facts, differences, sizeof(differences)) > 0)
        return error_set(err, -EBADMSG, "checkpoint %s of job %s: its %s is another one: %s",
                         folder, m->facts.job, what, differences);
    return error_set(err, -EBADMSG,
                     "checkpoint %s of job %s: its %s is %s, this job's is %s; only the hashes "
                     "are known of it",
                     folder, m->facts.job, what, hash_format(theirs, a), hash_format(ours, b));
}

static int check_number(const Manifest *m, const char *what, int64_t theirs, int64_t ours,
                        Error *err)
{
    char folder[CHECKPOINT_FOLDER_MAX];
    checkpoint_name_format(&m->name, folder);
    return theirs == ours
               ? 0
               : error_set(err, -EBADMSG,
                           "checkpoint %s of job %s: its %s is %lld, this job's is %lld", folder,
                           m->facts.job, what, (long long)theirs, (long long)ours);
}

int manifest_check_job(const Manifest *m, const CheckpointFacts *facts, Error *err)
{
    return check_hash(m, "job identity", m->facts.job_identity, facts->job_identity, facts,
                      facts_diff_job, err);
}

int manifest_check_facts(const Manifest *m, const CheckpointFacts *facts, Error *err)
{
    const CheckpointFacts *f = &m->facts;
    int r = manifest_check_job(m, facts, err);
    if (r == 0)
        r = check_hash(m, "dataset digest", f->dataset_digest, facts->dataset_digest, facts,
                       facts_diff_dataset, err);
    if (r == 0)
        r = check_number(m, "order algorithm", f->order_algorithm, facts->order_algorithm, err);
    return r < 0 ? r
                 : check_number(m, "reduction algorithm", f->reduction_algorithm,
                                facts->reduction_algorithm, err);
}

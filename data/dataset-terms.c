/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-terms.c - see dataset-terms.h. */
#include "data/dataset-terms.h"

#include "base/log.h"
#include "base/memory.h"
#include "data/encoder-facts.h"
#include "data/index-open.h"

#include <inttypes.h>
#include <string.h>

/* The facts of the first stream that has an encoder.json, and the URI of a stream without an encoder.json. */
typedef struct Encoders {
    size_t n;
    EncoderFacts first;
    char *first_uri; /* URI of the first encoder.json */
    char *folder;    /* URI of the dataset that has the first encoder.json */
    char *without;   /* URI of a stream without encoder.json; NULL: there is none */
} Encoders;

static void encoders_clear(Encoders *e)
{
    free(e->first_uri);
    free(e->folder);
    free(e->without);
}

/* ---- comparing the streams ---- */

static int refuse_pair(const char *key, const char *a_uri, const char *a, const char *b_uri,
                       const char *b, Error *err)
{
    return error_set(err, -EINVAL,
                     "%s: %s: %s, but %s has %s: what different encoders made cannot be trained "
                     "together",
                     b_uri, key, b, a_uri, a);
}

static int compare_hashes(const Encoders *e, const char *key, Hash a, Hash b, const char *uri,
                          Error *err)
{
    char one[HASH_TEXT_BYTES], other[HASH_TEXT_BYTES];
    return hash_equal(a, b) ? 0
                            : refuse_pair(key, e->first_uri, hash_format(a, one), uri,
                                          hash_format(b, other), err);
}

static int compare_texts(const Encoders *e, const char *key, const char *a, const char *b,
                         const char *uri, Error *err)
{
    return strcmp(a, b) == 0 ? 0 : refuse_pair(key, e->first_uri, a, uri, b, err);
}

static int compare_shapes(const Encoders *e, const DatasetShape *b, const char *uri, Error *err)
{
    const DatasetShape *a = &e->first.shape;
    char one[64], other[64];
    (void)snprintf(one, sizeof(one), "%dx%dx%d", a->channels, a->height, a->width);
    (void)snprintf(other, sizeof(other), "%dx%dx%d", b->channels, b->height, b->width);
    int r = compare_texts(e, "latents.shape", one, other, uri, err);
    if (r < 0)
        return r;
    (void)snprintf(one, sizeof(one), "%dx%d", a->text_tokens, a->text_dim);
    (void)snprintf(other, sizeof(other), "%dx%d", b->text_tokens, b->text_dim);
    return compare_texts(e, "text.shape", one, other, uri, err);
}

/* Compares all facts that change the meaning of latents and texts. Recipes and the numerics of the machines may
 * differ. */
static int compare(const Encoders *e, const EncoderFacts *facts, const char *uri, Error *err)
{
    const EncoderFacts *first = &e->first;
    char one[32], other[32];
    (void)snprintf(one, sizeof(one), "%.17g", first->scaling_factor);
    (void)snprintf(other, sizeof(other), "%.17g", facts->scaling_factor);
    int r = compare_texts(e, "scaling_factor", one, other, uri, err);
    if (r == 0)
        r = compare_hashes(e, "weights", first->weights, facts->weights, uri, err);
    if (r == 0)
        r = compare_hashes(e, "merges", first->merges, facts->merges, uri, err);
    if (r == 0)
        r = compare_texts(e, "latents.column", first->latents, facts->latents, uri, err);
    if (r == 0)
        r = compare_texts(e, "text.column", first->text, facts->text, uri, err);
    return r < 0 ? r : compare_shapes(e, &facts->shape, uri, err);
}

/* Reports that encoder.json is missing, or, if the whole dataset is missing (a store not mounted, a folder moved), that
 * the dataset is missing. */
static int refuse_gone(Store *store, const char *uri, Error *err)
{
    uint64_t n_bytes;
    int r = index_head(store, &n_bytes, err);
    return r < 0 ? r : error_set(err, -EBADMSG, "%s is gone since the job was submitted", uri);
}

/* Returns 1 if the stream has an encoder.json. */
static int read_stream(Encoders *e, const char *stream, const Hash *submitted, Hash *ret,
                       NotedHash *ret_index, Error *err)
{
    EncoderFacts facts;
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(stream, &store, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *uri = memory_format("%s/" ENCODER_FACTS_NAME, store_uri(store));
    r = encoder_facts_read(store, &facts, err);
    if (r == 0 && submitted)
        return refuse_gone(store, uri, err);
    if (r == 0 && !e->without)
        e->without = memory_text(store_uri(store));
    if (r <= 0)
        return r;
    const NotedHash noted = {submitted ? *submitted : facts.hash, DATASET_SUBMITTED};
    r = index_check_source(uri, facts.hash, &noted, err);
    if (r == 0 && e->n > 0)
        r = compare(e, &facts, uri, err);
    if (r < 0)
        return r;
    if (e->n++ == 0) {
        e->first = facts;
        e->first_uri = TAKE_PTR(uri);
        e->folder = memory_text(store_uri(store));
    }
    *ret = facts.hash;
    *ret_index = facts.index;
    return 1;
}

static int read_streams(const Job *job, const DatasetSources *submitted, Encoders *e,
                        DatasetSources *sources, NotedHash *index, Error *err)
{
    for (size_t i = 0; i < job->data.n_streams; i++) {
        const bool noted = submitted && submitted->has_encoder[i];
        int r = read_stream(e, job->data.streams[i].uri, noted ? &submitted->encoder[i] : NULL,
                            &sources->encoder[i], &index[i], err);
        if (r < 0)
            return error_prefix(err, r, "data.streams[%zu].uri", i);
        sources->has_encoder[i] = r > 0;
    }
    if (e->n > 0 && e->without)
        log_warning("%s has no " ENCODER_FACTS_NAME ": nobody knows whether it was made by the "
                    "encoders of %s",
                    e->without, e->folder);
    return 0;
}

/* ---- the job file and encoder.json ---- */

static int contradicts(const char *key, const char *given, const Encoders *e, const char *other,
                       const char *is, Error *err)
{
    return error_set(err, -EINVAL, "data.%s: %s contradicts %s: %s: %s; leave data.%s out", key,
                     given, e->first_uri, other, is, key);
}

static int check_file(const Job *job, const Encoders *e, Error *err)
{
    char given[32], factor[64];
    if (job->data.names_latents && strcmp(job->data.latents, e->first.latents) != 0)
        return contradicts("latents", job->data.latents, e, "latents.column", e->first.latents,
                           err);
    if (job->data.names_text && strcmp(job->data.text, e->first.text) != 0)
        return contradicts("text", job->data.text, e, "text.column", e->first.text, err);
    if (job->data.latent_scale == 1.0)
        return 0;
    (void)snprintf(given, sizeof(given), "%g", job->data.latent_scale);
    (void)snprintf(factor, sizeof(factor), "latents are multiplied by %g", e->first.scaling_factor);
    return contradicts("latent_scale", given, e, "scaling_factor", factor, err);
}

/* Reports that neither the job file nor a stream names the empty caption's embedding, or that a dataset is missing
 * altogether. */
static int refuse_empty(const Job *job, Error *err)
{
    for (size_t i = 0; i < job->data.n_streams; i++) {
        _cleanup_(store_freep) Store *store = NULL;
        uint64_t n_bytes;
        int r = store_open(job->data.streams[i].uri, &store, err);
        if (r == 0)
            r = index_head(store, &n_bytes, err);
        if (r < 0)
            return error_prefix(err, r, "data.streams[%zu].uri", i);
    }
    return error_set(err, -EINVAL,
                     "data.empty_text: missing; train.caption_drop %g needs it, and no stream has "
                     "an " ENCODER_FACTS_NAME
                     " that names it: name the .npy with the embedding of the empty caption, or "
                     "set train.caption_drop to 0",
                     job->train.caption_drop);
}

int dataset_terms_read(const Job *job, const DatasetSources *submitted, DatasetTerms *ret,
                       DatasetSources *sources, Error *err)
{
    _cleanup_(encoders_clear) Encoders e = {0};
    DatasetSources found = {0};
    *ret = (DatasetTerms){0};
    int r = read_streams(job, submitted, &e, &found, ret->index, err);
    if (r == 0 && e.n > 0)
        r = check_file(job, &e, err);
    const bool drops = job->train.caption_drop > 0;
    if (r == 0 && drops && !job->data.empty_text_uri && e.n == 0)
        r = refuse_empty(job, err);
    if (r < 0)
        return r;
    ret->latents = memory_text(e.n > 0 ? e.first.latents : job->data.latents);
    ret->text = memory_text(e.n > 0 ? e.first.text : job->data.text);
    if (job->data.empty_text_uri)
        ret->empty_text_uri = memory_text(job->data.empty_text_uri);
    else if (drops)
        ret->empty_text_uri = memory_format("%s/%s", e.folder, e.first.empty_text);
    if (!job->data.empty_text_uri)
        ret->empty_text = e.first.empty_text_hash;
    ret->encoder = TAKE_PTR(e.first_uri);
    ret->shape = e.first.shape;
    const bool own = strcmp(ret->latents, job->data.latents) == 0 &&
                     strcmp(ret->text, job->data.text) == 0 && (job->data.empty_text_uri || !drops);
    if (sources && !own) {
        memcpy(sources->has_encoder, found.has_encoder, sizeof(found.has_encoder));
        memcpy(sources->encoder, found.encoder, sizeof(found.encoder));
    }
    return 0;
}

void dataset_terms_clear(DatasetTerms *terms)
{
    free(terms->latents);
    free(terms->text);
    free(terms->empty_text_uri);
    free(terms->encoder);
    *terms = (DatasetTerms){0};
}

/* ---- the terms and the data ---- */

static int find(const DatasetTerms *terms, const MdsSchema *schema, const char *where,
                const char *key, const char *name, bool given, size_t *ret, Error *err)
{
    Error why = ERROR_INIT;
    int r = dataset_find_column(schema, where, key, name, ret, &why);
    if (r == 0)
        return 0;
    if (given)
        return error_set(err, r, "%s", why.text);
    if (terms->encoder)
        return error_set(err, r, "%s; %s names it", why.text, terms->encoder);
    return error_set(err, r,
                     "%s; there is no " ENCODER_FACTS_NAME
                     " that would name it: write data.%s with the name of its column of %s",
                     why.text, key, strcmp(key, "text") == 0 ? "text embeddings" : "latents");
}

int dataset_terms_find(const DatasetTerms *terms, const Job *job, const MdsSchema *schema,
                       const char *where, size_t *ret_latents, size_t *ret_text, Error *err)
{
    int r = find(terms, schema, where, "latents", terms->latents, job->data.names_latents,
                 ret_latents, err);
    return r < 0 ? r
                 : find(terms, schema, where, "text", terms->text, job->data.names_text, ret_text,
                        err);
}

int dataset_terms_read_empty(const DatasetTerms *terms, const Job *job, const NotedHash *noted,
                             DatasetShape *shape, float **ret, Hash *ret_hash, Error *err)
{
    int r = dataset_read_empty_text(terms->empty_text_uri, noted ?: &terms->empty_text, shape, ret,
                                    ret_hash, err);
    return r < 0 && !job->data.empty_text_uri
               ? error_prefix(err, r, "what %s names", terms->encoder)
               : r;
}

int dataset_terms_check(const DatasetTerms *terms, const DatasetShape *found, Error *err)
{
    const DatasetShape *said = &terms->shape;
    if (!terms->encoder)
        return 0;
    if (said->channels != found->channels || said->height != found->height ||
        said->width != found->width)
        return error_set(err, -EINVAL,
                         "%s: latents.shape: %dx%dx%d, but column %s holds %dx%dx%d: it is another "
                         "dataset's",
                         terms->encoder, said->channels, said->height, said->width, terms->latents,
                         found->channels, found->height, found->width);
    if (said->text_tokens != found->text_tokens || said->text_dim != found->text_dim)
        return error_set(err, -EINVAL,
                         "%s: text.shape: %dx%d, but column %s holds %dx%d: it is another "
                         "dataset's",
                         terms->encoder, said->text_tokens, said->text_dim, terms->text,
                         found->text_tokens, found->text_dim);
    return 0;
}

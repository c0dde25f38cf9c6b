/* SPDX-License-Identifier: Apache-2.0 */
/* part.c - see part.h. */
#include "prep/encode/part.h"

#include "base/fault.h"
#include "base/memory.h"
#include "data/mds/mds-shard.h"

#include <string.h>

enum { QUEUE_BYTES_MAX = 64 << 20 };

/* A sample whose picture is being decoded, or whose pixels wait for the networks. */
typedef struct Candidate {
    int64_t index;
    char *key, *picture;
    size_t n_picture;
    int32_t *ids;
    Kept kept;
} Candidate;

struct PartMaker {
    PartOptions options;
    const Recipe *recipe;
    MdsShard *shard;
    Candidate *queue; /* a ring of pictures at the decoders, the oldest at `first` */
    size_t first, n_queue, queue_room, queue_bytes;
    Candidate *batch; /* decoded samples */
    int n_batch;
    uint8_t *pixels;
    int32_t *ids;
    uint16_t *latents, *text;
    char *open[PART_OPEN_MAX];
    size_t n_open;
    bool is_open; /* a picture of the current part killed its decoders */
};

static void candidate_clear(Candidate *c)
{
    free(c->key);
    free(c->picture);
    free(c->ids);
    kept_clear(&c->kept);
    *c = (Candidate){0};
}

PartMaker *part_maker_free(PartMaker *m)
{
    if (!m)
        return NULL;
    for (size_t i = 0; i < m->n_queue; i++)
        candidate_clear(&m->queue[(m->first + i) % m->queue_room]);
    for (int i = 0; i < m->n_batch; i++)
        candidate_clear(&m->batch[i]);
    for (size_t i = 0; i < m->n_open; i++)
        free(m->open[i]);
    free(m->queue);
    free(m->batch);
    free(m->pixels);
    free(m->ids);
    free(m->latents);
    free(m->text);
    mds_shard_free(m->shard);
    free(m);
    return NULL;
}

int part_maker_new(const PartOptions *options, PartMaker **ret, Error *err)
{
    static const char *const hashes[] = {"xxh3_64"};
    _cleanup_(part_maker_freep) PartMaker *m = memory_new(PartMaker);
    m->options = *options;
    m->recipe = options->encoding->recipe;
    size_t batch = (size_t)m->recipe->batch, side = (size_t)m->recipe->side;
    m->queue_room = (size_t)pictures_room(options->decoders) + 1;
    m->queue = memory_zeroed(m->queue_room, sizeof(*m->queue));
    m->batch = memory_zeroed(batch, sizeof(*m->batch));
    m->pixels = malloc(batch * side * side * 3);
    bool good = m->pixels;
    if (options->columns) {
        const EncoderShape *shape = &options->encoding->shape;
        m->ids = malloc(batch * (size_t)shape->n_tokens * sizeof(*m->ids));
        m->latents = malloc(batch * options->columns->n_latents * sizeof(*m->latents));
        m->text = malloc(batch * options->columns->n_text * sizeof(*m->text));
        good = good && m->ids && m->latents && m->text;
        MdsShardOptions how = {.hashes = hashes, .n_hashes = ELEMENTSOF(hashes)};
        int r = mds_shard_new(&options->columns->schema, &how, &m->shard, err);
        if (r < 0)
            return r;
    }
    if (!good)
        return error_set(err, -ENOMEM, "out of memory for a batch of %zu pictures of %zu x %zu",
                         batch, side, side);
    *ret = TAKE_PTR(m);
    return 0;
}

size_t part_maker_open(const PartMaker *m, char *const **ret)
{
    *ret = m->open;
    return m->n_open;
}

/* ---- checks without the picture ---- */

static int compare_key(const void *key, const void *named)
{
    return strcmp(key, *(char *const *)named);
}

static void reject(PartReport *report, const RawSample *s, const char *reason, const char *text)
{
    part_report_add(report, s->index, s->key, reason, text);
}

static int tokenize(PartMaker *m, const RawSample *s, int32_t **ret, PartReport *report)
{
    Encoding *e = m->options.encoding;
    if (!e->tokenizer)
        return 0;
    int32_t *ids = memory_zeroed((size_t)e->shape.n_tokens, sizeof(*ids));
    int r = tokenizer_encode(e->tokenizer, &e->scratch, s->caption ? s->caption : "", s->n_caption,
                             ids);
    *ret = ids;
    if (r == -EILSEQ)
        reject(report, s, raw_reason_name(RAW_NOT_UTF8), "the caption is not UTF-8");
    else if (r == -E2BIG)
        reject(report, s, raw_reason_name(RAW_TOO_LARGE), "the caption is too long");
    else
        return MIN(r, 0);
    return 1;
}

/* Returns 0 with everything except the picture's pixels in *ret, or 1 if the sample is left out and its row was
 * added. */
static int admit(PartMaker *m, RawSample *s, Candidate *ret, PartReport *report)
{
    char why[RAW_WHY_MAX], reason[REPORT_REASON_MAX + 1];
    const char *column = NULL;
    if (m->options.n_named > 0 && bsearch(s->key, m->options.named, m->options.n_named,
                                          sizeof(m->options.named[0]), compare_key)) {
        reject(report, s, "named", "somebody said so");
        return 1;
    }
    if (s->reason != RAW_FINE) {
        reject(report, s, raw_reason_name(s->reason), s->why);
        return 1;
    }
    const RecipeFilter *filter = columns_filter(m->recipe, s, why, sizeof(why));
    if (filter) {
        (void)snprintf(reason, sizeof(reason), "filtered:%s", filter->column);
        reject(report, s, reason, why);
        return 1;
    }
    *ret = (Candidate){.index = s->index};
    int r = kept_take(m->recipe, s, &ret->kept, &column);
    if (r == -ENODATA) {
        (void)snprintf(reason, sizeof(reason), "no-column:%s", column);
        reject(report, s, reason, "there is no whole number to keep");
        return 1;
    }
    if (r == -EFBIG) {
        (void)snprintf(why, sizeof(why), "%s: more than %zu bytes to keep", column,
                       columns_kept_max(m->recipe));
        reject(report, s, raw_reason_name(RAW_TOO_LARGE), why);
        return 1;
    }
    if (r == 0)
        r = tokenize(m, s, &ret->ids, report);
    if (r != 0) {
        candidate_clear(ret);
        return r;
    }
    ret->key = memory_text(s->key);
    ret->picture = TAKE_PTR(s->picture);
    ret->n_picture = s->n_picture;
    return 0;
}

/* ---- networks ---- */

static int add_sample(PartMaker *m, int i, Error *err)
{
    const Columns *columns = m->options.columns;
    MdsField fields[MDS_COLUMNS_MAX] = {0};
    fields[columns->latents] =
        (MdsField){m->latents + (size_t)i * columns->n_latents, 2 * columns->n_latents};
    fields[columns->text] = (MdsField){m->text + (size_t)i * columns->n_text, 2 * columns->n_text};
    for (size_t k = 0; k < m->recipe->n_keep; k++)
        fields[columns->keep[k]] = m->batch[i].kept.fields[k];
    return mds_shard_add(m->shard, fields, err);
}

static int encode_batch(PartMaker *m, Error *err)
{
    int r = 0;
    size_t n_tokens = (size_t)m->options.encoding->shape.n_tokens;
    if (m->shard && m->n_batch > 0) {
        for (int i = 0; i < m->n_batch; i++)
            memcpy(m->ids + (size_t)i * n_tokens, m->batch[i].ids, n_tokens * sizeof(*m->ids));
        r = encoder_run(m->options.encoding->encoder, m->n_batch, m->pixels, m->ids, m->latents,
                        m->text, err);
        if (r < 0)
            error_prefix(err, r, "samples %s to %s", m->batch[0].key, m->batch[m->n_batch - 1].key);
    }
    for (int i = 0; i < m->n_batch; i++) {
        if (r == 0 && m->shard)
            r = add_sample(m, i, err);
        candidate_clear(&m->batch[i]);
    }
    m->n_batch = 0;
    return r;
}

/* ---- pictures ---- */

/* Takes the result of the oldest picture from the decoders. */
static int take_picture(PartMaker *m, PartReport *report, Error *err)
{
    Candidate *c = &m->queue[m->first];
    size_t n_pixels = (size_t)m->recipe->side * (size_t)m->recipe->side * 3;
    Error why = ERROR_INIT;
    int r = pictures_take(m->options.decoders, m->pixels + (size_t)m->n_batch * n_pixels, &why);
    if (fault("encode.picture") < 0)
        r = -ENOTRECOVERABLE;
    m->first = (m->first + 1) % m->queue_room;
    m->n_queue--;
    m->queue_bytes -= c->n_picture;
    free(TAKE_PTR(c->picture));
    if (r == 0) {
        m->batch[m->n_batch++] = *c;
        *c = (Candidate){0};
        return m->n_batch == m->recipe->batch ? encode_batch(m, err) : 0;
    }
    if (r > 0)
        part_report_add(report, c->index, c->key, picture_verdict_name(r), why.text);
    if (r == -ENOTRECOVERABLE) {
        m->is_open = true;
        if (m->n_open < PART_OPEN_MAX)
            m->open[m->n_open++] = TAKE_PTR(c->key);
        r = 0;
    }
    candidate_clear(c);
    return r < 0 ? error_set(err, r, "%s", why.text) : 0;
}

static int queue_picture(PartMaker *m, Candidate *c, PartReport *report, Error *err)
{
    int r = 0;
    while (r == 0 && m->n_queue > 0 &&
           (m->n_queue + 1 == m->queue_room || m->queue_bytes + c->n_picture > QUEUE_BYTES_MAX))
        r = take_picture(m, report, err);
    while (r == 0 &&
           (r = pictures_request(m->options.decoders, c->picture, c->n_picture, err)) == -EAGAIN &&
           m->n_queue > 0)
        r = take_picture(m, report, err);
    if (r < 0) {
        candidate_clear(c);
        return r;
    }
    m->queue_bytes += c->n_picture;
    m->queue[(m->first + m->n_queue++) % m->queue_room] = *c;
    return 0;
}

/* ---- the part ---- */

/* Hashes the samples by the shard's table at its start: the number of samples, and where each begins and ends. */
static void hash_samples(const char *shard, size_t n_bytes, size_t n_samples, PartFile *file)
{
    _cleanup_free_ uint64_t *hashes = memory_zeroed(n_samples, sizeof(*hashes));
    for (size_t i = 0; i < n_samples; i++) {
        uint32_t range[2];
        memcpy(range, shard + 4 + 4 * i, sizeof(range));
        assert(range[0] <= range[1] && range[1] <= n_bytes);
        hashes[i] = hash64_bytes(shard + range[0], range[1] - range[0], 0);
    }
    file->samples = part_file_hashes(hashes, n_samples);
}

static int take_shard(PartMaker *m, PartReport *report, char **ret, size_t *ret_bytes, Error *err)
{
    size_t n_samples = mds_shard_n_samples(m->shard);
    if (n_samples == 0)
        return 0;
    int r = mds_shard_take(m->shard, ret, ret_bytes, err);
    if (r < 0)
        return r;
    uint8_t digest[CHECKSUM_BYTES_MAX];
    report->file.n_samples = (int64_t)n_samples;
    report->file.n_bytes = (int64_t)*ret_bytes;
    r = checksum_bytes("xxh3_64", *ret, *ret_bytes, digest, err);
    if (r == 0)
        hash_format_bytes(digest, 8, report->file.xxh3_64);
    if (r == 0)
        hash_samples(*ret, *ret_bytes, n_samples, &report->file);
    return r;
}

/* Discards the samples in progress of a part whose unit is set aside. */
static void drop(PartMaker *m)
{
    for (; m->n_queue > 0; m->n_queue--) {
        Error why;
        (void)pictures_take(m->options.decoders, m->pixels, &why); /* the result is not needed */
        candidate_clear(&m->queue[m->first]);
        m->first = (m->first + 1) % m->queue_room;
    }
    m->queue_bytes = 0;
    for (; m->n_batch > 0; m->n_batch--)
        candidate_clear(&m->batch[m->n_batch - 1]);
    if (m->shard && mds_shard_n_samples(m->shard) > 0) {
        _cleanup_free_ char *shard = NULL;
        size_t n_bytes;
        (void)mds_shard_take(m->shard, &shard, &n_bytes, NULL); /* the shard is not needed */
    }
}

static void log_unit(const PartMaker *m, const RawUnit *unit, const PartReport *report)
{
    if (m->options.tell)
        m->options.tell(m->options.context, unit, report);
}

int part_make(PartMaker *m, RawUnit *unit, PartReport *report, char **ret_shard, size_t *ret_bytes,
              Error *err)
{
    int r = 0;
    m->is_open = false;
    *ret_shard = NULL;
    *ret_bytes = 0;
    while (r == 0 && report->n_raw < m->recipe->shard_samples) {
        RawSample *s;
        Candidate c = {0};
        r = raw_unit_next(unit, true, &s, err);
        if (r <= 0)
            break;
        report->n_raw++;
        r = admit(m, s, &c, report);
        if (r < 0)
            return error_set(err, r, "out of memory");
        r = r > 0 ? 0 : queue_picture(m, &c, report, err);
        log_unit(m, unit, report);
    }
    while (r == 0 && m->n_queue > 0) {
        r = take_picture(m, report, err);
        log_unit(m, unit, report);
    }
    if (r == 0)
        r = encode_batch(m, err);
    if (r == -ENOMEDIUM)
        drop(m);
    if (r < 0)
        return r;
    part_report_sort(report);
    if (m->shard)
        r = take_shard(m, report, ret_shard, ret_bytes, err);
    if (r == 0 && m->is_open)
        return error_set(err, -ENOTRECOVERABLE, "a picture killed its decoder twice");
    return r;
}

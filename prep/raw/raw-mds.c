/* SPDX-License-Identifier: Apache-2.0 */
/* raw-mds.c - reads the samples of a shard of an MDS dataset, which has a column of pictures and a column of
 * captions. */
#include "base/memory.h"
#include "data/stream/fetch.h"
#include "prep/raw/raw-internal.h"
#include "prep/raw/utf8.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE_BYTES = 8 << 20 };

struct RawMds {
    const RawSet *set;
    const RawUnitInfo *info;
    Prover *prover;
    EventCount *events;
    ShardSource source;
    IndexShard shard_info;
    Shard *shard;
    uint32_t next;
    char *sample;
    size_t room;
    uint64_t sample_bytes;   /* bytes of all samples that were read */
    int image, caption, key; /* column indices; < 0: no such column */
};

static int find(const RawSet *set, const char *name)
{
    return mds_schema_find(&set->entry.schema, name, NULL);
}

int raw_mds_check(const RawSet *set, const RawOptions *options, Error *err)
{
    int r = mds_schema_find(&set->entry.schema, set->image, err);
    if (r >= 0 && set->entry.schema.columns[r].kind != MDS_BYTES)
        r = error_set(err, -EINVAL, "column %s (%s) holds no pictures", set->image,
                      set->entry.schema.columns[r].encoding);
    if (r >= 0)
        r = mds_schema_find(&set->entry.schema, set->caption, err);
    if (r >= 0 && set->entry.schema.columns[r].kind != MDS_TEXT &&
        set->entry.schema.columns[r].kind != MDS_BYTES)
        r = error_set(err, -EINVAL, "column %s (%s) holds no text", set->caption,
                      set->entry.schema.columns[r].encoding);
    for (size_t i = 0; r >= 0 && i < options->n_columns; i++) {
        r = mds_schema_find(&set->entry.schema, options->columns[i], err);
        const MdsColumn *column = r >= 0 ? &set->entry.schema.columns[r] : NULL;
        if (column && column->kind != MDS_TEXT && column->kind != MDS_SCALAR)
            r = error_set(err, -EINVAL, "column %s (%s) holds neither text nor a number",
                          column->name, column->encoding);
    }
    return r == -ENOENT ? -EINVAL : MIN(r, 0);
}

RawMds *raw_mds_free(RawMds *mds)
{
    if (!mds)
        return NULL;
    shard_free(mds->shard);
    event_count_free(mds->events);
    free(mds->sample);
    free(mds);
    return NULL;
}

int raw_mds_open(RawSet *set, size_t unit, Prover *prover, RawMds **ret, Error *err)
{
    _cleanup_(raw_mds_freep) RawMds *mds = memory_new(RawMds);
    const RawUnitInfo *info = &set->units[unit];
    const MdsEntry *entry = &set->entry;
    mds->set = set;
    mds->info = info;
    mds->prover = prover;
    mds->image = find(set, set->image);
    mds->caption = find(set, set->caption);
    mds->key = find(set, "key");
    int r = event_count_new(&mds->events);
    if (r < 0)
        return error_errno(err, r, "cannot read %s", info->name);
    mds->source = (ShardSource){.store = set->store,
                                .compression = entry->compression,
                                .n_hashes = entry->n_hashes,
                                .events = mds->events,
                                .piece_bytes = PIECE_BYTES};
    mds->shard_info = (IndexShard){.n_samples = info->shard->n_samples,
                                   .raw_bytes = info->shard->raw.n_bytes,
                                   .zip_bytes = *entry->compression ? info->shard->zip.n_bytes : 0,
                                   .raw_name = info->shard->raw.basename,
                                   .zip_name = info->shard->zip.basename};
    for (size_t i = 0; i < entry->n_hashes; i++) {
        mds->source.hashes[i] = entry->hashes[i];
        mds->shard_info.raw_hashes[i] = info->shard->raw.hashes[i];
        mds->shard_info.zip_hashes[i] = info->shard->zip.hashes[i];
    }
    bool in_place = shard_source_local(&mds->source) && !*entry->compression;
    do
        r = in_place ? shard_open_in_place(&mds->source, &mds->shard_info, true, &mds->shard, err)
                     : shard_fetch(&mds->source, unit, &mds->shard_info, &mds->shard, err);
    while (store_wait(&set->wait, set->store, info->name, r, err));
    if (r < 0)
        return r;
    *ret = TAKE_PTR(mds);
    return 0;
}

RawCounts raw_mds_counts(const RawMds *mds)
{
    return (RawCounts){.n_members = mds->next,
                       .member_bytes = mds->sample_bytes,
                       .frame_bytes = mds->info->n_bytes - mds->sample_bytes};
}

double raw_mds_done(const RawMds *mds)
{
    uint64_t n = mds->info->shard->n_samples;
    return n > 0 ? (double)mds->next / (double)n : 1;
}

static int copy_bytes(MdsField field, char **ret, size_t *ret_bytes)
{
    char *copy = malloc(field.n_bytes + 1);
    if (!copy)
        return -ENOMEM;
    if (field.n_bytes > 0)
        memcpy(copy, field.data, field.n_bytes);
    copy[field.n_bytes] = '\0';
    *ret = copy;
    *ret_bytes = field.n_bytes;
    return 0;
}

/* Returns a number or a text as the JSON value that a .json would hold; NULL: the field is neither, or JSON cannot
 * express it. */
static json_t *field_value(const MdsColumn *column, MdsField field)
{
    int64_t whole;
    double number;
    if (column->kind == MDS_TEXT)
        return json_stringn(field.data, field.n_bytes);
    if (column->kind != MDS_SCALAR)
        return NULL;
    if (!mds_is_float(column->number) && mds_integer_decode(column, field, &whole, NULL) == 0)
        return json_integer(whole);
    return mds_double_decode(column, field, &number, NULL) == 0 ? json_real(number) : NULL;
}

static int take_fields(const RawMds *mds, const MdsField *fields, RawSample *ret)
{
    ret->fields = json_object();
    const MdsSchema *schema = &mds->set->entry.schema;
    for (size_t i = 0; ret->fields && i < schema->n_columns; i++) {
        json_t *value = (int)i == mds->image ? NULL : field_value(&schema->columns[i], fields[i]);
        if (value && json_object_set_new(ret->fields, schema->columns[i].name, value) < 0)
            return -ENOMEM;
    }
    return ret->fields ? 0 : -ENOMEM;
}

static int take_key(const RawMds *mds, const MdsField *fields, uint32_t number, RawSample *ret)
{
    char text[MDS_BASENAME_MAX + 32];
    const MdsColumn *column = mds->key >= 0 ? &mds->set->entry.schema.columns[mds->key] : NULL;
    MdsField field = column ? fields[mds->key] : (MdsField){0};
    int64_t whole;
    if (column && column->kind == MDS_SCALAR &&
        mds_integer_decode(column, field, &whole, NULL) == 0)
        field = (MdsField){text, (size_t)snprintf(text, sizeof(text), "%" PRId64, whole)};
    else if (!column || column->kind != MDS_TEXT || field.n_bytes == 0)
        field = (MdsField){text, (size_t)snprintf(text, sizeof(text), "%s[%u]",
                                                  mds->info->shard->raw.basename, number)};
    ret->key = utf8_make(field.data, field.n_bytes);
    return ret->key ? 0 : -ENOMEM;
}

int raw_mds_next(RawMds *mds, bool whole, RawSample *ret, Error *err)
{
    uint32_t range[2], number = mds->next;
    MdsField fields[MDS_COLUMNS_MAX];
    if (number == mds->info->shard->n_samples)
        return 0;
    int r = shard_read(mds->shard, number, range, &mds->sample, &mds->room, err);
    if (r == 0)
        r = mds_sample_split(&mds->set->entry.schema, mds->sample, range[1] - range[0], fields,
                             err);
    if (r < 0)
        return error_prefix(err, r, "%s[%u]", mds->info->name, number);
    prover_member(mds->prover, "", range[0], range[1] - range[0]);
    prover_bytes(mds->prover, mds->sample, range[1] - range[0]);
    mds->sample_bytes += range[1] - range[0];
    mds->next++;
    r = take_key(mds, fields, number, ret);
    if (r == 0 && whole) {
        if (fields[mds->image].n_bytes > RAW_PICTURE_MAX ||
            fields[mds->caption].n_bytes > RAW_TEXT_MAX)
            raw_sample_reject(ret, RAW_TOO_LARGE, "a picture or caption beyond %d or %d bytes",
                              RAW_PICTURE_MAX, RAW_TEXT_MAX);
        else if ((r = copy_bytes(fields[mds->image], &ret->picture, &ret->n_picture)) == 0)
            r = copy_bytes(fields[mds->caption], &ret->caption, &ret->n_caption);
        if (r == 0 && mds->set->options.fields)
            r = take_fields(mds, fields, ret);
        if (r == 0)
            raw_sample_check(ret, mds->set->options.keep_missing);
    }
    return r < 0 ? error_set(err, r, "out of memory reading %s", mds->info->name) : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* raw-set.c - see raw-set.h. */
#include "prep/raw/raw-internal.h"

#include "base/memory.h"

#include <string.h>

enum { OBJECTS_MAX = 1 << 22, INDEX_BYTES_MAX = INT32_MAX };

struct RawUnit {
    RawTar *tar;
    RawMds *mds;
    const char *name; /* owned by the set */
    Prover prover;
    RawSample sample;
    int64_t next;
};

RawSet *raw_set_free(RawSet *set)
{
    if (!set)
        return NULL;
    for (size_t i = 0; i < set->n_units; i++) {
        free(set->units[i].name);
        free(set->units[i].version);
        free(set->units[i].shard);
    }
    free(set->units);
    free(set->image);
    free(set->caption);
    store_free(set->store);
    free(set);
    return NULL;
}

/* The set takes ownership of version and shard. */
static void add_unit(RawSet *set, const char *name, uint64_t n_bytes, char *version,
                     RawShard *shard)
{
    set->units = memory_grow(set->units, set->n_units, &set->room, sizeof(*set->units));
    set->units[set->n_units++] = (RawUnitInfo){.name = memory_text(name),
                                               .version = version,
                                               .n_bytes = n_bytes,
                                               .shard = shard};
}

static int add_shard(void *context, size_t number, const MdsEntry *entry, Error *err)
{
    RawSet *set = context;
    if (number == 0)
        set->entry = *entry;
    int r = mds_entry_agrees(&set->entry, entry, "index.json", number, err);
    if (r < 0)
        return r;
    RawShard *shard = memory_new(RawShard);
    *shard = (RawShard){.n_samples = entry->n_samples, .raw = entry->raw, .zip = entry->zip};
    add_unit(set, entry->raw.basename, entry->raw.n_bytes, memory_text(""), shard);
    return 0;
}

/* Returns the name of the object in the store that holds the unit. */
static const char *object_name(const RawSet *set, size_t unit)
{
    const RawUnitInfo *info = &set->units[unit];
    return info->shard && *set->entry.compression ? info->shard->zip.basename : info->name;
}

static int find_tars(RawSet *set, Error *err)
{
    StoreList list = {0};
    int r = store_wait_list(&set->wait, set->store, "", OBJECTS_MAX, true, &list, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < list.n_objects; i++) {
        StoreObject *object = &list.objects[i];
        size_t n = strlen(object->key);
        if (n > 4 && strcmp(object->key + n - 4, ".tar") == 0)
            add_unit(set, object->key, object->n_bytes, TAKE_PTR(object->version), NULL);
    }
    store_list_clear(&list);
    return set->n_units > 0 ? 0
                            : error_set(err, -ENOENT, "%s holds neither tars nor an index.json",
                                        store_uri(set->store));
}

static int compare_keys(const void *name, const void *object)
{
    return strcmp(name, ((const StoreObject *)object)->key);
}

/* Finds the versions of the shards if index.json has no hashes of them. A missing shard is noticed when it is
 * opened. */
static int find_versions(RawSet *set, Error *err)
{
    StoreList list = {0};
    int r = store_wait_list(&set->wait, set->store, "", OBJECTS_MAX, true, &list, err);
    for (size_t i = 0; r == 0 && list.n_objects > 0 && i < set->n_units; i++) {
        RawUnitInfo *unit = &set->units[i];
        StoreObject *object = bsearch(object_name(set, i), list.objects, list.n_objects,
                                      sizeof(*object), compare_keys);
        if (object) {
            free(unit->version);
            unit->version = memory_text(object->version);
        }
    }
    store_list_clear(&list);
    return r;
}

int raw_set_open(const char *uri, const RawOptions *options, RawSet **ret, Error *err)
{
    _cleanup_(raw_set_freep) RawSet *set = memory_new(RawSet);
    _cleanup_free_ char *index = NULL;
    size_t n_bytes;
    int r = store_open(uri, &set->store, err);
    if (r < 0)
        return r;
    set->image = memory_text(options->image);
    set->caption = memory_text(options->caption);
    set->members = options->members ? *options->members : recipe_default_members;
    set->options = (RawOptions){.image = set->image,
                                .caption = set->caption,
                                .fields = options->fields,
                                .keep_missing = options->keep_missing};
    const bool usual = recipe_members_are_usual(&set->members);
    r = store_wait_get(&set->wait, set->store, "index.json", INDEX_BYTES_MAX, &index, &n_bytes,
                       err);
    set->is_mds = r == 0;
    if (r == -ENOENT)
        r = find_tars(set, err);
    else if (r == 0)
        r = mds_index_walk("index.json", index, n_bytes, add_shard, set, err);
    if (r == 0 && set->is_mds && !usual)
        r = error_set(err, -EINVAL,
                      "members and key_ends_at are of tars, and this is an MDS dataset: "
                      "columns.image and columns.caption name its columns");
    if (r == 0 && set->is_mds) {
        set->index = hash_bytes(index, n_bytes);
        r = raw_mds_check(set, options, err);
    }
    if (r == 0 && set->is_mds && set->entry.n_hashes == 0)
        r = find_versions(set, err);
    if (r < 0)
        return set->is_mds ? error_prefix(err, r, "%s", store_uri(set->store)) : r;
    *ret = TAKE_PTR(set);
    return 0;
}

const char *raw_set_uri(const RawSet *set) { return store_uri(set->store); }
size_t raw_set_n_units(const RawSet *set) { return set->n_units; }
const char *raw_set_unit_name(const RawSet *set, size_t unit)
{
    assert(unit < set->n_units);
    return set->units[unit].name;
}

const Hash *raw_set_index(const RawSet *set) { return set->is_mds ? &set->index : NULL; }

const char *raw_set_unit_version(const RawSet *set, size_t unit)
{
    assert(unit < set->n_units);
    return set->units[unit].version;
}

uint64_t raw_set_unit_bytes(const RawSet *set, size_t unit)
{
    assert(unit < set->n_units);
    return set->units[unit].n_bytes;
}

/* Replaces an error that concerns only this unit (missing, refused or damaged) by -ENOMEDIUM with a text that names the
 * unit. Other errors are those of the store and are returned as they are. */
static int set_aside(const char *name, int r, Error *err)
{
    const Error why = *err;
    if (r != -ENOENT && r != -EACCES && r != -EPERM && r != -EBADMSG)
        return r;
    return strstr(why.text, name) ? error_set(err, -ENOMEDIUM, "%s", why.text)
                                  : error_set(err, -ENOMEDIUM, "%s: %s", name, why.text);
}

int raw_set_request_version(RawSet *set, size_t unit, char ret[STORE_VERSION_MAX], Error *err)
{
    assert(unit < set->n_units);
    const char *name = object_name(set, unit);
    int r;
    do
        r = store_version(set->store, name, ret, err);
    while (store_wait(&set->wait, set->store, name, r, err));
    return r < 0 ? set_aside(set->units[unit].name, r, err) : 0;
}

/* ---- hashes of samples ---- */

void prover_member(Prover *prover, const char *name, uint64_t offset, uint64_t n_bytes)
{
    const uint64_t numbers[] = {strlen(name), offset, n_bytes};
    hasher_update(prover->members, numbers, sizeof(numbers));
    hasher_update(prover->members, name, strlen(name));
}

void prover_bytes(Prover *prover, const void *data, size_t n_bytes)
{
    const uint64_t n = n_bytes;
    hasher_update(prover->bytes, &n, sizeof(n));
    hasher_update(prover->bytes, data, n_bytes);
}

RawProof raw_unit_take_proof(RawUnit *unit)
{
    const RawProof proof = {hasher_digest(unit->prover.members), hasher_digest(unit->prover.bytes)};
    hasher_reset(unit->prover.members);
    hasher_reset(unit->prover.bytes);
    return proof;
}

/* ---- units ---- */

int raw_unit_open(RawSet *set, size_t number, RawUnit **ret, Error *err)
{
    assert(number < set->n_units);
    _cleanup_(raw_unit_freep) RawUnit *unit = memory_new(RawUnit);
    unit->name = set->units[number].name;
    int r = hasher_new(&unit->prover.members);
    if (r == 0)
        r = hasher_new(&unit->prover.bytes);
    if (r < 0)
        return error_set(err, r, "out of memory reading %s", unit->name);
    r = set->is_mds ? raw_mds_open(set, number, &unit->prover, &unit->mds, err)
                    : raw_tar_open(set, number, &unit->prover, &unit->tar, err);
    if (r < 0)
        return set_aside(unit->name, r, err);
    *ret = TAKE_PTR(unit);
    return 0;
}

RawUnit *raw_unit_free(RawUnit *unit)
{
    if (!unit)
        return NULL;
    raw_tar_free(unit->tar);
    raw_mds_free(unit->mds);
    hasher_free(unit->prover.members);
    hasher_free(unit->prover.bytes);
    raw_sample_clear(&unit->sample);
    free(unit);
    return NULL;
}

int raw_unit_next(RawUnit *unit, bool whole, RawSample **ret, Error *err)
{
    raw_sample_clear(&unit->sample);
    int r = unit->mds ? raw_mds_next(unit->mds, whole, &unit->sample, err)
                      : raw_tar_next(unit->tar, whole, &unit->sample, err);
    if (r <= 0)
        return r < 0 ? set_aside(unit->name, r, err) : 0;
    unit->sample.index = unit->next++;
    *ret = &unit->sample;
    return 1;
}

double raw_unit_done(const RawUnit *unit)
{
    return unit->mds ? raw_mds_done(unit->mds) : raw_tar_done(unit->tar);
}

RawState raw_unit_state(const RawUnit *unit, char *text, size_t size)
{
    const RawState state = unit->tar ? raw_tar_state(unit->tar, text, size) : RAW_WHOLE;
    if (state != RAW_WHOLE)
        return state;
    *text = '\0';
    if (unit->next > 0)
        return RAW_WHOLE;
    (void)snprintf(text, size, "%s: no sample is in it", unit->name);
    return RAW_NO_SAMPLE;
}

RawCounts raw_unit_counts(const RawUnit *unit)
{
    return unit->mds ? raw_mds_counts(unit->mds) : raw_tar_counts(unit->tar);
}

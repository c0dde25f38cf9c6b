/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - see input.h. */
#include "prep/encode/input.h"

#include "base/json/field-table.h"
#include "base/memory.h"
#include "prep/encode/report.h"

#include <inttypes.h>
#include <string.h>

enum { UNITS_MAX = 1 << 22, VALUES_MAX = 8 * UNITS_MAX };

static const Field unit_fields[] = {
    {.name = "name",
     .type = FIELD_STRING,
     .need = JSON_REQUIRED,
     .offset = offsetof(InputUnit, name)},
    {.name = "bytes",
     .type = FIELD_INT64,
     .need = JSON_REQUIRED,
     .offset = offsetof(InputUnit, n_bytes),
     .max = INT64_MAX},
    {.name = "version",
     .type = FIELD_STRING,
     .need = JSON_REQUIRED,
     .offset = offsetof(InputUnit, version)},
};

static const Field list_fields[] = {
    {.name = "index_xxh3_128", .type = FIELD_HASH, .offset = offsetof(InputList, index)},
    {.name = "units",
     .type = FIELD_LIST,
     .need = JSON_REQUIRED,
     .offset = offsetof(InputList, units),
     .size = UNITS_MAX,
     .fields = unit_fields,
     .n_fields = ELEMENTSOF(unit_fields),
     .element_bytes = sizeof(InputUnit),
     .count_offset = offsetof(InputList, n_units)},
};

static bool is_mds(const InputList *list) { return !hash_equal(list->index, (Hash){0}); }

void input_list_of(const RawSet *set, InputList *ret)
{
    InputList list = {.n_units = raw_set_n_units(set)};
    const Hash *index = raw_set_index(set);
    if (index)
        list.index = *index;
    list.units = memory_zeroed(list.n_units, sizeof(*list.units));
    for (size_t i = 0; i < list.n_units; i++)
        list.units[i] = (InputUnit){.name = report_name(raw_set_unit_name(set, i)),
                                    .n_bytes = (int64_t)raw_set_unit_bytes(set, i),
                                    .version = report_name(raw_set_unit_version(set, i))};
    *ret = list;
}

void input_list_clear(InputList *list)
{
    for (size_t i = 0; i < list->n_units; i++) {
        free(list->units[i].name);
        free(list->units[i].version);
    }
    free(list->units);
    *list = (InputList){0};
}

char *input_list_format(const InputList *list)
{
    _cleanup_json_ json_t *json = json_object();
    field_table_write(json, list_fields, ELEMENTSOF(list_fields), list);
    if (!is_mds(list))
        (void)json_object_del(json, list_fields[0].name); /* the key is in the object */
    _cleanup_free_ char *text = memory_given(json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT));
    return memory_format("%s\n", text);
}

int input_list_parse(const char *source, const char *text, size_t n_bytes, InputList *ret,
                     Error *err)
{
    _cleanup_json_ json_t *json = NULL;
    InputList list = {.file = hash_bytes(text, n_bytes)};
    int r = json_parse_bounded(source, text, n_bytes, VALUES_MAX, &json, err);
    if (r < 0)
        return r;
    JsonReader reader = json_open(source, json, JSON_ANY_KEYS, err);
    field_table_read(&reader, list_fields, ELEMENTSOF(list_fields), &list);
    r = json_close(&reader);
    if (r < 0) {
        input_list_clear(&list);
        return r;
    }
    *ret = list;
    return 0;
}

/* ---- comparing ---- */

static int refuse_unit(const InputList *there, const InputList *ours, size_t i, const char *uri,
                       Error *err)
{
    const InputUnit *was = i < there->n_units ? &there->units[i] : NULL;
    const InputUnit *is = i < ours->n_units ? &ours->units[i] : NULL;
    /* The units of a folder of tars are sorted by name. */
    const int order = !was ? 1 : !is ? -1 : is_mds(ours) ? 0 : strcmp(was->name, is->name);
    if (order < 0)
        return error_set(err, -EEXIST, "%s holds samples of another input: %.200s is gone from it",
                         uri, was->name);
    if (order > 0)
        return error_set(err, -EEXIST, "%s holds samples of another input: %.200s is new in it",
                         uri, is->name);
    return error_set(err, -EEXIST,
                     "%s holds samples of another input: unit %zu was %.200s of %" PRId64
                     " bytes, and is %.200s of %" PRId64,
                     uri, i, was->name, was->n_bytes, is->name, is->n_bytes);
}

int input_list_compare(const InputList *there, const InputList *ours, const char *uri, Error *err)
{
    char was[HASH_TEXT_BYTES], is[HASH_TEXT_BYTES];
    const size_t n = MAX(there->n_units, ours->n_units);
    for (size_t i = 0; i < n; i++)
        if (i == there->n_units || i == ours->n_units ||
            strcmp(there->units[i].name, ours->units[i].name) != 0 ||
            there->units[i].n_bytes != ours->units[i].n_bytes)
            return refuse_unit(there, ours, i, uri, err);
    if (hash_equal(there->index, ours->index))
        return 0;
    return error_set(err, -EEXIST,
                     "%s holds samples of another input: its units have the same names and sizes, "
                     "but the xxh3_128 of its index.json was %s, and is %s",
                     uri, hash_format(there->index, was), hash_format(ours->index, is));
}

/* Returns the part of a file's version behind the inode: time and size. NULL: the version is an ETag. */
static const char *behind_inode(const char *version)
{
    const char *dash = strchr(version, '-');
    const bool is_file = dash && strspn(version, "0123456789.-") == strlen(version) &&
                         strchr(dash, '.') && strchr(dash + 1, '-');
    return is_file ? dash : NULL;
}

InputChange input_compare_versions(const char *noted, const char *now)
{
    if (!*noted || !*now || strcmp(noted, now) == 0)
        return INPUT_SAME;
    const char *a = behind_inode(noted), *b = behind_inode(now);
    return a && b && strcmp(a, b) == 0 ? INPUT_COPIED : INPUT_CHANGED;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* mds-index.c - see mds-index.h. */
#include "data/mds/mds-index.h"

#include "base/json/json.h"

#include <string.h>

/* A position in the text; reading stops at end. */
typedef struct IndexCursor {
    const char *p, *end;
} IndexCursor;

static void skip_blanks(IndexCursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\r' || *c->p == '\t'))
        c->p++;
}

static bool take(IndexCursor *c, char wanted)
{
    skip_blanks(c);
    if (c->p == c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

static bool skip_string(IndexCursor *c)
{
    if (!take(c, '"'))
        return false;
    for (; c->p < c->end; c->p++) {
        if (*c->p == '"') {
            c->p++;
            return true;
        }
        if (*c->p == '\\' && ++c->p == c->end)
            return false;
    }
    return false;
}

/* Moves behind the value that begins here. The JSON library checks later that the value is well-formed inside. */
static bool skip_value(IndexCursor *c)
{
    skip_blanks(c);
    const char *start = c->p;
    size_t depth = 0;
    while (c->p < c->end) {
        char ch = *c->p;
        if (ch == '"') {
            if (!skip_string(c))
                return false;
        } else if (ch == '{' || ch == '[') {
            depth++, c->p++;
        } else if (ch == '}' || ch == ']') {
            if (depth == 0)
                return c->p > start;
            depth--, c->p++;
        } else if (ch == ',' && depth == 0) {
            return c->p > start;
        } else {
            c->p++;
            continue;
        }
        if (depth == 0)
            return true;
    }
    return depth == 0 && c->p > start;
}

static bool basename_is_safe(const char *name)
{
    if (*name == '\0' || *name == '/')
        return false;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}

static int parse_file(JsonReader *j, const char *key, JsonNeed need, const MdsEntry *entry,
                      MdsFile *ret)
{
    JsonReader f = json_get_object(j, key, need);
    if (!f.object)
        return json_close(&f);

    int64_t n_bytes = 0;
    json_get_text(&f, "basename", JSON_REQUIRED, ret->basename, sizeof(ret->basename));
    json_get_int(&f, "bytes", JSON_REQUIRED, 0, INT64_MAX, &n_bytes);
    ret->n_bytes = (uint64_t)n_bytes;
    if (f.r == 0 && !basename_is_safe(ret->basename))
        json_refuse(&f, "basename", "\"%.80s\" leads out of the dataset", ret->basename);
    JsonReader h =
        json_get_object(&f, "hashes", entry->n_hashes > 0 ? JSON_REQUIRED : JSON_OPTIONAL);
    for (size_t i = 0; i < entry->n_hashes && h.r == 0; i++) {
        const char *text;
        if (!json_get_string(&h, entry->hashes[i], JSON_REQUIRED, &text))
            break;
        if (checksum_parse(text, (size_t)checksum_size(entry->hashes[i]), ret->hashes[i]) < 0)
            json_refuse(&h, entry->hashes[i], "\"%.80s\" is no such hash", text);
    }
    json_close(&h);
    return json_close(&f);
}

static void parse_hash_names(JsonReader *j, MdsEntry *entry)
{
    json_t *names;
    if (!json_get_array(j, "hashes", JSON_OPTIONAL, MDS_HASHES_MAX, &names))
        return;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name || strlen(name) >= CHECKSUM_NAME_MAX || checksum_size(name) < 0) {
            json_refuse(j, "hashes", "\"%.40s\" is not a hash algorithm that is known",
                        name ? name : "?");
            return;
        }
        memcpy(entry->hashes[i], name, strlen(name) + 1);
        entry->n_hashes++;
    }
}

static int parse_entry(const char *source, json_t *root, MdsEntry *entry, Error *err)
{
    *entry = (MdsEntry){0};
    JsonReader j = json_open(source, root, JSON_ANY_KEYS, err);

    int64_t version = 2, n_samples = 0;
    const char *format = "";
    if (json_get_int(&j, "version", JSON_REQUIRED, 0, INT64_MAX, &version) && version != 2)
        json_refuse(&j, "version", "%lld is not known, 2 is", (long long)version);
    if (json_get_string(&j, "format", JSON_REQUIRED, &format) && strcmp(format, "mds") != 0)
        json_refuse(&j, "format", "\"%.20s\" is not supported, \"mds\" is", format);
    json_get_text(&j, "compression", JSON_OPTIONAL, entry->compression, sizeof(entry->compression));
    if (*entry->compression && strcmp(entry->compression, "zstd") != 0 &&
        strncmp(entry->compression, "zstd:", 5) != 0)
        json_refuse(&j, "compression", "\"%s\" is not supported, \"zstd\" is", entry->compression);
    json_get_int(&j, "samples", JSON_REQUIRED, 0, UINT32_MAX - 1, &n_samples);
    entry->n_samples = (uint64_t)n_samples;
    parse_hash_names(&j, entry);
    parse_file(&j, "raw_data", JSON_REQUIRED, entry, &entry->raw);
    parse_file(&j, "zip_data", *entry->compression ? JSON_REQUIRED : JSON_OPTIONAL, entry,
               &entry->zip);
    int r = json_close(&j);
    if (r < 0)
        return r;
    if (!*entry->compression)
        entry->zip.basename[0] = '\0';
    return mds_schema_parse(source, root, &entry->schema, err);
}

static int walk_shards(const char *source, IndexCursor *c, MdsEntryHandler handler, void *context,
                       Error *err)
{
    if (!take(c, '['))
        return error_set(err, -EINVAL, "%s: shards: expected an array", source);
    if (take(c, ']'))
        return 0;

    _cleanup_free_ MdsEntry *entry = malloc(sizeof(*entry));
    if (!entry)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0;; i++) {
        skip_blanks(c);
        const char *start = c->p;
        if (!skip_value(c))
            return error_set(err, -EINVAL, "%s: shards[%zu]: the file ends inside it", source, i);

        char name[320];
        (void)snprintf(name, sizeof(name), "%.250s: shards[%zu]", source, i);
        _cleanup_json_ json_t *root = NULL;
        int r = json_parse(name, start, (size_t)(c->p - start), &root, err);
        if (r == 0)
            r = parse_entry(name, root, entry, err);
        if (r == 0)
            r = handler(context, i, entry, err);
        if (r < 0)
            return r;

        if (take(c, ']'))
            return 0;
        if (!take(c, ','))
            return error_set(err, -EINVAL, "%s: shards: no \",\" or \"]\" behind element %zu",
                             source, i);
    }
}

int mds_index_walk(const char *source, const char *text, size_t n_bytes, MdsEntryHandler handler,
                   void *context, Error *err)
{
    IndexCursor c = {text + json_mark_bytes(text, n_bytes), text + n_bytes};
    bool saw_shards = false, saw_version = false;
    if (!take(&c, '{'))
        return error_set(err, -EINVAL, "%s: expected a JSON object", source);

    for (bool more = true; more; more = take(&c, ',')) {
        skip_blanks(&c);
        IndexCursor key = c;
        if (!skip_string(&c))
            return error_set(err, -EINVAL, "%s: expected a key", source);
        key.end = c.p;
        size_t length = (size_t)(key.end - key.p);
        if (!take(&c, ':'))
            return error_set(err, -EINVAL, "%s: no \":\" behind a key", source);
        skip_blanks(&c);
        const char *value = c.p;

        if (length == 8 && memcmp(key.p, "\"shards\"", 8) == 0 && !saw_shards) {
            int r = walk_shards(source, &c, handler, context, err);
            if (r < 0)
                return r;
            saw_shards = true;
        } else if (!skip_value(&c)) {
            return error_set(err, -EINVAL, "%s: the file ends inside a value", source);
        } else if (length == 9 && memcmp(key.p, "\"version\"", 9) == 0) {
            if (*value != '2' || (c.p - value > 1 && value[1] >= '0' && value[1] <= '9'))
                return error_set(err, -EINVAL, "%s: version: %.*s is not known, 2 is", source,
                                 (int)MIN(c.p - value, 20), value);
            saw_version = true;
        }
    }
    if (!take(&c, '}'))
        return error_set(err, -EINVAL, "%s: the file ends inside its object", source);
    skip_blanks(&c);
    if (c.p != c.end || !saw_shards || !saw_version)
        return error_set(err, -EINVAL, "%s: %s", source,
                         c.p != c.end  ? "something stands behind its end"
                         : saw_version ? "shards: missing"
                                       : "version: missing");
    return 0;
}

static bool columns_equal(const MdsSchema *a, const MdsSchema *b)
{
    if (a->n_columns != b->n_columns)
        return false;
    for (size_t i = 0; i < a->n_columns; i++)
        if (strcmp(a->columns[i].name, b->columns[i].name) != 0 ||
            strcmp(a->columns[i].encoding, b->columns[i].encoding) != 0)
            return false;
    return true;
}

int mds_entry_agrees(const MdsEntry *first, const MdsEntry *entry, const char *source, size_t shard,
                     Error *err)
{
    const char *what = NULL;
    if (!columns_equal(&first->schema, &entry->schema))
        what = "columns";
    else if (strcmp(first->compression, entry->compression) != 0)
        what = "compression";
    else if (first->n_hashes != entry->n_hashes ||
             memcmp(first->hashes, entry->hashes, sizeof(entry->hashes)) != 0)
        what = "hashes";
    if (!what)
        return 0;
    return error_set(err, -EINVAL,
                     "%s: shards[%zu]: its %s are not the first shard's; such datasets must be "
                     "given as two streams",
                     source, shard, what);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - see folder.h. */
#include "prep/encode/folder.h"

#include "base/fault.h"
#include "base/json/json-diff.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "prep/encode/encode.h"

#include <inttypes.h>
#include <string.h>

#define IDENTITY_KEY "encoding/identity.json"
#define NAMED_PREFIX "encoding/named/"

enum {
    IDENTITY_BYTES_MAX = 64 << 10,
    IDENTITY_VALUES_MAX = 4096,
    NAMED_KEY_MAX = 1 << 20,
    PUT_TRIES = 16
};

void folder_shard_key(int64_t unit, int64_t part, char ret[FOLDER_KEY_MAX])
{
    (void)snprintf(ret, FOLDER_KEY_MAX, "u%05" PRId64 "-p%04" PRId64 ".mds", unit, part);
}

void folder_part_key(int64_t unit, int64_t part, char ret[FOLDER_KEY_MAX])
{
    (void)snprintf(ret, FOLDER_KEY_MAX, "encoding/u%05" PRId64 "-p%04" PRId64 ".json", unit, part);
}

void folder_unit_key(int64_t unit, char ret[FOLDER_KEY_MAX])
{
    (void)snprintf(ret, FOLDER_KEY_MAX, "encoding/u%05" PRId64 ".json", unit);
}

void folder_rejects_key(int64_t unit, char ret[FOLDER_KEY_MAX])
{
    (void)snprintf(ret, FOLDER_KEY_MAX, "rejects/u%05" PRId64 ".jsonl", unit);
}

int folder_get(Folder *folder, const char *key, char **ret, size_t *ret_bytes, Error *err)
{
    return store_wait_get(&folder->wait, folder->store, key, FOLDER_OBJECT_MAX, ret, ret_bytes,
                          err);
}

int folder_reads(const Folder *folder, const char *key, int r, Error *err)
{
    return r < 0 ? error_prefix(err, r, "remove %s/%s, and start again", store_uri(folder->store),
                                key)
                 : r;
}

int folder_head(Folder *folder, const char *key, uint64_t *ret_bytes, Error *err)
{
    int r;
    do
        r = store_head(folder->store, key, ret_bytes, err);
    while (store_wait(&folder->wait, folder->store, key, r, err));
    return r;
}

int folder_put(Folder *folder, const char *key, const void *data, size_t n_bytes, Error *err)
{
    struct iovec part = {(void *)(uintptr_t)data, n_bytes}; /* a put only reads the data */
    _cleanup_free_ char *there = NULL;
    size_t n_there;
    int r = -ENOENT;
    /* A part's report may be removed between the put and the get, when another process has finished the unit. */
    for (int tries = 0; r == -ENOENT && tries < PUT_TRIES; tries++) {
        r = store_wait_put(&folder->put_wait, folder->store, key, &part, 1, STORE_IF_ABSENT, err);
        if (r != -EEXIST)
            return r;
        /* Another process put the object; or this process did before it was restarted, or before the answer to its put
         * was lost. */
        r = fault("encode.put.there");
        if (r == 0)
            r = folder_get(folder, key, &there, &n_there, err);
    }
    if (r < 0)
        return r;
    if (n_there == n_bytes && memcmp(there, data, n_bytes) == 0)
        return 0;
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    return error_set(err, -EEXIST,
                     "%s/%s is there already with other bytes: its xxh3_128 is %s, not %s",
                     store_uri(folder->store), key, hash_format(hash_bytes(there, n_there), a),
                     hash_format(hash_bytes(data, n_bytes), b));
}

/* ---- the folder's owner ---- */

static int parse_claim(const char *text, size_t n_bytes, FolderClaim *ret, json_t **ret_terms,
                       Error *err)
{
    _cleanup_json_ json_t *json = NULL;
    Hash identity = {0}, input = {0};
    int r = json_parse_bounded(IDENTITY_KEY, text, n_bytes, IDENTITY_VALUES_MAX, &json, err);
    if (r < 0)
        return r;
    JsonReader reader = json_open(IDENTITY_KEY, json, JSON_ANY_KEYS, err);
    json_get_hash(&reader, "identity", &identity);
    json_get_hash(&reader, "input", &input);
    r = json_close(&reader);
    hash_format(identity, ret->identity);
    hash_format(input, ret->input);
    json_t *terms = json_object_get(json, "encoding");
    *ret_terms = r == 0 && json_is_object(terms) ? json_incref(terms) : NULL;
    return r;
}

/* Compares a folder's claim with ours. terms: those of `there`; NULL: an older version made the claim without terms. */
static int compare_claims(const Folder *folder, const FolderClaim *there, const json_t *terms,
                          const FolderClaim *ours, Error *err)
{
    const char *uri = store_uri(folder->store);
    char differences[700];
    if (strcmp(there->identity, ours->before) == 0)
        return error_set(err, -EEXIST,
                         "%s was begun by an earlier version, which gives other samples of tars "
                         "that are damaged or out of "
                         "order: end it with that version, or begin in an empty folder",
                         uri);
    if (strcmp(there->identity, ours->identity) == 0)
        return 0;
    if (terms && ours->terms &&
        json_diff_format(terms, ours->terms, differences, sizeof(differences)) > 0)
        return error_set(err, -EEXIST,
                         "%s holds samples of another encoding: %s (its identity was %s, is %s)",
                         uri, differences, there->identity, ours->identity);
    return error_set(err, -EEXIST,
                     "%s holds samples of another encoding: its identity is %s, that of this "
                     "recipe and model is %s; only the hashes are known of it",
                     uri, there->identity, ours->identity);
}

/* Compares the inputs' hashes. A folder that an older version began has no list of units, so only the hashes can be
 * compared. */
static int compare_input(const Folder *folder, const FolderClaim *there, const FolderClaim *ours,
                         Error *err)
{
    if (strcmp(there->input, ours->input) == 0)
        return 0;
    return error_set(err, -EEXIST,
                     "%s holds samples of another input: the identity of its units' names and "
                     "sizes is %s, that of this input's is %s",
                     store_uri(folder->store), there->input, ours->input);
}

/* Reads the folder's list of units; if there is none, puts the caller's list first. */
static int settle_units(Folder *folder, const InputList *ours, bool finished, InputList *ret,
                        Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = folder_get(folder, FOLDER_INPUT_KEY, &text, &n_bytes, err);
    if (r == -ENOENT && finished)
        return 0; /* an older version, which put no list, made the dataset */
    if (r == -ENOENT) {
        _cleanup_free_ char *list = input_list_format(ours);
        struct iovec part = {list, strlen(list)};
        r = fault("encode.input");
        if (r == 0)
            r = store_wait_put(&folder->put_wait, folder->store, FOLDER_INPUT_KEY, &part, 1,
                               STORE_IF_ABSENT, err);
        if (r == 0 || r == -EEXIST) /* another process may have put a list first */
            r = folder_get(folder, FOLDER_INPUT_KEY, &text, &n_bytes, err);
    }
    if (r == 0)
        r = folder_reads(folder, FOLDER_INPUT_KEY,
                         input_list_parse(FOLDER_INPUT_KEY, text, n_bytes, ret, err), err);
    return r < 0 ? r : input_list_compare(ret, ours, store_uri(folder->store), err);
}

static int has_index(Folder *folder, Error *err)
{
    uint64_t n_bytes;
    int r = folder_head(folder, "index.json", &n_bytes, err);
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

/* Reads the folder's claim. Returns 1 if there is a claim, which must be for the same encoding; 0 if there is none. */
static int find_claim(Folder *folder, const FolderClaim *ours, FolderClaim *ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *terms = NULL;
    size_t n_bytes;
    int r = store_wait_get(&folder->wait, folder->store, IDENTITY_KEY, IDENTITY_BYTES_MAX, &text,
                           &n_bytes, err);
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = parse_claim(text, n_bytes, ret, &terms, err);
    if (r == 0)
        r = compare_claims(folder, ret, terms, ours, err);
    return r < 0 ? r : 1;
}

static char *format_claim(const FolderClaim *claim)
{
    _cleanup_json_ json_t *json = json_object();
    json_object_set_new(json, "identity", json_string(claim->identity));
    json_object_set_new(json, "input", json_string(claim->input));
    if (claim->terms)
        json_object_set_new(json, "encoding", json_deep_copy(claim->terms));
    _cleanup_free_ char *text =
        memory_given(json_dumps(json, JSON_SORT_KEYS | JSON_REAL_PRECISION(17)));
    return memory_format("%s\n", text);
}

static int put_claim(Folder *folder, const FolderClaim *claim, Error *err)
{
    FolderClaim found;
    _cleanup_free_ char *text = format_claim(claim);
    int r = fault("encode.claim");
    if (r == 0)
        r = folder_put(folder, IDENTITY_KEY, text, strlen(text), err);
    if (r != -EEXIST)
        return r;
    r = find_claim(folder, claim, &found, err); /* another process put a claim first */
    return r > 0 ? compare_input(folder, &found, claim, err) : r < 0 ? r : -EEXIST;
}

int folder_claim(Folder *folder, const FolderClaim *claim, InputList *ret_units, Error *err)
{
    FolderClaim found;
    InputList units = {0};
    int finished = has_index(folder, err);
    if (finished < 0)
        return finished;
    int there = find_claim(folder, claim, &found, err);
    if (there == 0 && finished)
        return error_set(err, -EEXIST,
                         "%s already holds a dataset, which has no encoding's identity; this "
                         "recipe's and model's is %s",
                         store_uri(folder->store), claim->identity);
    int r = MIN(there, 0);
    if (r == 0)
        r = settle_units(folder, claim->units, finished, &units, err);
    if (r == 0)
        r = there ? compare_input(folder, &found, claim, err) : put_claim(folder, claim, err);
    if (r < 0) {
        input_list_clear(&units);
        return r;
    }
    *ret_units = units;
    return finished;
}

/* ---- keys to leave out ---- */

void folder_name_key(const char *key, char ret[FOLDER_KEY_MAX])
{
    char hash[HASH_TEXT_BYTES];
    (void)snprintf(ret, FOLDER_KEY_MAX, NAMED_PREFIX "%s",
                   hash_format(hash_bytes(key, strlen(key)), hash));
}

int folder_name(Folder *folder, const char *key, Error *err)
{
    char name[FOLDER_KEY_MAX];
    folder_name_key(key, name);
    return folder_put(folder, name, key, strlen(key), err);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int folder_named(Folder *folder, char ***ret, size_t *ret_n, Error *err)
{
    StoreList list = {0};
    int r = store_wait_list(&folder->wait, folder->store, NAMED_PREFIX, ENCODE_NAMED_MAX, false,
                            &list, err);
    if (r < 0)
        return r;
    char **keys = memory_zeroed(list.n_objects + 1, sizeof(*keys));
    size_t n = 0, n_bytes;
    for (size_t i = 0; r == 0 && i < list.n_objects; i++) {
        r = store_wait_get(&folder->wait, folder->store, list.objects[i].key, NAMED_KEY_MAX,
                           &keys[n], &n_bytes, err);
        n += r == 0;
    }
    store_list_clear(&list);
    qsort(keys, n, sizeof(*keys), compare_texts);
    if (r < 0) {
        for (size_t i = 0; i < n; i++)
            free(keys[i]);
        free(keys);
        return r;
    }
    *ret = keys;
    *ret_n = n;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* store-driver.c - a store driven from a Python test: each line on standard input is one operation in
 * JSON, each line on standard output is its result. A put reads its bytes from a file, a get writes the
 * object's bytes to a file.
 *
 *   store-driver URI
 *   {"do": "put", "key": K, "file": F, "absent": BOOL}   {"do": "get", "key": K, "file": F}
 *   {"do": "range", "key": K, "file": F, "offset": N, "n": N}
 *   {"do": "fetch", "key": K, "file": F, "n": N}          ranges, fetched concurrently
 *   {"do": "head" | "delete" | "version", "key": K}       {"do": "list", "key": PREFIX}
 *   {"do": "delete_many", "key": PREFIX}                  all objects with that prefix
 *   {"do": "sweep"}                                       deletes all unfinished uploads
 *   {"do": "probe"}                                       tests put-if-absent
 *   -> {"r": 0 or -errno, "text": T, "n": bytes or number, "version": V, "keys": [...]}
 */
#include "base/fault.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "store/store.h"

#include <fcntl.h>
#include <string.h>

enum { GET_MAX = 1 << 30, LIST_MAX = 100000 };

typedef struct Order {
    const char *verb, *key, *file;
    int64_t offset, n;
    bool absent;
} Order;

typedef struct Answer {
    int64_t n;
    char version[STORE_VERSION_MAX];
    json_t *keys;
} Answer;

typedef int (*Verb)(Store *store, const Order *order, Answer *ret, Error *err);

static int do_put(Store *store, const Order *order, _unused_ Answer *ret, Error *err)
{
    _cleanup_free_ char *data = NULL;
    size_t n_bytes;
    int r = file_read(order->file, GET_MAX, &data, &n_bytes, err);
    if (r < 0)
        return r;
    /* two parts, so that their boundary is inside the object */
    struct iovec parts[] = {{.iov_base = data, .iov_len = n_bytes / 3},
                            {.iov_base = data + n_bytes / 3, .iov_len = n_bytes - n_bytes / 3}};
    return store_put(store, order->key, parts, ELEMENTSOF(parts),
                     order->absent ? STORE_IF_ABSENT : 0, err);
}

static int do_get(Store *store, const Order *order, Answer *ret, Error *err)
{
    _cleanup_free_ char *data = NULL;
    size_t n_bytes;
    int r = store_get(store, order->key, GET_MAX, &data, &n_bytes, err);
    if (r < 0)
        return r;
    ret->n = (int64_t)n_bytes;
    return file_write(order->file, data, n_bytes, 0, err);
}

static int do_range(Store *store, const Order *order, Answer *ret, Error *err)
{
    _cleanup_free_ char *data = malloc((size_t)order->n + 1);
    if (!data)
        return error_set(err, -ENOMEM, "out of memory");
    int r =
        store_get_range(store, order->key, (uint64_t)order->offset, (size_t)order->n, data, err);
    if (r < 0)
        return r;
    ret->n = order->n;
    return file_write(order->file, data, (size_t)order->n, 0, err);
}

static int do_fetch(Store *store, const Order *order, Answer *ret, Error *err)
{
    _cleanup_fd_ int fd = open(order->file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, -errno, "cannot open %s", order->file);
    ret->n = order->n;
    return store_fetch(store, order->key, (uint64_t)order->n, fd, err);
}

static int do_head(Store *store, const Order *order, Answer *ret, Error *err)
{
    uint64_t n_bytes = 0;
    int r = store_head(store, order->key, &n_bytes, err);
    ret->n = (int64_t)n_bytes;
    return r;
}

static int do_version(Store *store, const Order *order, Answer *ret, Error *err)
{
    return store_version(store, order->key, ret->version, err);
}

static int do_delete(Store *store, const Order *order, _unused_ Answer *ret, Error *err)
{
    return store_delete(store, order->key, err);
}

static int do_list(Store *store, const Order *order, Answer *ret, Error *err)
{
    StoreList list;
    int r = store_list(store, order->key, LIST_MAX, &list, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < list.n_objects; i++)
        json_array_append_new(ret->keys, json_string(list.objects[i].key));
    ret->n = (int64_t)list.n_objects;
    store_list_clear(&list);
    return 0;
}

static int do_delete_many(Store *store, const Order *order, Answer *ret, Error *err)
{
    StoreList list;
    int r = store_list(store, order->key, LIST_MAX, &list, err);
    if (r < 0)
        return r;
    const char **keys = calloc(list.n_objects + 1, sizeof(*keys));
    for (size_t i = 0; keys && i < list.n_objects; i++)
        keys[i] = list.objects[i].key;
    r = keys ? store_delete_many(store, keys, list.n_objects, err)
             : error_set(err, -ENOMEM, "out of memory");
    ret->n = (int64_t)list.n_objects;
    free(keys);
    store_list_clear(&list);
    return r;
}

static int do_sweep(Store *store, _unused_ const Order *order, Answer *ret, Error *err)
{
    size_t n_removed = 0;
    int r = store_sweep(store, 0, NULL, NULL, &n_removed, err);
    ret->n = (int64_t)n_removed;
    return r;
}

static int do_probe(Store *store, _unused_ const Order *order, Answer *ret, Error *err)
{
    bool keeps = false;
    int r = store_puts_if_absent(store, &keeps, err);
    ret->n = keeps;
    return r;
}

static int obey(Store *store, json_t *root, Answer *ret, Error *err)
{
    static const struct {
        const char *name;
        Verb verb;
    } verbs[] = {{"put", do_put},       {"get", do_get},    {"range", do_range},
                 {"fetch", do_fetch},   {"head", do_head},  {"version", do_version},
                 {"delete", do_delete}, {"list", do_list},  {"delete_many", do_delete_many},
                 {"sweep", do_sweep},   {"probe", do_probe}};
    Order order = {.verb = "", .key = "", .file = ""};
    JsonReader reader = json_open("order", root, JSON_KNOWN_KEYS, err);
    json_get_string(&reader, "do", JSON_REQUIRED, &order.verb);
    json_get_string(&reader, "key", JSON_OPTIONAL, &order.key);
    json_get_string(&reader, "file", JSON_OPTIONAL, &order.file);
    json_get_int(&reader, "offset", JSON_OPTIONAL, 0, INT64_MAX, &order.offset);
    json_get_int(&reader, "n", JSON_OPTIONAL, 0, GET_MAX, &order.n);
    json_get_bool(&reader, "absent", JSON_OPTIONAL, &order.absent);
    int r = json_close(&reader);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        if (strcmp(order.verb, verbs[i].name) == 0)
            return verbs[i].verb(store, &order, ret, err);
    return error_set(err, -EINVAL, "order: there is no %s", order.verb);
}

static void answer(Store *store, const char *line, size_t n_bytes)
{
    Error err = ERROR_INIT;
    Answer made = {.keys = json_array()};
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse("order", line, n_bytes, &root, &err);
    if (r >= 0)
        r = obey(store, root, &made, &err);
    _cleanup_json_ json_t *says =
        json_pack("{s:i,s:s%,s:I,s:s,s:o}", "r", r, "text", r < 0 ? err.text : "",
                  r < 0 ? strlen(err.text) : (size_t)0, "n", (json_int_t)made.n, "version",
                  made.version, "keys", made.keys);
    _cleanup_free_ char *text = says ? json_dumps(says, JSON_COMPACT) : NULL;
    printf("%s\n", text ? text : "{\"r\": -22, \"text\": \"an answer that is not UTF-8\"}");
    (void)fflush(stdout); /* a test that reads no results ends this process in another way */
}

int main(int argc, char *argv[])
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    char *line = NULL;
    size_t size = 0;

    log_open("store-driver");
    if (argc != 2) {
        fprintf(stderr, "usage: store-driver URI\n");
        return 2;
    }
    int r = fault_open(&err);
    if (r >= 0)
        r = store_open(argv[1], &store, &err);
    if (r < 0) {
        fprintf(stderr, "store-driver: %s\n", err.text);
        return 1;
    }
    for (ssize_t n; (n = getline(&line, &size, stdin)) > 0;)
        answer(store, line, (size_t)n);
    free(line);
    return 0;
}

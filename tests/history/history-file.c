/* SPDX-License-Identifier: Apache-2.0 */
/* history-file.c - see history-file.h. */
#include "tests/history/history-file.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "cluster/keys.h"

#include <string.h>

typedef struct Reader {
    const char *name;
    int line;
    char cluster[CLUSTER_NAME_MAX + 1];
    HistoryHandler handler;
    void *userdata;
    HistoryChecker *checker;
    double cluster_id; /* the upper 53 bits: JSON integers are read as doubles */
    int64_t revision;  /* revision of the collected changes; 0: none are collected */
    HistoryChange *changes;
    size_t n_changes, room;
    HistoryEnd end;
} Reader;

/* ---- a revision's changes ---- */

static void drop_changes(Reader *reader)
{
    for (size_t i = 0; i < reader->n_changes; i++) {
        free((char *)reader->changes[i].key);
        free((char *)reader->changes[i].value);
    }
    reader->n_changes = 0;
    reader->revision = 0;
}

static int hand_over(Reader *reader, Error *err)
{
    int r = 0;
    if (reader->n_changes > 0)
        r = history_checker_apply(reader->checker, reader->revision, reader->changes,
                                  reader->n_changes, err);
    drop_changes(reader);
    return r;
}

/* Returns the value of a base64 character, or -1 for other characters. */
static int sextet(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 (RFC 4648, section 4). Returns NULL if the text is not base64. The result ends
 * with a NUL that *ret_n does not count. */
static char *decode_base64(const char *text, size_t *ret_n)
{
    size_t n_text = strlen(text), n = 0;
    if (n_text % 4 != 0)
        return NULL;
    while (n_text > 0 && text[n_text - 1] == '=')
        n_text--;
    char *bytes = memory_zeroed(n_text + 1, 1);
    uint32_t bits = 0;
    for (size_t i = 0; i < n_text; i++) {
        int six = sextet((unsigned char)text[i]);
        if (six < 0) {
            free(bytes);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)six;
        if (i % 4 > 0)
            bytes[n++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    *ret_n = n;
    return bytes;
}

/* Takes the cluster's name from the first key, if the name is not known yet, and makes the checker.
 * Keys of other clusters are ignored later. */
static void find_cluster(Reader *reader, const char *key)
{
    static const char root[] = "/sdtrain/";
    size_t n = strncmp(key, root, sizeof(root) - 1) == 0 ? strcspn(key + sizeof(root) - 1, "/") : 0;
    if (!reader->cluster[0] && n > 0 && n <= CLUSTER_NAME_MAX)
        memcpy(reader->cluster, key + sizeof(root) - 1, n);
    if (!reader->checker && reader->cluster[0])
        reader->checker = history_checker_new(reader->cluster, reader->handler, reader->userdata);
}

static int64_t integer_in(const json_t *object, const char *key)
{
    return (int64_t)json_number_value(json_object_get(object, key));
}

static int read_event(Reader *reader, json_t *event, Error *err)
{
    json_t *kv = json_object_get(event, "kv");
    const char *key_text = json_string_value(json_object_get(kv, "key"));
    const char *value_text = json_string_value(json_object_get(kv, "value"));
    bool removed = integer_in(event, "type") == 1;
    int64_t revision = integer_in(kv, "mod_revision");
    size_t n_key = 0, n_value = 0;
    _cleanup_free_ char *key = key_text ? decode_base64(key_text, &n_key) : NULL;
    _cleanup_free_ char *value =
        removed ? NULL : decode_base64(value_text ? value_text : "", &n_value);
    if (!key || strlen(key) != n_key || (!removed && !value) || revision <= 0)
        return error_set(err, -EINVAL, "an event is none of etcdctl's");
    if (revision != reader->revision) {
        int r = hand_over(reader, err);
        if (r < 0)
            return r;
    }
    find_cluster(reader, key);
    if (!reader->checker)
        return 0;
    reader->revision = revision;
    reader->changes =
        memory_grow(reader->changes, reader->n_changes, &reader->room, sizeof(*reader->changes));
    reader->changes[reader->n_changes++] = (HistoryChange){.key = TAKE_PTR(key),
                                                           .value = TAKE_PTR(value),
                                                           .n_value = n_value,
                                                           .lease = integer_in(kv, "lease"),
                                                           .version = integer_in(kv, "version")};
    return 0;
}

/* ---- lines ---- */

/* Reads the last line of a file, in which the recorder says whether the history is complete. */
static int read_end(Reader *reader, json_t *line, const char *word, Error *err)
{
    const char *why = json_string_value(json_object_get(line, "why"));
    if (strcmp(word, "complete") != 0)
        return error_set(err, -ESTALE, "the recorder gave up: %s",
                         why ? why : "it does not say why");
    reader->end = HISTORY_COMPLETE;
    return 0;
}

static int read_answer(Reader *reader, json_t *line, Error *err)
{
    const json_t *header = json_object_get(line, "Header");
    const char *word = json_string_value(json_object_get(line, "history"));
    json_t *events = json_object_get(line, "Events"), *event;
    size_t i;
    if (word)
        return read_end(reader, line, word, err);
    if (!json_is_object(header))
        return error_set(err, -EINVAL, "is not an answer of a watch");
    int64_t compacted = integer_in(line, "CompactRevision");
    if (compacted)
        return error_set(err, -ESTALE, "etcd has dropped what was before revision %lld",
                         (long long)compacted);
    double cluster_id = json_number_value(json_object_get(header, "cluster_id"));
    if (cluster_id && reader->cluster_id && cluster_id != reader->cluster_id)
        return error_set(err, -ESTALE, "etcd has another cluster id: it was restored");
    reader->cluster_id =
        cluster_id ? cluster_id : reader->cluster_id; /* the lines of etcdctl have no cluster id */
    json_array_foreach (events, i, event) {
        int r = read_event(reader, event, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_line(Reader *reader, const char *text, size_t n, Error *err)
{
    json_error_t why;
    reader->line++;
    /* the ids of clusters and members do not fit into a signed integer */
    _cleanup_json_ json_t *line =
        n > HISTORY_LINE_MAX ? NULL : json_loadb(text, n, JSON_DECODE_INT_AS_REAL, &why);
    int r = json_is_object(line) ? read_answer(reader, line, err)
                                 : error_set(err, -EINVAL, "is not a JSON object");
    return r < 0 ? error_prefix(err, r, "%s:%d", reader->name, reader->line) : 0;
}

int history_file_check(FILE *file, const char *name, const char *cluster, HistoryHandler handler,
                       void *userdata, HistoryChecker **ret_checker, HistoryEnd *ret_end,
                       Error *err)
{
    Reader reader = {.name = name, .handler = handler, .userdata = userdata};
    _cleanup_free_ char *text = NULL;
    size_t room = 0;
    ssize_t n;
    int r = 0;
    (void)snprintf(reader.cluster, sizeof(reader.cluster), "%s", cluster ? cluster : "");
    while (r == 0 && (n = getline(&text, &room, file)) > 0)
        r = read_line(&reader, text, (size_t)n, err);
    if (r == 0 && ferror(file))
        r = error_errno(err, -errno, "%s", name);
    if (r == 0)
        r = hand_over(&reader, err);
    drop_changes(&reader);
    free(reader.changes);
    *ret_checker = reader.checker;
    *ret_end = reader.end;
    return r;
}

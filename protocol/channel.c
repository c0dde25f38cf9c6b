/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - see channel.h: the messages. One table has the fields of all messages. */
#include "protocol/channel.h"

#include "base/json/field-table.h"

#include <string.h>

static const char *const type_name[CHANNEL_TYPES] = {"assign",     "go",    "alive",
                                                     "checkpoint", "stop",  "committed",
                                                     "refused",    "hung",  "hello",
                                                     "rendezvous", "ready", "stage",
                                                     "step",       "saved", "error",
                                                     "done",       "found", "results"};

const char *channel_type_name(ChannelType type)
{
    assert((unsigned)type < CHANNEL_TYPES);
    return type_name[type];
}

/* A field, and the message types that have the field, one bit per ChannelType. */
typedef struct ChannelFieldRow {
    Field field;
    unsigned types;
} ChannelFieldRow;

#define AS_INT .type = FIELD_INT, .min = INT32_MIN, .max = INT32_MAX
#define AS_INT64 .type = FIELD_INT64, .min = INT64_MIN, .max = INT64_MAX
#define AS_UINT64 .type = FIELD_INT64, .max = INT64_MAX
#define AS_DOUBLE .type = FIELD_LOSS
#define AS_BOOL .type = FIELD_BOOL
#define AS_TEXT .type = FIELD_VERBATIM
#define AS_LONG_TEXT .type = FIELD_STRING
#define AS_HASH .type = FIELD_HASH
#define AS_STAGE .type = FIELD_CHOICE, .names = train_stage_names, .n_names = STAGE_COUNT
#define ROW(key, member, kind, how, types_)                                                        \
    {                                                                                              \
        {.name = key,                                                                              \
         AS_##kind,                                                                                \
         .need = how,                                                                              \
         .offset = offsetof(ChannelMessage, member),                                               \
         .size = sizeof(((ChannelMessage *)NULL)->member)},                                        \
            types_                                                                                 \
    }
#define LIST(key, member, count, how, table, most, types_)                                         \
    {                                                                                              \
        {.name = key,                                                                              \
         .type = FIELD_ARRAY,                                                                      \
         .need = how,                                                                              \
         .offset = offsetof(ChannelMessage, member),                                               \
         .size = most,                                                                             \
         .fields = table,                                                                          \
         .n_fields = ELEMENTSOF(table),                                                            \
         .element_bytes = sizeof(((ChannelMessage *)NULL)->member[0]),                             \
         .count_offset = offsetof(ChannelMessage, count)},                                         \
            types_                                                                                 \
    }
#define FIELD(n, kind, types) ROW(#n, n, kind, JSON_REQUIRED, types)
/* A field that older programs do not send. If the field is missing, its member is 0. */
#define NEWER(n, member, kind, types) ROW(#n, member, kind, JSON_OPTIONAL, types)
#define T(t) (1u << CHANNEL_##t)
#define ASSIGN(n, kind, how) ROW(#n, assign.n, kind, how, T(ASSIGN))

static const Field held_fields[] = {
    {.name = "step", .type = FIELD_INT64, .need = JSON_REQUIRED, .min = 0, .max = INT64_MAX},
};

static const Field eval_number_fields[] = {
    {.name = "name",
     .type = FIELD_TEXT,
     .need = JSON_REQUIRED,
     .offset = offsetof(EvalNumber, name),
     .size = sizeof(((EvalNumber *)NULL)->name)},
    {.name = "value",
     .type = FIELD_LOSS,
     .need = JSON_REQUIRED,
     .offset = offsetof(EvalNumber, value)},
};

static const Field eval_artifact_fields[] = {
    {.name = "name",
     .type = FIELD_TEXT,
     .need = JSON_REQUIRED,
     .offset = offsetof(EvalArtifact, name),
     .size = sizeof(((EvalArtifact *)NULL)->name)},
    {.name = "uri",
     .type = FIELD_TEXT,
     .need = JSON_REQUIRED,
     .offset = offsetof(EvalArtifact, uri),
     .size = sizeof(((EvalArtifact *)NULL)->uri)},
};

_Static_assert(sizeof(EvalResults) <= sizeof(ChannelAssign), "{0} clears the whole union");

static const ChannelFieldRow rows[] = {
    FIELD(generation, INT64, ~T(HELLO)),
    FIELD(step, INT64,
          T(CHECKPOINT) | T(COMMITTED) | T(REFUSED) | T(STAGE) | T(STEP) | T(SAVED) | T(ERROR) |
              T(DONE) | T(READY) | T(FOUND) | T(RESULTS)),
    ASSIGN(rank, INT, JSON_REQUIRED),
    ASSIGN(world_size, INT, JSON_REQUIRED),
    ASSIGN(job, TEXT, JSON_REQUIRED),
    ASSIGN(node, TEXT, JSON_REQUIRED),
    ASSIGN(spec, LONG_TEXT, JSON_REQUIRED),
    ASSIGN(resume_uri, TEXT, JSON_REQUIRED),
    ASSIGN(resume_hash, HASH, JSON_REQUIRED),
    ASSIGN(resume_step, INT64, JSON_OPTIONAL),
    ASSIGN(adopt, BOOL, JSON_REQUIRED),
    ASSIGN(find, INT, JSON_OPTIONAL),
    ASSIGN(bind_address, TEXT, JSON_REQUIRED),
    ASSIGN(submission, TEXT, JSON_OPTIONAL),
    ASSIGN(sources, TEXT, JSON_OPTIONAL),
    ASSIGN(takes_over, TEXT, JSON_OPTIONAL),
    ASSIGN(secret, TEXT, JSON_OPTIONAL),
    ASSIGN(gpus, TEXT, JSON_OPTIONAL),
    ASSIGN(gpu, TEXT, JSON_OPTIONAL),
    ASSIGN(numerics, TEXT, JSON_REQUIRED),
    ASSIGN(startup_usec, UINT64, JSON_OPTIONAL),
    ASSIGN(alive_usec, UINT64, JSON_REQUIRED),
    FIELD(alive_usec, UINT64, T(ALIVE)),
    NEWER(lease_usec, lease_usec, UINT64, T(ALIVE)),
    FIELD(address, TEXT, T(RENDEZVOUS) | T(GO)),
    LIST("held", held.steps, held.n, JSON_OPTIONAL, held_fields, CHANNEL_HELD_MAX,
         T(GO) | T(COMMITTED)),
    FIELD(pid, INT, T(HELLO)),
    FIELD(stage, STAGE, T(STAGE) | T(ERROR)),
    NEWER(waited_usec, waited_usec, UINT64, T(STAGE)),
    NEWER(waits_rank, waits_rank, INT, T(STAGE)),
    NEWER(unnamed, unnamed, BOOL, T(STAGE) | T(ERROR)),
    FIELD(loss, DOUBLE, T(STEP)),
    FIELD(samples_per_sec, DOUBLE, T(STEP)),
    FIELD(samples_seen, INT64, T(STEP)),
    FIELD(steps, INT64, T(STEP)),
    FIELD(step_sec, DOUBLE, T(STEP)),
    NEWER(data_sec, data_sec, DOUBLE, T(STEP)),
    NEWER(saving_sec, saving_sec, DOUBLE, T(STEP)),
    NEWER(grad_norm, grad_norm, DOUBLE, T(STEP)),
    NEWER(lr, lr, DOUBLE, T(STEP)),
    NEWER(failed_saves, failed_saves, INT64, T(STEP)),
    NEWER(unsaved_since_usec, unsaved_since_usec, UINT64, T(STEP)),
    NEWER(save_error, save_error, TEXT, T(STEP)),
    NEWER(save_next_bytes, save_next_bytes, INT64, T(STEP)),
    NEWER(save_free_bytes, save_free_bytes, INT64, T(STEP)),
    NEWER(diverging_since, diverging_since, INT64, T(STEP)),
    NEWER(diverging, diverging, TEXT, T(STEP)),
    NEWER(metrics_lost, metrics_lost, INT64, T(STEP)),
    NEWER(metrics_lost_first, metrics_lost_first, INT64, T(STEP)),
    NEWER(metrics_lost_last, metrics_lost_last, INT64, T(STEP)),
    NEWER(write_sec, write_sec, DOUBLE, T(SAVED)),
    NEWER(blocked_sec, blocked_sec, DOUBLE, T(SAVED)),
    NEWER(saved_bytes, saved_bytes, INT64, T(SAVED)),
    NEWER(store_puts, store.puts, INT64, T(SAVED)),
    NEWER(store_gets, store.gets, INT64, T(SAVED)),
    NEWER(store_put_sec, store.put_sec, DOUBLE, T(SAVED)),
    NEWER(store_get_sec, store.get_sec, DOUBLE, T(SAVED)),
    FIELD(uri, TEXT, T(SAVED) | T(FOUND)),
    FIELD(hash, HASH, T(SAVED) | T(FOUND)),
    FIELD(digest, HASH, T(SAVED) | T(DONE) | T(FOUND)),
    NEWER(plans, plans, TEXT, T(SAVED) | T(FOUND)),
    FIELD(made_by, INT64, T(FOUND)),
    FIELD(more, BOOL, T(FOUND)),
    FIELD(exit_code, INT, T(ERROR)),
    NEWER(unmet, unmet, INT, T(ERROR)),
    NEWER(hung, hung, BOOL, T(ERROR)),
    NEWER(stuck, stuck, BOOL, T(ERROR)),
    FIELD(text, TEXT, T(ERROR) | T(HUNG)),
    LIST("numbers", results.numbers, results.n_numbers, JSON_REQUIRED, eval_number_fields,
         EVAL_NUMBERS_MAX, T(RESULTS)),
    LIST("artifacts", results.artifacts, results.n_artifacts, JSON_REQUIRED, eval_artifact_fields,
         EVAL_ARTIFACTS_MAX, T(RESULTS)),
    ROW("text", results.text, TEXT, JSON_REQUIRED, T(RESULTS)),
    ROW("seconds", results.seconds, DOUBLE, JSON_REQUIRED, T(RESULTS)),
    ROW("text", end, TEXT, JSON_REQUIRED, T(DONE)),
};

/* Returns the index of the first row with this name. A field that is in two structs of the union has two rows. */
static size_t first_of(const char *name)
{
    size_t at = 0;
    while (strcmp(rows[at].field.name, name) != 0)
        at++;
    return at;
}

bool channel_field(size_t i, ChannelField *ret)
{
    static const char *const words[] = {
        [FIELD_VERBATIM] = "text", [FIELD_STRING] = "text", [FIELD_INT] = "integer",
        [FIELD_INT64] = "integer", [FIELD_LOSS] = "number", [FIELD_BOOL] = "true, false",
        [FIELD_CHOICE] = "stage",  [FIELD_HASH] = "hash",   [FIELD_ARRAY] = "list",
    };
    size_t at = 0;
    for (size_t n = 0; at < ELEMENTSOF(rows); at++)
        if (first_of(rows[at].field.name) == at && n++ == i)
            break;
    if (at == ELEMENTSOF(rows))
        return false;
    const Field *f = &rows[at].field;
    *ret = (ChannelField){f->name, words[f->type], 0, f->need == JSON_OPTIONAL};
    for (; at < ELEMENTSOF(rows); at++)
        if (strcmp(rows[at].field.name, f->name) == 0)
            ret->types |= rows[at].types;
    return true;
}

int channel_encode(const ChannelMessage *message, char **ret, size_t *ret_bytes, Error *err)
{
    _cleanup_json_ json_t *json = json_pack("{s:s}", "type", channel_type_name(message->type));
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        if (rows[i].types & (1u << message->type))
            field_table_write(json, &rows[i].field, 1, message);

    _cleanup_free_ char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return error_set(err, -EINVAL, "%s: cannot encode the message",
                         channel_type_name(message->type));
    size_t n = strlen(text);
    if (n > CHANNEL_PACKET_MAX)
        return error_set(err, -EMSGSIZE, "%s: %zu bytes are more than a packet's %d",
                         channel_type_name(message->type), n, CHANNEL_PACKET_MAX);
    *ret = TAKE_PTR(text);
    *ret_bytes = n;
    return 0;
}

int channel_check_spec(const char *source, const char *spec, Error *err)
{
    _cleanup_json_ json_t *json = json_string(spec);
    _cleanup_free_ char *text = json_dumps(json, JSON_ENCODE_ANY);
    if (!text)
        return error_set(err, -EINVAL, "%s: not UTF-8", source);
    if (strlen(text) > CHANNEL_SPEC_MAX)
        return error_set(
            err, -EMSGSIZE,
            "%s: the file takes %zu bytes as a JSON string, and ranks receive at most %d", source,
            strlen(text), CHANNEL_SPEC_MAX);
    return 0;
}

int channel_decode(const char *packet, size_t n_bytes, ChannelMessage *ret, Error *err)
{
    _cleanup_json_ json_t *json = NULL;
    int r = json_parse("channel", packet, n_bytes, &json, err);
    if (r < 0)
        return -EBADMSG;

    ChannelMessage m = {0};
    int type = 0;
    JsonReader j = json_open("channel", json, JSON_ANY_KEYS, err);
    if (json_get_choice(&j, "type", JSON_REQUIRED, type_name, CHANNEL_TYPES, &type))
        m.type = (ChannelType)type;
    for (size_t i = 0; i < ELEMENTSOF(rows) && j.r == 0; i++)
        if (rows[i].types & (1u << m.type))
            field_table_read(&j, &rows[i].field, 1, &m);
    if (json_close(&j) < 0) {
        channel_message_clear(&m);
        return -EBADMSG;
    }
    *ret = m;
    explicit_bzero(&m, sizeof(m)); /* an assign message contains a secret */
    return 0;
}

void channel_message_clear(ChannelMessage *message)
{
    if (message->type == CHANNEL_ASSIGN)
        free(message->assign.spec);
    explicit_bzero(message, sizeof(*message));
}

/* channel.c - see channel.h. The codec is a table of fields per message type. */
#include "protocol/channel.h"

#include "base/json.h"
#include "base/secret.h"
#include "protocol/reference.h"

#include <math.h>
#include <string.h>
#include <sys/socket.h>

static const char *const type_name[CHANNEL_TYPES] = {
    "assign",     "go",    "alive", "checkpoint", "stop",  "committed", "refused", "hello",
    "rendezvous", "ready", "stage", "step",       "saved", "error",     "done",    "found"};

static const char *const stage_name[STAGE_COUNT] = {"starting", "restoring", "ready",
                                                    "joining",  "loading",   "computing",
                                                    "reducing", "updating",  "gathering",
                                                    "saving",   "leaving"};

const char *channel_type_name(ChannelType type)
{
    assert((unsigned)type < CHANNEL_TYPES);
    return type_name[type];
}

const char *train_stage_name(TrainStage stage)
{
    assert((unsigned)stage < STAGE_COUNT);
    return stage_name[stage];
}

typedef enum FieldKind {
    FIELD_INT,
    FIELD_INT64,
    FIELD_UINT64,
    FIELD_DOUBLE,
    FIELD_BOOL,
    FIELD_TEXT,
    FIELD_LONG_TEXT,
    FIELD_HASH,
    FIELD_STAGE
} FieldKind;

typedef struct ChannelFieldRow {
    const char *name;
    FieldKind kind;
    size_t offset, size;
    unsigned types; /* bit per ChannelType */
    bool newer;     /* older trainers do not say it; 0 then */
} ChannelFieldRow;

#define FIELD_OF(n, member, k, types_, newer_)                                                     \
    {                                                                                              \
        n, k, offsetof(ChannelMessage, member), sizeof(((ChannelMessage *)NULL)->member), types_,  \
            newer_                                                                                 \
    }
#define FIELD(n, k, types_) FIELD_OF(#n, n, k, types_, false)
#define NEWER(n, member, k, types_) FIELD_OF(#n, member, k, types_, true)
#define T(t) (1u << CHANNEL_##t)

static const ChannelFieldRow fields[] = {
    FIELD(generation, FIELD_INT64, ~T(HELLO)),
    FIELD(step, FIELD_INT64,
          T(CHECKPOINT) | T(COMMITTED) | T(REFUSED) | T(STAGE) | T(STEP) | T(SAVED) | T(ERROR) |
              T(DONE) | T(READY) | T(FOUND)),
    FIELD(rank, FIELD_INT, T(ASSIGN)),
    FIELD(world_size, FIELD_INT, T(ASSIGN)),
    FIELD(job, FIELD_TEXT, T(ASSIGN)),
    FIELD(node, FIELD_TEXT, T(ASSIGN)),
    FIELD(spec, FIELD_LONG_TEXT, T(ASSIGN)),
    FIELD(resume_uri, FIELD_TEXT, T(ASSIGN)),
    FIELD(resume_hash, FIELD_HASH, T(ASSIGN)),
    FIELD(adopt, FIELD_BOOL, T(ASSIGN)),
    NEWER(find, find, FIELD_INT, T(ASSIGN)),
    FIELD(bind_address, FIELD_TEXT, T(ASSIGN)),
    NEWER(submission, submission, FIELD_TEXT, T(ASSIGN)),
    NEWER(sources, sources, FIELD_TEXT, T(ASSIGN)),
    NEWER(takes_over, takes_over, FIELD_TEXT, T(ASSIGN)),
    NEWER(secret, secret, FIELD_TEXT, T(ASSIGN)),
    FIELD(numerics, FIELD_TEXT, T(ASSIGN)),
    FIELD(alive_usec, FIELD_UINT64, T(ALIVE) | T(ASSIGN)),
    FIELD(address, FIELD_TEXT, T(RENDEZVOUS) | T(GO)),
    FIELD(pid, FIELD_INT, T(HELLO)),
    FIELD(stage, FIELD_STAGE, T(STAGE) | T(ERROR)),
    NEWER(waited_usec, waited_usec, FIELD_UINT64, T(STAGE)),
    NEWER(waits_rank, waits_rank, FIELD_INT, T(STAGE)),
    FIELD(loss, FIELD_DOUBLE, T(STEP)),
    FIELD(samples_per_sec, FIELD_DOUBLE, T(STEP)),
    FIELD(samples_seen, FIELD_INT64, T(STEP)),
    FIELD(steps, FIELD_INT64, T(STEP)),
    FIELD(step_sec, FIELD_DOUBLE, T(STEP)),
    NEWER(data_sec, data_sec, FIELD_DOUBLE, T(STEP)),
    NEWER(failed_saves, failed_saves, FIELD_INT64, T(STEP)),
    NEWER(unsaved_since_usec, unsaved_since_usec, FIELD_UINT64, T(STEP)),
    NEWER(save_error, save_error, FIELD_TEXT, T(STEP)),
    NEWER(metrics_lost, metrics_lost, FIELD_INT64, T(STEP)),
    NEWER(metrics_lost_first, metrics_lost_first, FIELD_INT64, T(STEP)),
    NEWER(metrics_lost_last, metrics_lost_last, FIELD_INT64, T(STEP)),
    NEWER(write_sec, write_sec, FIELD_DOUBLE, T(SAVED)),
    NEWER(blocked_sec, blocked_sec, FIELD_DOUBLE, T(SAVED)),
    NEWER(saved_bytes, saved_bytes, FIELD_INT64, T(SAVED)),
    NEWER(store_puts, store.puts, FIELD_INT64, T(SAVED)),
    NEWER(store_gets, store.gets, FIELD_INT64, T(SAVED)),
    NEWER(store_put_sec, store.put_sec, FIELD_DOUBLE, T(SAVED)),
    NEWER(store_get_sec, store.get_sec, FIELD_DOUBLE, T(SAVED)),
    FIELD(uri, FIELD_TEXT, T(SAVED) | T(FOUND)),
    FIELD(hash, FIELD_HASH, T(SAVED) | T(FOUND)),
    FIELD(digest, FIELD_HASH, T(SAVED) | T(DONE) | T(FOUND)),
    FIELD(made_by, FIELD_INT64, T(FOUND)),
    FIELD(more, FIELD_BOOL, T(FOUND)),
    FIELD(exit_code, FIELD_INT, T(ERROR)),
    NEWER(unmet, unmet, FIELD_INT, T(ERROR)),
    FIELD(text, FIELD_TEXT, T(ERROR) | T(DONE)),
};

bool channel_field(size_t i, ChannelField *ret)
{
    static const char *const kind_name[] = {"integer", "integer",     "integer",
                                            "number",  "true, false", "text",
                                            "text",    "hash",        "stage"}; /* as FieldKind */
    if (i >= ELEMENTSOF(fields))
        return false;
    *ret =
        (ChannelField){fields[i].name, kind_name[fields[i].kind], fields[i].types, fields[i].newer};
    return true;
}

/* What a store or a kernel said may be cut within a character, or be none: its other words count. */
static json_t *text_encode(const char *text)
{
    json_t *whole = json_string(text);
    if (whole)
        return whole;
    _cleanup_free_ char *plain = strdup(text);
    for (char *p = plain; p && *p; p++)
        *p = (unsigned char)*p < 0x80 ? *p : '?';
    return plain ? json_string(plain) : NULL;
}

static json_t *field_encode(const ChannelFieldRow *f, const ChannelMessage *m)
{
    const char *at = (const char *)m + f->offset;
    char text[HASH_TEXT_BYTES];

    switch (f->kind) {
    case FIELD_INT:
        return json_integer(*(const int *)at);
    case FIELD_INT64:
        return json_integer(*(const int64_t *)at);
    case FIELD_UINT64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case FIELD_DOUBLE: /* JSON has no NaN: a loss that is not finite travels as text */
        return isfinite(*(const double *)at) ? json_real(*(const double *)at) : json_string("nan");
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_TEXT:
        return text_encode(at);
    case FIELD_LONG_TEXT:
        return json_string_nocheck(*(char *const *)at ? *(char *const *)at : "");
    case FIELD_HASH:
        return json_string(hash_format(*(const Hash *)at, text));
    case FIELD_STAGE:
        return json_string(train_stage_name(*(const TrainStage *)at));
    }
    return NULL;
}

int channel_encode(const ChannelMessage *message, char **ret, size_t *ret_bytes, Error *err)
{
    _cleanup_json_ json_t *json = json_pack("{s:s}", "type", channel_type_name(message->type));
    if (!json)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < ELEMENTSOF(fields); i++)
        if (fields[i].types & (1u << message->type))
            if (json_object_set_new(json, fields[i].name, field_encode(&fields[i], message)) < 0)
                return error_set(err, -EINVAL, "%s: cannot encode %s",
                                 channel_type_name(message->type), fields[i].name);

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

static void decode_double(JsonReader *r, const char *name, JsonNeed need, double *ret)
{
    json_t *any = NULL;
    if (json_get_any(r, name, need, &any) && json_is_string(any))
        *ret = NAN;
    else
        json_get_double(r, name, need, -INFINITY, INFINITY, ret);
}

static void decode_hash(JsonReader *r, const char *name, Hash *ret)
{
    const char *text;
    if (json_get_string(r, name, JSON_REQUIRED, &text) && hash_parse(text, ret) < 0)
        json_refuse(r, name, "%.40s is not a hash", text);
}

static void field_decode(const ChannelFieldRow *f, JsonReader *r, ChannelMessage *m)
{
    char *at = (char *)m + f->offset;
    int64_t v = 0;
    int choice = 0;
    const char *text;
    const JsonNeed need = f->newer ? JSON_OPTIONAL : JSON_REQUIRED;

    switch (f->kind) {
    case FIELD_INT:
        if (json_get_int(r, f->name, need, INT32_MIN, INT32_MAX, &v))
            *(int *)at = (int)v;
        break;
    case FIELD_INT64:
        json_get_int(r, f->name, need, INT64_MIN, INT64_MAX, (int64_t *)at);
        break;
    case FIELD_UINT64:
        if (json_get_int(r, f->name, need, 0, INT64_MAX, &v))
            *(uint64_t *)at = (uint64_t)v;
        break;
    case FIELD_DOUBLE:
        decode_double(r, f->name, need, (double *)at);
        break;
    case FIELD_BOOL:
        json_get_bool(r, f->name, JSON_REQUIRED, (bool *)at);
        break;
    case FIELD_TEXT:
        json_get_text(r, f->name, need, at, f->size);
        break;
    case FIELD_LONG_TEXT:
        if (json_get_string(r, f->name, JSON_REQUIRED, &text)) {
            free(*(char **)at);
            *(char **)at = strdup(text);
            if (!*(char **)at)
                json_out_of_memory(r);
        }
        break;
    case FIELD_HASH:
        decode_hash(r, f->name, (Hash *)at);
        break;
    case FIELD_STAGE:
        if (json_get_choice(r, f->name, JSON_REQUIRED, stage_name, STAGE_COUNT, &choice))
            *(TrainStage *)at = (TrainStage)choice;
        break;
    }
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
    for (size_t i = 0; i < ELEMENTSOF(fields) && j.r == 0; i++)
        if (fields[i].types & (1u << m.type))
            field_decode(&fields[i], &j, &m);
    if (json_close(&j) < 0) {
        channel_message_clear(&m);
        return -EBADMSG;
    }
    *ret = m;
    explicit_bzero(m.secret, sizeof(m.secret));
    return 0;
}

int channel_send(int fd, const ChannelMessage *message, Error *err)
{
    _cleanup_secret_ char *packet = NULL;
    size_t n;
    int r = channel_encode(message, &packet, &n, err);
    if (r < 0)
        return r;
    for (;;) {
        if (send(fd, packet, n, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        r = errno == ECONNRESET ? -EPIPE : -errno;
        return error_errno(err, r, "cannot send %s", channel_type_name(message->type));
    }
}

int channel_receive(int fd, ChannelMessage *ret, Error *err)
{
    static const int flags = MSG_TRUNC | MSG_DONTWAIT;
    _cleanup_secret_ char *packet = malloc(CHANNEL_PACKET_MAX);
    if (!packet)
        return error_set(err, -ENOMEM, "out of memory");

    ssize_t n;
    do
        n = recv(fd, packet, CHANNEL_PACKET_MAX, flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_errno(err, errno == ECONNRESET ? -EPIPE : -errno, "cannot receive");
    if (n == 0)
        return error_set(err, -EPIPE, "the other side closed the channel");
    if (n > CHANNEL_PACKET_MAX)
        return error_set(err, -EBADMSG, "a packet of %zd bytes is longer than %d", n,
                         CHANNEL_PACKET_MAX);
    return channel_decode(packet, (size_t)n, ret, err);
}

void channel_message_clear(ChannelMessage *message)
{
    free(message->spec);
    explicit_bzero(message, sizeof(*message));
}

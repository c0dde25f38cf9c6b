/* SPDX-License-Identifier: Apache-2.0 */
/* fields-channel.c - writes and reads every message between daemon and trainer, by the table of its
 * fields. */
#include "tests/versions/fields.h"

#include "protocol/channel.c" /* channel.c's table of fields is private */

#include <stdio.h>

static void fill_field(const Field *f, void *m, int n)
{
    char *at = (char *)m + f->offset;
    switch (f->type) {
    case FIELD_INT:
        *(int *)at = n;
        break;
    case FIELD_INT64:
        *(int64_t *)at = 1000 + n;
        break;
    case FIELD_LOSS:
        *(double *)at = n + 0.5;
        break;
    case FIELD_BOOL:
        *(bool *)at = true;
        break;
    case FIELD_VERBATIM:
    case FIELD_TEXT: /* of an element of a list */
        fields_text(f->name, 0, at, f->size);
        break;
    case FIELD_STRING:
        *(char **)at = strdup("{\"name\": \"long\"}");
        assert(*(char **)at);
        break;
    case FIELD_HASH:
        *(Hash *)at = (Hash){(uint64_t)n, ~(uint64_t)n};
        break;
    case FIELD_CHOICE:
        *(TrainStage *)at = (TrainStage)(n % STAGE_COUNT);
        break;
    case FIELD_ARRAY: /* one element */
        *(size_t *)((char *)m + f->count_offset) = 1;
        for (size_t i = 0; i < f->n_fields; i++)
            fill_field(&f->fields[i], at, n + (int)i);
        break;
    default:
        assert(!"a type of field that no message has");
    }
}

static void write_message(ChannelType type, int shift)
{
    Error err = ERROR_INIT;
    ChannelMessage m = {.type = type};
    size_t n;
    _cleanup_free_ char *text = NULL;
    char kind[64];
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        if (rows[i].types & (1u << type))
            fill_field(&rows[i].field, &m, (int)i + 1 + shift);
    int r = channel_encode(&m, &text, &n, &err);
    assert(r == 0);
    channel_message_clear(&m);
    (void)snprintf(kind, sizeof(kind), "channel %s", channel_type_name(type));
    fields_line(kind, text);
    if (shift > 0)
        return;
    _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        if (rows[i].field.need == JSON_OPTIONAL)
            (void)json_object_del(json, rows[i].field.name);
    _cleanup_free_ char *least = json_dumps(json, JSON_COMPACT);
    fields_line(kind, least);
}

void channel_write(void)
{
    for (int type = 0; type < CHANNEL_TYPES; type++)
        write_message((ChannelType)type, 0);
    for (int stage = 1; stage < STAGE_COUNT; stage++) /* one message for each stage */
        write_message(CHANNEL_STAGE, stage);
}

int channel_read(const char *kind, const char *text, bool newer)
{
    static const char before[] = "channel ";
    if (strncmp(kind, before, strlen(before)) != 0)
        return -1;
    _cleanup_json_ json_t *then = json_loads(text, 0, NULL);
    assert(json_is_object(then));
    _cleanup_json_ json_t *planted = json_deep_copy(then);
    int r = json_object_set_new(planted, "of_a_later_version", json_true());
    assert(r == 0);
    _cleanup_free_ char *packet = json_dumps(planted, JSON_COMPACT), *written = NULL;
    Error err = ERROR_INIT;
    ChannelMessage m = {0};
    size_t n;
    if (channel_decode(packet, strlen(packet), &m, &err) < 0) {
        printf("%s: %s\n", kind, err.text);
        return 1;
    }
    r = channel_encode(&m, &written, &n, &err);
    assert(r == 0);
    channel_message_clear(&m);
    if (newer) /* a receiver ignores fields that it does not know */
        return 0;
    _cleanup_json_ json_t *now = json_loads(written, 0, NULL);
    return fields_holds(kind, "", then, now);
}

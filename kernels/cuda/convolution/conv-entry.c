/* SPDX-License-Identifier: Apache-2.0 */
/* conv-entry.c - see conv-entry.h. */
#include "kernels/cuda/convolution/conv-entry.h"

#include "base/memory.h"

#include <stdlib.h>

static void read_knobs(JsonReader *knobs, ConvChoice *ret)
{
    const char *key;
    json_t *value;
    if (json_object_size(knobs->object) > CONV_KNOBS_MAX) {
        json_refuse(knobs, "all", "more than %d", CONV_KNOBS_MAX);
        return;
    }
    json_object_foreach (knobs->object, key, value) {
        char *end;
        const long type = strtol(key, &end, 10);
        int64_t chosen = 0;
        if (*key < '0' || *key > '9' || *end || type > INT32_MAX)
            json_refuse(knobs, key, "is not the number of a knob");
        if (!json_get_int(knobs, key, JSON_REQUIRED, INT32_MIN, INT32_MAX, &chosen))
            return;
        ret->knobs[ret->n_knobs].type = (int)type;
        ret->knobs[ret->n_knobs++].value = chosen;
    }
}

int conv_entry_read(const char *operation, const json_t *entry, ConvChoice *ret, Error *err)
{
    ConvChoice choice = {0};
    int64_t workspace; /* not used: the plan that is made reports its own workspace */
    if (!json_is_object(entry))
        return error_set(err, -EINVAL, "%s: its plan is not an object", operation);
    JsonReader r = json_open(operation, (json_t *)(uintptr_t)entry, JSON_KNOWN_KEYS, err);
    char told[16]; /* not used: the reader of the plan set has checked "dw" and "variant" */
    (void)json_get_text(&r, "dw", JSON_OPTIONAL, told, sizeof(told));
    (void)json_get_text(&r, "variant", JSON_OPTIONAL, told, sizeof(told));
    (void)json_get_int(&r, "engine", JSON_REQUIRED, 0, INT32_MAX, &choice.engine);
    (void)json_get_int(&r, "workspace", JSON_REQUIRED, 0, INT64_C(1) << 40, &workspace);
    JsonReader knobs = json_get_object(&r, "knobs", JSON_REQUIRED);
    if (knobs.object)
        read_knobs(&knobs, &choice);
    (void)json_close(&knobs); /* an error is also recorded in r */
    int result = json_close(&r);
    if (result == 0)
        *ret = choice;
    return result;
}

json_t *conv_entry_new(const ConvChoice *choice, int64_t workspace_bytes)
{
    json_t *knobs = json_object();
    for (int i = 0; i < choice->n_knobs; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "%d", choice->knobs[i].type);
        int r = json_object_set_new(knobs, key, json_integer((json_int_t)choice->knobs[i].value));
        assert(r == 0);
    }
    return memory_given(json_pack("{s:I,s:o,s:I}", "engine", (json_int_t)choice->engine, "knobs",
                                  knobs, "workspace", (json_int_t)workspace_bytes));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* json-build.c - see json-build.h. */
#include "base/json/json-build.h"

#include <sys/resource.h>

JsonBuild json_build(void) { return (JsonBuild){.object = json_object()}; }

void json_add(JsonBuild *b, const char *key, json_t *value)
{
    b->failed |= json_object_set_new(b->object, key, value) < 0; /* also fails if value is NULL */
}

void json_add_text(JsonBuild *b, const char *key, const char *text)
{
    json_add(b, key, json_string(text));
}

void json_add_text_if(JsonBuild *b, const char *key, const char *text)
{
    if (text)
        json_add_text(b, key, text);
}

void json_add_int(JsonBuild *b, const char *key, int64_t value)
{
    json_add(b, key, json_integer(value));
}

void json_add_real(JsonBuild *b, const char *key, double value)
{
    json_add(b, key, json_real(value));
}

void json_add_bool(JsonBuild *b, const char *key, bool value)
{
    json_add(b, key, json_boolean(value));
}

void json_add_limit(JsonBuild *b, const char *key, int resource)
{
    struct rlimit limit;
    const bool is_finite =
        getrlimit((__rlimit_resource_t)resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    json_add_int(b, key, is_finite ? (int64_t)limit.rlim_cur : -1);
}

json_t *json_build_end(JsonBuild *b)
{
    json_t *object = b->object;
    b->object = NULL;
    if (!b->failed)
        return object;
    json_decref(object);
    return NULL;
}

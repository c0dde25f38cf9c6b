/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c - see fields.h. */
#include "tests/versions/fields.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

void fields_line(const char *kind, const char *text) { printf("%s\t%s\n", kind, text); }

void fields_text(const char *name, int i, char *ret, size_t size)
{
    if (strcmp(name, "secret") == 0) { /* this text has a fixed form */
        memset(ret, 'a' + i, 64);
        ret[64] = '\0';
        return;
    }
    (void)snprintf(ret, MIN(size, (size_t)32), "%s-%d", name,
                   i); /* 31 characters, short enough for the name of a node */
    for (char *p = ret; *p; p++)
        if (*p == '_')
            *p = '-';
    if (ret[strlen(ret) - 1] == '-')
        ret[strlen(ret) - 1] = '\0';
}

int fields_holds(const char *kind, const char *path, const json_t *then, const json_t *now)
{
    int n = 0;
    char inner[512];
    const char *key;
    json_t *value;
    if (json_is_object(then) && json_is_object(now)) {
        json_object_foreach ((json_t *)(uintptr_t)then, key, value) { /* the loop only reads */
            (void)snprintf(inner, sizeof(inner), "%s.%s", path, key);
            n += fields_holds(kind, inner, value, json_object_get(now, key));
        }
        return n;
    }
    if (json_is_array(then) && json_is_array(now) &&
        json_array_size(then) == json_array_size(now)) {
        for (size_t i = 0; i < json_array_size(then); i++) {
            (void)snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
            n += fields_holds(kind, inner, json_array_get(then, i), json_array_get(now, i));
        }
        return n;
    }
    if (json_equal(then, now))
        return 0;
    _cleanup_free_ char *a = json_dumps(then, JSON_COMPACT | JSON_ENCODE_ANY);
    _cleanup_free_ char *b = now ? json_dumps(now, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    printf("%s: %s: %.200s was written, %.200s comes back\n", kind, path, a, b ?: "nothing");
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - see print.h. */
#include "ctl/print.h"

#include "base/cleanup.h"

static void print_digits(json_t *json, size_t digits)
{
    _cleanup_free_ char *text =
        json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(digits)) : NULL;
    printf("%s\n", text ? text : "null");
    json_decref(json);
}

void print_json(json_t *json) { print_digits(json, 15); }

void print_json_exact(json_t *json) { print_digits(json, 17); }

const char *json_text(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

double json_number(json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

long long json_count(json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

bool json_has_number(json_t *object, const char *key)
{
    return json_is_number(json_object_get(object, key));
}

const char *print_digest(Hash digest, char text[HASH_TEXT_BYTES])
{
    return hash_equal(digest, (Hash){0}) ? NULL : hash_format(digest, text);
}

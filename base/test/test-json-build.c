/* SPDX-License-Identifier: Apache-2.0 */
/* test-json-build.c - tests of objects that are built key by key: their keys, the order of the keys, and which values
 * make the object NULL. */
#include "base/json/json-build.h"

#include "base/cleanup.h"
#include "base/macro.h"
#include "base/test/testing-leaks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void keys_keep_their_order(_unused_ void **state)
{
    JsonBuild b = json_build();
    json_add_text(&b, "z", "a text");
    json_add_int(&b, "y", INT64_MIN);
    json_add_real(&b, "x", 0.5);
    json_add_bool(&b, "w", true);
    json_add_text_if(&b, "left out", NULL);
    json_add_text_if(&b, "v", "");
    json_add(&b, "u", json_null());
    json_add_bool(&b, "w", false); /* a repeated key: the last value counts, in the old place */
    json_t *object = json_build_end(&b);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(
        text, "{\"z\":\"a "
              "text\",\"y\":-9223372036854775808,\"x\":0.5,\"w\":false,\"v\":\"\",\"u\":null}");
    free(text);
    json_decref(object);
}

/* A single invalid value makes the whole object NULL, and no memory is leaked. */
static void build_one(void *arg)
{
    const int *kind = arg;
    JsonBuild b = json_build();
    json_add_text(&b, "before", "x");
    if (*kind == 0)
        json_add_text(&b, "key", NULL);
    else if (*kind == 1)
        json_add_text(&b, "key", "\xff");
    else if (*kind == 2)
        json_add_real(&b, "key", NAN);
    else if (*kind == 3)
        json_add_real(&b, "key", INFINITY);
    else if (*kind == 4)
        json_add(&b, "key", NULL);
    else
        json_add_text(&b, "\xff", "key");
    json_add_text(&b, "behind", "x");
    assert_null(json_build_end(&b));
}

static void a_value_that_is_none_fails_the_whole(_unused_ void **state)
{
    for (int kind = 0; kind < 6; kind++)
        leaks_none(build_one, &kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_keep_their_order),
        cmocka_unit_test(a_value_that_is_none_fails_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

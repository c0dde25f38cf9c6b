/* SPDX-License-Identifier: Apache-2.0 */
/* test-canned-pictures.c - the canned pictures have not changed, cover every kind, and are decoded. */
#include "base/test/testing.h"
#include "encoders/pictures/picture-decode.h"
#include "prep/encode/canned-pictures.h"

#include <string.h>

static void their_bytes_never_change(void **state)
{
    (void)state;
    char text[HASH_TEXT_BYTES];
    const char *name;
    const void *data;
    size_t n_bytes, n = 0;
    Hash all[64] = {{0}};
    for (; (n_bytes = canned_picture(n, &name, &data)) > 0; n++) {
        assert_true(n < ELEMENTSOF(all));
        all[n] = hash_bytes(data, n_bytes);
    }
    assert_int_equal(n, 18);
    assert_string_equal(hash_format(hash_bytes(all, n * sizeof(all[0])), text),
                        "39634673b3877e98275205bc6fd9ecf9");
}

static void each_is_decoded(void **state)
{
    (void)state;
    uint8_t rgb[16 * 16 * 3];
    PictureRecipe recipe = picture_recipe_default;
    recipe.side = 16;
    const char *name;
    const void *data;
    size_t n_bytes;
    for (size_t i = 0; (n_bytes = canned_picture(i, &name, &data)) > 0; i++) {
        Error err = ERROR_INIT;
        if (picture_decode(&recipe, data, n_bytes, rgb, &err) != 0)
            fail_msg("%s: %s", name, err.text);
    }
}

/* The hash is that of libjpeg-turbo 2.1.5, libpng 1.6.39 and libwebp 1.2.4. With other versions, another hash is not an
 * error, but machines with such versions make other datasets. */
static void they_become_what_they_became(void **state)
{
    (void)state;
    char text[HASH_TEXT_BYTES];
    Hash hash;
    Error err = ERROR_INIT;
    assert_int_equal(canned_pictures_hash(&hash, &err), 0);
    assert_string_equal(hash_format(hash, text), "92c0cf369051e2d3a56c06c1689d5f63");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_bytes_never_change),
        cmocka_unit_test(each_is_decoded),
        cmocka_unit_test(they_become_what_they_became),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

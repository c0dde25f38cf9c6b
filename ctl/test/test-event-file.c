/* SPDX-License-Identifier: Apache-2.0 */
/* test-event-file.c - event files have exactly the bytes that protobuf and the record framing require. */
#include "ctl/job/results/event-file.h"

#include "base/number/hash.h"
#include "base/test/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Written {
    char *bytes;
    size_t n;
} Written;

static uint64_t little(const Written *w, size_t at, size_t n)
{
    uint64_t value = 0;
    assert_true(at + n <= w->n);
    for (size_t i = n; i-- > 0;)
        value = value << 8 | (uint8_t)w->bytes[at + i];
    return value;
}

/* Reverses the mask of a checksum. */
static uint32_t unmasked(uint64_t masked)
{
    uint32_t turned = (uint32_t)masked - UINT32_C(0xa282ead8);
    return turned >> 17 | turned << 15;
}

/* Checks the framing of the only record and returns its data. */
static const char *check_record(const Written *w, size_t n_bytes)
{
    assert_int_equal(w->n, n_bytes + 16);
    assert_int_equal(little(w, 0, 8), n_bytes);
    assert_int_equal(unmasked(little(w, 8, 4)), crc32c(0, w->bytes, 8));
    assert_int_equal(unmasked(little(w, 12 + n_bytes, 4)), crc32c(0, w->bytes + 12, n_bytes));
    return w->bytes + 12;
}

static void the_checksum_is_castagnolis(_unused_ void **state)
{
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
}

static void a_file_begins_with_its_version(_unused_ void **state)
{
    Written w = {0};
    FILE *to = open_memstream(&w.bytes, &w.n);
    assert_non_null(to);
    event_file_begin(to, 1.5);
    (void)fclose(to); /* cannot fail: a memory stream */
    const char wanted[] = "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                          "brain.Event:2";
    assert_memory_equal(check_record(&w, sizeof(wanted) - 1), wanted, sizeof(wanted) - 1);
    free(w.bytes);
}

static void a_step_has_its_values(_unused_ void **state)
{
    const EventScalar scalars[] = {{"loss", 0.5}, {"gone", NAN}, {"lr", -2}};
    Written w = {0};
    FILE *to = open_memstream(&w.bytes, &w.n);
    assert_non_null(to);
    event_file_add(to, 1.5, 300, scalars, ELEMENTSOF(scalars));
    (void)fclose(to);                                /* cannot fail: a memory stream */
    const char wanted[] = "\x09\0\0\0\0\0\0\xf8\x3f" /* wall time 1.5 */
                          "\x10\xac\x02"             /* step 300 */
                          "\x2a\x18"                 /* summary of 24 bytes */
                          "\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"
                          "\x0a\x09\x0a\x02lr\x15\0\0\0\xc0";
    assert_memory_equal(check_record(&w, sizeof(wanted) - 1), wanted, sizeof(wanted) - 1);
    free(w.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_is_castagnolis),
        cmocka_unit_test(a_file_begins_with_its_version),
        cmocka_unit_test(a_step_has_its_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

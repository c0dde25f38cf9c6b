/* SPDX-License-Identifier: Apache-2.0 */
/* test-report.c - reports of parts and units are the same after they are written and parsed; other texts are refused;
 * the line about an encoding's progress. */
#include "base/memory.h"
#include "base/test/testing.h"
#include "prep/encode/progress.h"

#include <string.h>

static PartReport make_part(void)
{
    PartReport part = {.identity = {1, 2}, .unit = 3, .part = 4, .n_raw = 5};
    part.file = (PartFile){.name = "u00003-p0004.mds",
                           .n_samples = 2,
                           .n_bytes = 77,
                           .xxh3_64 = "0123456789abcdef",
                           .samples = part_file_hashes((uint64_t[]){1, UINT64_MAX}, 2)};
    part_report_add(&part, 24, "b", "decode", "is \"no\" picture\n");
    part_report_add(&part, 21, "a", "named", "somebody said so");
    part_report_add(&part, 22, "caf\xe9", "no-image", "caf\xe9");
    part_report_sort(&part);
    return part;
}

static void a_part_is_read_as_it_was_written(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    PartReport part = make_part(), again;
    char *text = part_report_format(&part);
    assert_int_equal(part_report_parse("part", text, strlen(text), &again, &err), 0);
    char *second = part_report_format(&again);
    assert_string_equal(text, second);
    assert_int_equal(again.n_rows, 3);
    assert_true(again.rows[0].index == 21 && again.rows[2].index == 24);
    assert_string_equal(again.rows[2].text, "is \"no\" picture\n");
    assert_string_equal(again.rows[1].text, "caf\xef\xbf\xbd");
    assert_string_equal(again.file.xxh3_64, "0123456789abcdef");
    assert_string_equal(again.file.samples, "0000000000000001ffffffffffffffff");
    assert_true(part_file_sample(&again.file, 0) == 1 &&
                part_file_sample(&again.file, 1) == UINT64_MAX);
    char *rows = part_report_rows(&again);
    assert_non_null(strstr(rows, "{\"index\":21,\"key\":\"a\",\"reason\":\"named\","
                                 "\"text\":\"somebody said so\"}\n"));

    /* A text that is cut or lacks a key is refused. */
    for (size_t n = 0; n + 2 < strlen(text); n += 7) {
        PartReport none = {0};
        assert_true(part_report_parse("part", text, n, &none, &err) < 0);
        assert_null(none.rows);
    }
    /* A text in which a sample has no hash is refused. */
    *strstr(text, "ffff") = 'g';
    PartReport bad = {0};
    assert_int_equal(part_report_parse("part", text, strlen(text), &bad, &err), -EINVAL);
    assert_non_null(strstr(err.text, "samples_xxh3_64"));
    part.file.n_samples = 3;
    char *many = part_report_format(&part);
    assert_int_equal(part_report_parse("part", many, strlen(many), &bad, &err), -EINVAL);
    free(many);
    assert_int_equal(part_report_parse("part", "{\"unit\": 1}", 11, &bad, &err), -EINVAL);
    assert_non_null(strstr(err.text, "identity"));
    /* Rows by themselves are also the same after they are written and parsed. */
    PartReport lines = {0};
    assert_int_equal(part_report_parse_rows("rows", rows, strlen(rows), &lines, &err), 0);
    char *rows_again = part_report_rows(&lines);
    assert_string_equal(rows, rows_again);
    part_report_clear(&lines);
    free(rows_again);
    assert_int_equal(part_report_parse_rows("rows", "", 0, &lines, &err), 0);
    assert_true(part_report_parse_rows("rows", rows, strlen(rows) - 3, &lines, &err) < 0);
    char *twice = memory_format("%s%s", rows, rows);
    assert_int_equal(part_report_parse_rows("rows", twice, strlen(twice), &lines, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not in order"));
    free(twice);
    free(text);
    free(second);
    free(rows);
    part_report_clear(&part);
    part_report_clear(&again);
}

static void a_unit_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    PartReport part = make_part(), empty = {.n_raw = 5};
    UnitReport unit = {.unit = 3, .name = strdup("00003.tar")}, again;
    part_report_add(&empty, 9, "z", "decode", "");
    unit_report_add(&unit, &part);
    unit_report_add(&unit, &empty);
    assert_true(unit.n_raw == 10 && unit.n_parts_raw == 2 && unit.n_files == 1);
    assert_int_equal(unit.n_named, 1);
    char *text = unit_report_format(&unit), line[200];
    assert_int_equal(unit_report_parse("unit", text, strlen(text), &again, &err), 0);
    assert_string_equal(again.name, "00003.tar");
    assert_string_equal(again.named[0].key, "a");
    assert_string_equal(reasons_format(&again.reasons, line, sizeof(line)),
                        "2 decode, 1 named, 1 no-image");
    free(text);
    part_report_clear(&part);
    part_report_clear(&empty);
    unit_report_clear(&unit);
    unit_report_clear(&again);
}

/* Both rows of a key whose members are not adjacent get the same reason; other rows that lack a member keep their
 * reasons. */
static void halves_are_told_alike(void **state)
{
    (void)state;
    static const struct {
        const char *key, *before, *after;
    } rows[] = {
        {"a", "no-caption", "apart"},      {"b", "no-image", "apart"},
        {"c", "no-caption", "no-caption"}, {"b", "apart", "apart"},
        {"a", "apart", "apart"},           {"d", "decode", "decode"},
        {"d", "apart", "apart"},           {"a", "duplicate-key", "duplicate-key"},
    };
    PartReport all = {0}, later = {0};
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        part_report_add(i < 3 ? &all : &later, (int64_t)i, rows[i].key, rows[i].before,
                        rows[i].before);
    part_report_take_rows(&all, &later);
    part_report_clear(&later);
    assert_int_equal(all.n_rows, ELEMENTSOF(rows));
    assert_true(part_report_join_halves(&all));
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        assert_int_equal(all.rows[i].index, i);
        assert_string_equal(all.rows[i].reason, rows[i].after);
        assert_string_equal(all.rows[i].text, rows[i].after);
    }
    assert_false(part_report_join_halves(&all));
    UnitReport unit = {0};
    unit_report_count(&unit, &all);
    char text[200];
    assert_string_equal(reasons_format(&unit.reasons, text, sizeof(text)),
                        "5 apart, 1 decode, 1 duplicate-key, 1 no-caption");
    part_report_clear(&all);
}

static void reasons_are_bounded(void **state)
{
    (void)state;
    Reasons reasons = {0};
    char name[64], text[64];
    for (int i = 0; i < 2 * REPORT_REASONS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "filtered:%d", (i * 37) % 1000);
        reasons_add(&reasons, name, 1);
    }
    assert_int_equal(reasons.n, REPORT_REASONS_MAX);
    int64_t sum = 0;
    for (size_t i = 0; i < reasons.n; i++)
        sum += reasons.counts[i].n;
    assert_int_equal(sum, 2 * REPORT_REASONS_MAX);
    for (size_t i = 1; i < reasons.n; i++)
        assert_true(strcmp(reasons.counts[i - 1].reason, reasons.counts[i].reason) < 0);
    assert_true(strlen(reasons_format(&reasons, text, sizeof(text))) < sizeof(text));
    reasons = (Reasons){0};
    assert_string_equal(reasons_format(&reasons, text, sizeof(text)), "none");
}

static void a_line_tells_what_is_left(void **state)
{
    (void)state;
    Progress p;
    char text[PROGRESS_LINE_MAX];
    progress_begin(&p, 1000, 1.2);
    assert_string_equal(progress_format(&p, &(ProgressPart){0}, p.start_usec, text),
                        "0 samples, 0.0 a second, 0.0 % of the input; left unknown; 0 rejected "
                        "(none); cost 0.00");
    /* The input has 1,000 bytes: 400 were done before this run, and 100 in half an hour of this run. A unit of 200
     * bytes is in progress, and is half done. */
    p.bytes = 500;
    p.bytes_before = 400;
    PartReport part = make_part();
    part.n_raw = 3600;
    progress_add(&p, &part);
    ProgressPart under_way = {NULL, 0.5, 200};
    assert_string_equal(progress_format(&p, &under_way, p.start_usec + 1800 * USEC_PER_SEC, text),
                        "3600 samples, 2.0 a second, 60.0 % of the input; left 1:00:00; 3 rejected "
                        "(1 decode, 1 named, 1 no-image); cost 0.60, in all 1.80");
    /* A line also counts the samples of the part in progress, and writing the line twice does not count them twice. */
    under_way.part = &part;
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(
            progress_format(&p, &under_way, p.start_usec + 1800 * USEC_PER_SEC, text),
            "7200 samples, 4.0 a second, 60.0 % of the input; left 1:00:00; 6 rejected (2 decode"));
    part_report_clear(&part);
    /* Units that are not whole are reported during the run, not only at its end. */
    p.input = (InputTotals){.n_units = 4, .n_cut = 1, .n_no_sample = 1};
    p.n_aside = 2;
    under_way.part = NULL;
    assert_non_null(
        strstr(progress_format(&p, &under_way, p.start_usec + 1800 * USEC_PER_SEC, text),
               "; of 6 units 2 damaged, without an end or a sample; set aside: 2; cost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_read_as_it_was_written),
        cmocka_unit_test(a_unit_is_the_sum_of_its_parts),
        cmocka_unit_test(halves_are_told_alike),
        cmocka_unit_test(reasons_are_bounded),
        cmocka_unit_test(a_line_tells_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

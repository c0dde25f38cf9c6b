/* SPDX-License-Identifier: Apache-2.0 */
/* test-codecs.c - codecs with a cache give the same results as codecs without a cache. */
#include "cluster/records.h"

#include "base/cleanup.h"
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static RanksRecord ranks_of(RankReport *reports, size_t n)
{
    return (RanksRecord){.node = "n1", .generation = 3, .ranks = reports, .n_ranks = n};
}

/* The cache compares the content of a record's arrays, not only the struct. */
static void parts_count(void **state)
{
    (void)state;
    RankReport reports[2] = {{.rank = 0, .step = 7}, {.rank = 1, .step = 7}};
    const RanksRecord record = ranks_of(reports, 2);
    for (int again = 0; again < 2; again++) {
        reports[1].step = 7;
        _cleanup_free_ char *seven = ranks_record_encode(&record, NULL);
        reports[1].step = 8;
        _cleanup_free_ char *eight = ranks_record_encode(&record, NULL);
        assert_string_not_equal(seven, eight);

        RanksRecord read;
        assert_int_equal(ranks_record_decode("k", eight, strlen(eight), &read, NULL), 0);
        assert_int_equal(read.ranks[1].step, 8);
        ranks_record_clear(&read);
    }
}

/* Each reader of a cached record gets its own copy, which it may change and free. */
static void readers_have_their_own(void **state)
{
    (void)state;
    RankReport report = {.rank = 0, .step = 7};
    const RanksRecord record = ranks_of(&report, 1);
    _cleanup_free_ char *text = ranks_record_encode(&record, NULL);
    for (int again = 0; again < 3; again++) {
        RanksRecord read;
        assert_int_equal(ranks_record_decode("k", text, strlen(text), &read, NULL), 0);
        assert_int_equal(read.n_ranks, 1);
        assert_int_equal(read.ranks[0].step, 7);
        read.ranks[0].step = 99;
        ranks_record_clear(&read);
    }
    const SpecRecord spec = {.spec = (char *)"{}", .submission = "s"};
    _cleanup_free_ char *its = spec_record_encode(&spec, NULL);
    for (int again = 0; again < 3; again++) {
        SpecRecord read;
        assert_int_equal(spec_record_decode("k", its, strlen(its), &read, NULL), 0);
        assert_string_equal(read.spec, "{}");
        read.spec[0] = '!';
        spec_record_clear(&read);
    }
}

static void old_text_counts(void **state)
{
    (void)state;
    const PhaseRecord record = {.phase = PHASE_RUNNING, .generation = 2};
    for (int again = 0; again < 2; again++) {
        _cleanup_free_ char *alone = phase_record_encode(&record, NULL);
        _cleanup_free_ char *kept = phase_record_encode(&record, "{\"v\":2,\"ours\":1}");
        _cleanup_free_ char *other = phase_record_encode(&record, "{\"v\":2,\"ours\":2}");
        assert_null(strstr(alone, "ours"));
        assert_non_null(strstr(kept, "\"ours\":1"));
        assert_non_null(strstr(other, "\"ours\":2"));
    }
}

/* One text may be read as two kinds of record, and an error names the caller's key. */
static void kinds_and_keys_count(void **state)
{
    (void)state;
    const RendezvousRecord record = {.address = "a:1"};
    _cleanup_free_ char *text = rendezvous_record_encode(&record, NULL);
    for (int again = 0; again < 2; again++) {
        RendezvousRecord read;
        ProgressRecord progress;
        Error err = ERROR_INIT;
        assert_int_equal(rendezvous_record_decode("k", text, strlen(text), &read, NULL), 0);
        assert_string_equal(read.address, "a:1");
        const char *key = again ? "second" : "first";
        assert_true(progress_record_decode(key, text, strlen(text), &progress, &err) < 0);
        assert_non_null(strstr(err.text, key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_count),
        cmocka_unit_test(readers_have_their_own),
        cmocka_unit_test(old_text_counts),
        cmocka_unit_test(kinds_and_keys_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

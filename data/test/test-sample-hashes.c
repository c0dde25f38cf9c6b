/* SPDX-License-Identifier: Apache-2.0 */
/* test-sample-hashes.c - the hashes are the same for pieces of any size, and a broken table gives no hashes. */
#include "base/test/testing.h"

#include "base/number/hash.h"
#include "data/stream/sample-hashes.h"

#include <string.h>

enum { SAMPLES = 5, START = 4 * (SAMPLES + 2) + 9, BYTES = START + 200 };
static const uint32_t offsets[SAMPLES + 1] = {START,      START + 50,  START + 50,
                                              START + 51, START + 199, BYTES};

static void make_shard(uint8_t shard[BYTES])
{
    const uint32_t n = SAMPLES;
    for (int i = 0; i < BYTES; i++)
        shard[i] = (uint8_t)(i * 37 + i / 7);
    memcpy(shard, &n, 4);
    memcpy(shard + 4, offsets, sizeof(offsets));
}

static uint64_t *hashes_of(const uint8_t *shard, size_t n_bytes, size_t piece)
{
    SampleHashes *samples;
    assert_int_equal(sample_hashes_new(SAMPLES, BYTES, &samples), 0);
    for (size_t at = 0; at < n_bytes; at += piece)
        sample_hashes_add(samples, shard + at, MIN(piece, n_bytes - at));
    uint64_t *hashes = sample_hashes_take(samples);
    (void)sample_hashes_free(samples);
    return hashes;
}

static void any_pieces(void **state)
{
    (void)state;
    uint8_t shard[BYTES];
    make_shard(shard);
    for (size_t piece = 1; piece <= BYTES; piece++) {
        _cleanup_free_ uint64_t *hashes = hashes_of(shard, BYTES, piece);
        assert_non_null(hashes);
        for (int i = 0; i < SAMPLES; i++)
            assert_true(hashes[i] ==
                        hash64_bytes(shard + offsets[i], offsets[i + 1] - offsets[i], 0));
        assert_null(hashes_of(shard, BYTES - 1, piece)); /* one byte is missing */
    }
}

static void broken_tables(void **state)
{
    (void)state;
    uint8_t shard[BYTES];
    static const struct {
        size_t at;
        uint32_t value;
    } cases[] = {{0, SAMPLES + 1}, {0, 0},          {4, 3}, {8, START + 60},
                 {16, UINT32_MAX}, {24, BYTES + 1}, {24, 0}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        for (size_t piece = 1; piece <= BYTES; piece += 13) {
            make_shard(shard);
            memcpy(shard + cases[i].at, &cases[i].value, 4);
            assert_null(hashes_of(shard, BYTES, piece));
        }
    SampleHashes *samples;
    assert_int_equal(sample_hashes_new(UINT32_MAX, BYTES, &samples), 0);
    sample_hashes_add(samples, shard, BYTES);
    assert_null(sample_hashes_take(samples));
    (void)sample_hashes_free(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_pieces),
                                       cmocka_unit_test(broken_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* testing-raw.c - see testing-raw.h. */
#include "prep/raw/test/testing-raw.h"

Made begin(void) { return (Made){.scratch = scratch_make()}; }

void add(Made *made, const char *name, const char *text)
{
    assert_int_equal(tar_writer_add(&made->tar, name, text, strlen(text)), 0);
}

/* Returns the header of the last member, whose payload has n_payload bytes. */
TarHeader *last_header(Made *made, size_t n_payload)
{
    size_t back = TAR_BLOCK + ROUND_UP(n_payload, (size_t)TAR_BLOCK);
    return (TarHeader *)(void *)(made->tar.data + made->tar.n_bytes - back);
}

void mend(TarHeader *h)
{
    unsigned sum = 0;
    memset(h->checksum, ' ', sizeof(h->checksum));
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += ((const uint8_t *)h)[i];
    (void)snprintf(h->checksum, sizeof(h->checksum), "%06o", sum);
}

void add_typed(Made *made, char type, const char *name, const char *text, size_t n)
{
    assert_int_equal(tar_writer_add(&made->tar, name, text, n), 0);
    TarHeader *h = last_header(made, n);
    h->type = type;
    mend(h);
}

void write_tar(Made *made, const char *name)
{
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    assert_good(file_write(scratch_path(&made->scratch, name, path), made->tar.data,
                           made->tar.n_bytes, 0, &err),
                err);
}

/* The counts cover all bytes of the unit. A reader with `whole` and a reader without it give the same counts and the
 * same hash of members. */
static void check_counts(RawSet *set, size_t i, RawUnit *unit, RawUnit *keys)
{
    char version[STORE_VERSION_MAX];
    Error err = ERROR_INIT;
    assert_good(raw_set_request_version(set, i, version, &err), err);
    if (*raw_set_unit_version(set, i))
        assert_string_equal(raw_set_unit_version(set, i), version);
    assert_true(hash_equal(raw_unit_take_proof(unit).members, raw_unit_take_proof(keys).members));
    const RawCounts a = raw_unit_counts(unit), b = raw_unit_counts(keys);
    assert_int_equal(a.member_bytes + a.stray_bytes + a.frame_bytes + a.lost_bytes,
                     raw_set_unit_bytes(set, i));
    assert_memory_equal(&a, &b, sizeof(a));
}

/* Writes the samples as text, one line each: "key: picture|caption" or "key: reason"; then, if the unit is rejected,
 * why. */
void describe(const char *uri, const RawOptions *options, char *text, size_t size)
{
    Error err = ERROR_INIT;
    RawSet *set;
    size_t n = 0;
    assert_good(raw_set_open(uri, options, &set, &err), err);
    for (size_t i = 0; i < raw_set_n_units(set); i++) {
        RawUnit *unit, *keys;
        RawSample *s, *k;
        int r;
        int64_t index = 0;
        r = raw_unit_open(set, i, &unit, &err);
        if (r == -ENOMEDIUM) {
            n += (size_t)snprintf(text + n, size - n, "%s\n", err.text);
            continue;
        }
        assert_good(r, err);
        assert_good(raw_unit_open(set, i, &keys, &err), err);
        while ((r = raw_unit_next(unit, true, &s, &err)) > 0) {
            assert_int_equal(s->index, index++);
            /* A reader without `whole` gives the same samples. */
            assert_int_equal(raw_unit_next(keys, false, &k, &err), 1);
            assert_string_equal(k->key, s->key);
            n += (size_t)(s->reason ? snprintf(text + n, size - n, "%s: %s\n", s->key,
                                               raw_reason_name(s->reason))
                                    : snprintf(text + n, size - n, "%s: %.*s|%s\n", s->key,
                                               (int)s->n_picture, s->picture,
                                               s->caption ? s->caption : "-"));
            assert_true(n < size);
            assert_true(s->reason == RAW_FINE || *s->why);
        }
        if (r == -ENOMEDIUM) {
            n += (size_t)snprintf(text + n, size - n, "%s\n", err.text);
            assert_int_equal(raw_unit_next(keys, false, &k, &err), r);
        } else {
            assert_good(r, err);
            assert_int_equal(raw_unit_next(keys, false, &k, &err), 0);
            check_counts(set, i, unit, keys);
        }
        raw_unit_free(unit);
        raw_unit_free(keys);
    }
    text[n] = '\0';
    raw_set_free(set);
}

const RawOptions plain = {.image = "jpg", .caption = "caption"};

void expect(Made *made, const RawOptions *options, const char *wanted)
{
    char text[8192];
    describe(made->scratch.path, options, text, sizeof(text));
    assert_string_equal(text, wanted);
}

void end(Made *made)
{
    tar_writer_clear(&made->tar);
    scratch_remove(&made->scratch);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test-raw.c - reads good and bad tars and MDS datasets of pictures; checks which samples they give, and why others are
 * rejected. */
#include "prep/raw/test/testing-raw.h"

static void samples_are_what_lies_together(void **state)
{
    (void)state;
    Made m = begin();
    add(&m, "README", "no key");
    add(&m, "a/.hidden.jpg", "no key");
    add(&m, "000.jpg", "P0");
    add(&m, "000.txt", "C0");
    add(&m, "000.json", "{\"caption\": \"unused\"}");
    add(&m, "001.json", "{\"caption\": \"from json\", \"width\": 3}");
    add(&m, "001.JPEG", "P1");
    add(&m, "a.b/002.seg.png", "no picture: its extension is seg.png");
    add(&m, "a.b/002.webp", "P2");
    add(&m, "a.b/002.txt", "C2");
    add(&m, "003.png", "P3");
    add(&m, "003.txt", "");
    add(&m, "004.cls", "1");
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    add(&m, "005.jpg", "behind the end");
    write_tar(&m, "00000.tar");
    tar_writer_reset(&m.tar);
    add(&m, "000.jpg", "another unit");
    add(&m, "000.txt", "C");
    write_tar(&m, "00001.tar");
    write_tar(&m, "00001.parquet");
    expect(&m, &plain,
           "000: P0|C0\n001: P1|from json\na.b/002: P2|C2\n003: P3|\n004: no-image\n"
           "000: another unit|C\n");
    end(&m);
}

static void what_cannot_be_used_is_named(void **state)
{
    (void)state;
    Made m = begin();
    add(&m, "two.jpg", "P");
    add(&m, "two.png", "P");
    add(&m, "two.txt", "C");
    add(&m, "twice.jpg", "P");
    add(&m, "twice.jpg", "Q");
    add(&m, "twice.txt", "C");
    add(&m, "alone.jpg", "P");
    add(&m, "words.txt", "C");
    add(&m, "twice.jpg", "P");
    add(&m, "latin.jpg", "P");
    add(&m, "latin.txt", "caf\xe9");
    add(&m, "half.jpg", "P");
    add(&m, "half.json", "{\"caption\": \"\\ud800\"}");
    add(&m, "bytes.jpg", "P");
    add(&m, "bytes.txt", "\xed\xa0\x80");
    add(&m, "null.jpg", "P");
    add(&m, "null.json", "{\"caption\": null}");
    add(&m, "number.jpg", "P");
    add(&m, "number.json", "{\"caption\": 7}");
    add(&m, "broken.jpg", "P");
    add(&m, "broken.json", "{\"caption\": ");
    add(&m, "list.jpg", "P");
    add(&m, "list.json", "[1]");
    add(&m, "text.jpg", "P");
    add(&m, "text.txt", "C");
    add(&m, "text.json", "is not looked at");
    add(&m, "key\xff.jpg", "P");
    add(&m, "key\xff.txt", "C");
    write_tar(&m, "0.tar");
    expect(&m, &plain,
           "two: two-images\ntwice: duplicate-key\nalone: no-caption\nwords: no-image\n"
           "twice: duplicate-key\nlatin: not-utf8\nhalf: not-utf8\nbytes: not-utf8\n"
           "null: no-caption\nnumber: no-caption\nbroken: bad-json\nlist: bad-json\ntext: P|C\n"
           "key\xef\xbf\xbd: P|C\n");
    /* With `fields` a .json must be valid; with `keep_missing` a sample without a caption is accepted. */
    RawOptions options = plain;
    options.fields = options.keep_missing = true;
    expect(&m, &options,
           "two: two-images\ntwice: duplicate-key\nalone: P|-\nwords: no-image\n"
           "twice: duplicate-key\nlatin: not-utf8\nhalf: not-utf8\nbytes: not-utf8\n"
           "null: P|-\nnumber: P|-\nbroken: bad-json\nlist: bad-json\ntext: bad-json\n"
           "key\xef\xbf\xbd: P|C\n");
    end(&m);
}

static void a_caption_may_hold_anything(void **state)
{
    (void)state;
    Made m = begin();
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    size_t n = 1 << 20;
    char *megabyte = malloc(n + 1);
    assert_non_null(megabyte);
    memset(megabyte, 'x', n);
    megabyte[n] = '\0';
    add(&m, "0.jpg", "P");
    add(&m, "0.txt", megabyte);
    add(&m, "1.jpg", "P");
    assert_int_equal(tar_writer_add(&m.tar, "1.txt", "a\0b", 3), 0);
    add(&m, "2.jpg", "P");
    add(&m, "2.json", "{\"caption\": \"a\\u0000b\", \"punsafe\": 0.25}");
    write_tar(&m, "0.tar");
    RawSet *set;
    RawUnit *unit;
    RawSample *s;
    RawOptions options = plain;
    options.fields = true;
    assert_good(raw_set_open(m.scratch.path, &options, &set, &err), err);
    assert_good(raw_unit_open(set, 0, &unit, &err), err);
    assert_int_equal(raw_unit_next(unit, true, &s, &err), 1);
    assert_int_equal(s->reason, RAW_FINE);
    assert_int_equal(s->n_caption, n);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(raw_unit_next(unit, true, &s, &err), 1);
        assert_int_equal(s->reason, RAW_FINE);
        assert_int_equal(s->n_caption, 3);
        assert_memory_equal(s->caption, "a\0b", 4);
    }
    assert_true(json_real_value(json_object_get(s->fields, "punsafe")) == 0.25);
    raw_unit_free(unit);
    raw_set_free(set);
    /* A .json with too many values is refused before it is parsed. */
    tar_writer_reset(&m.tar);
    memset(megabyte, ',', n);
    add(&m, "0.jpg", "P");
    add(&m, "0.json", megabyte);
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: bad-json\n");
    free(megabyte);
    scratch_path(&m.scratch, "none", path);
    assert_int_equal(raw_set_open(path, &plain, &set, &err), -ENOENT);
    assert_names(err, "neither tars nor an index.json");
    end(&m);
}

/* ---- the tar format ---- */

static void long_names_of_every_kind_are_read(void **state)
{
    (void)state;
    /* GNU tar itself writes these tars. */
    static const char *const formats[] = {"gnu", "pax", "posix", "ustar", "oldgnu"};
    for (size_t i = 0; i < ELEMENTSOF(formats); i++) {
        Made m = begin();
        char command[2 * PATH_MAX], name[400] = "", wanted[1000], link[500] = "";
        bool ustar = strcmp(formats[i], "ustar") == 0;
        for (int k = 0; k < (ustar ? 1 : 3); k++)
            (void)snprintf(name + strlen(name), sizeof(name) - strlen(name), "%090d/", k);
        (void)snprintf(name + strlen(name), sizeof(name) - strlen(name), "%060d", 9);
        if (!ustar)
            (void)snprintf(link, sizeof(link), "ln s/%s.png s/hard.png &&", name);
        (void)snprintf(command, sizeof(command),
                       "cd '%s' && mkdir -p $(dirname s/%s) && printf P > s/%s.png && printf C > "
                       "s/%s.txt && %s ln -s x s/soft.png && tar -C s "
                       "--format=%s -cf 0.tar --sort=name . && rm -r s",
                       m.scratch.path, name, name, name, link, formats[i]);
        assert_int_equal(system(command), 0);
        (void)snprintf(wanted, sizeof(wanted), "./%s: P|C\n", name);
        expect(&m, &plain, wanted);
        end(&m);
    }
}

static void sparse_files_are_refused(void **state)
{
    (void)state;
    static const char *const formats[] = {"gnu", "pax --sparse-version=0.0",
                                          "pax --sparse-version=0.1", "pax --sparse-version=1.0"};
    for (size_t i = 0; i < ELEMENTSOF(formats); i++) {
        Made m = begin();
        char command[PATH_MAX + 600];
        /* With forty holes, GNU's own format needs a second block for its map. */
        (void)snprintf(command, sizeof(command),
                       "cd '%s' && for i in $(seq 40); do printf x | dd of=0.png bs=1 "
                       "seek=$((i*65536)) status=none; done; truncate -s 4M 0.png; printf C > "
                       "0.txt; printf P > 1.png; printf D > 1.txt; tar --format=%s -S -cf 0.tar "
                       "0.png 0.txt 1.png 1.txt && rm *.png *.txt",
                       m.scratch.path, formats[i]);
        assert_int_equal(system(command), 0);
        char text[1000];
        describe(m.scratch.path, &plain, text, sizeof(text));
        /* pax 1.0 changes the name to "GNUSparseFile.0/0.png", so that the picture and its caption have different
         * keys. */
        if (!strstr(text, "1: P|D\n") || !strstr(text, ": sparse\n"))
            fail_msg("%s: %s", formats[i], text);
        end(&m);
    }
}

static void headers_mean_what_they_say(void **state)
{
    (void)state;
    Made m = begin();
    /* The tar has a header with a binary size, a global pax header, a header whose size a pax header corrects, and a
     * header of unknown type. */
    add(&m, "0.jpg", "P");
    TarHeader *h = last_header(&m, 1);
    memset(h->size, 0, sizeof(h->size));
    h->size[0] = (char)0x80;
    h->size[11] = 1;
    mend(h);
    add(&m, "0.txt", "C");
    add_typed(&m, 'g', "global", "16 path=wrong.x\n", 16);
    add_typed(&m, 'x', "pax", "9 size=2\n14 path=1.jpg\n", 23);
    add(&m, "wrong.jpg", "PQ");
    h = last_header(&m, 2);
    (void)snprintf(h->size, sizeof(h->size), "%011o", 1);
    mend(h);
    add_typed(&m, '5', "1.png", "", 0);
    add_typed(&m, 'Z', "other", "payload", 7);
    add(&m, "1.txt", "C1");
    /* A single empty block does not end the tar. If a file holds two tars, only the first one is read. */
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    m.tar.n_bytes -= TAR_BLOCK;
    add(&m, "2.jpg", "P");
    add(&m, "2.txt", "C");
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    add(&m, "3.jpg", "P");
    add(&m, "3.txt", "C");
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: P|C\n1: PQ|C1\n2: P|C\n");
    end(&m);
}

static void damage_costs_what_it_touches(void **state)
{
    (void)state;
    Made m = begin();
    char name[32];
    size_t ends[6] = {0};
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof(name), "%d.jpg", i);
        add(&m, name, "P");
        (void)snprintf(name, sizeof(name), "%d.txt", i);
        add(&m, name, "C");
        ends[i + 1] = m.tar.n_bytes;
    }
    size_t whole = m.tar.n_bytes;

    /* Cut off the payload of the last caption; then also a part of its header. */
    m.tar.n_bytes = whole - TAR_BLOCK;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: P|C\n1: P|C\n2: P|C\n3: P|C\n4: truncated\n");
    m.tar.n_bytes = whole - TAR_BLOCK - 100;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: P|C\n1: P|C\n2: P|C\n3: P|C\n4: truncated\n");
    /* With keep_missing, a sample whose caption was cut off is still rejected; also when the cut is right behind its
     * picture. */
    RawOptions empty = plain;
    empty.keep_missing = true;
    expect(&m, &empty, "0: P|C\n1: P|C\n2: P|C\n3: P|C\n4: truncated\n");
    m.tar.n_bytes = whole - 2 * TAR_BLOCK;
    write_tar(&m, "0.tar");
    expect(&m, &empty, "0: P|C\n1: P|C\n2: P|C\n3: P|C\n4: truncated\n");

    /* Damage the header of sample 2's caption, then also the header of its picture. */
    m.tar.n_bytes = whole;
    m.tar.data[ends[3] - 2 * TAR_BLOCK] ^= 1;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: P|C\n1: P|C\n2: truncated\n3: P|C\n4: P|C\n");
    m.tar.data[ends[2]] ^= 1;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: P|C\n1: P|C\n3: P|C\n4: P|C\n");
    /* Damage also the header of sample 3's picture: the damaged part includes the start of that sample. */
    m.tar.data[ends[3]] ^= 1;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: P|C\n1: P|C\n3: truncated\n4: P|C\n");
    m.tar.data[ends[3]] ^= 1;
    write_tar(&m, "0.tar");
    Error err = ERROR_INIT;
    RawSet *set;
    RawUnit *unit;
    RawSample *s;
    char text[300];
    assert_good(raw_set_open(m.scratch.path, &plain, &set, &err), err);
    assert_good(raw_unit_open(set, 0, &unit, &err), err);
    while (raw_unit_next(unit, true, &s, &err) > 0)
        ;
    assert_int_equal(raw_unit_state(unit, text, sizeof(text)), RAW_DAMAGED);
    assert_non_null(strstr(text, "byte 4096"));
    raw_unit_free(unit);
    raw_set_free(set);

    /* A file that is not a tar is rejected with a message that names the reason. */
    tar_writer_reset(&m.tar);
    memset(m.tar.data, 'x', TAR_BLOCK * 9);
    m.tar.n_bytes = TAR_BLOCK * 9;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0.tar: is not a tar: no header of a member is in it\n");
    m.tar.n_bytes = 0;
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0.tar: has no bytes\n");
    end(&m);
}

static void a_tar_is_larger_than_its_windows(void **state)
{
    (void)state;
    Made m = begin();
    enum { N = 7, BYTES = 3 << 20 };
    char name[32], *picture = malloc(BYTES);
    Error err = ERROR_INIT;
    assert_non_null(picture);
    for (int i = 0; i < N; i++) {
        memset(picture, 'a' + i, BYTES);
        (void)snprintf(name, sizeof(name), "%d.png", i);
        assert_int_equal(tar_writer_add(&m.tar, name, picture, (size_t)(BYTES - i)), 0);
        (void)snprintf(name, sizeof(name), "%d.txt", i);
        add(&m, name, name);
    }
    write_tar(&m, "0.tar");
    RawSet *set;
    RawUnit *unit;
    RawSample *s;
    assert_good(raw_set_open(m.scratch.path, &plain, &set, &err), err);
    assert_good(raw_unit_open(set, 0, &unit, &err), err);
    for (int i = 0; i < N; i++) {
        assert_int_equal(raw_unit_next(unit, i % 3 != 1, &s, &err), 1);
        if (i % 3 == 1)
            continue;
        assert_int_equal(s->n_picture, BYTES - i);
        for (size_t k = 0; k < s->n_picture; k += 4093)
            assert_int_equal(s->picture[k], 'a' + i);
        assert_int_equal(s->picture[s->n_picture - 1], 'a' + i);
    }
    assert_int_equal(raw_unit_next(unit, true, &s, &err), 0);
    raw_unit_free(unit);
    raw_set_free(set);
    free(picture);
    end(&m);
}

/* ---- MDS ---- */

static void an_mds_dataset_is_read(void **state)
{
    (void)state;
    static const char *const zips[] = {NULL, "zstd"};
    for (size_t z = 0; z < ELEMENTSOF(zips); z++) {
        Scratch s = scratch_make();
        Error err = ERROR_INIT;
        Store *store;
        MdsWriter *writer;
        MdsColumn columns[3];
        MdsSchema schema;
        static const char *const hashes[] = {"xxh3_64"};
        assert_good(mds_column_init("jpg", "bytes", &columns[0], &err), err);
        assert_good(mds_column_init("caption", "str", &columns[1], &err), err);
        assert_good(mds_column_init("punsafe", "float64", &columns[2], &err), err);
        assert_good(mds_schema_init(columns, 3, &schema, &err), err);
        assert_good(store_open(s.path, &store, &err), err);
        MdsWriterOptions how = {.compression = zips[z],
                                .hashes = hashes,
                                .n_hashes = 1,
                                .size_limit = 300};
        assert_good(mds_writer_new(store, &schema, &how, &writer, &err), err);
        static const char *const captions[] = {"one", "caf\xe9", "", "four"};
        for (int i = 0; i < 4; i++) {
            double number = i / 4.0;
            MdsField fields[] = {{captions[i], strlen(captions[i])},
                                 {"PQ", (size_t)i % 3},
                                 {&number, 8}};
            assert_good(mds_writer_add(writer, fields, &err), err);
        }
        assert_good(mds_writer_finish(writer, &err), err);
        mds_writer_free(writer);
        store_free(store);

        RawOptions options = plain;
        options.fields = true;
        char text[500];
        describe(s.path, &options, text, sizeof(text));
        if (!strstr(text, "mds[0]: |one\n") || !strstr(text, ": not-utf8\n") ||
            !strstr(text, ": PQ|\n") || !strstr(text, ": |four\n"))
            fail_msg("%s", text);
        RawSet *set;
        RawUnit *unit;
        RawSample *sample;
        assert_good(raw_set_open(s.path, &options, &set, &err), err);
        assert_true(raw_set_index(set) && raw_set_n_units(set) > 1);
        assert_good(raw_unit_open(set, raw_set_n_units(set) - 1, &unit, &err), err);
        double last = -1;
        while (raw_unit_next(unit, true, &sample, &err) > 0)
            last = json_real_value(json_object_get(sample->fields, "punsafe"));
        assert_true(last == 0.75);
        raw_unit_free(unit);
        raw_set_free(set);
        options.image = "png";
        assert_int_equal(raw_set_open(s.path, &options, &set, &err), -EINVAL);
        assert_names(err, "png");
        options.image = "punsafe";
        assert_int_equal(raw_set_open(s.path, &options, &set, &err), -EINVAL);
        assert_names(err, "holds no pictures");
        scratch_remove(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_what_lies_together),
        cmocka_unit_test(what_cannot_be_used_is_named),
        cmocka_unit_test(a_caption_may_hold_anything),
        cmocka_unit_test(long_names_of_every_kind_are_read),
        cmocka_unit_test(sparse_files_are_refused),
        cmocka_unit_test(headers_mean_what_they_say),
        cmocka_unit_test(damage_costs_what_it_touches),
        cmocka_unit_test(a_tar_is_larger_than_its_windows),
        cmocka_unit_test(an_mds_dataset_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

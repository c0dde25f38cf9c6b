/* SPDX-License-Identifier: Apache-2.0 */
/* test-raw-units.c - tests the reported states of whole units (cut, damaged, not a tar, members of a key apart), the
 * messages about incomplete samples, the recipe's choice of members, and raw_unit_take_proof(). */
#include "prep/raw/test/testing-raw.h"

static RawState state_of(const Made *made, char *text, size_t size)
{
    Error err = ERROR_INIT;
    RawSet *set;
    RawUnit *unit;
    RawSample *s;
    int r;
    assert_good(raw_set_open(made->scratch.path, &plain, &set, &err), err);
    assert_good(raw_unit_open(set, 0, &unit, &err), err);
    while ((r = raw_unit_next(unit, true, &s, &err)) > 0)
        ;
    assert_good(r, err);
    const RawState state = raw_unit_state(unit, text, size);
    raw_unit_free(unit);
    raw_set_free(set);
    return state;
}

/* A tar is whole if it ends with at least one empty block. A whole tar without samples is RAW_NO_SAMPLE. */
static void what_a_tar_is_told_to_be(void **state)
{
    (void)state;
    Made m = begin();
    char text[300];
    add(&m, "0.jpg", "P");
    add(&m, "0.txt", "C");
    write_tar(&m, "0.tar");
    assert_int_equal(state_of(&m, text, sizeof(text)), RAW_CUT);
    assert_string_equal(text, "0.tar: has no end; its writer may have been killed");
    m.tar.n_bytes -= TAR_BLOCK / 2;
    write_tar(&m, "0.tar");
    assert_int_equal(state_of(&m, text, sizeof(text)), RAW_CUT);
    m.tar.n_bytes += TAR_BLOCK / 2;
    const size_t whole = m.tar.n_bytes;
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    write_tar(&m, "0.tar");
    assert_int_equal(state_of(&m, text, sizeof(text)), RAW_WHOLE);
    assert_string_equal(text, "");
    m.tar.n_bytes = whole + TAR_BLOCK; /* a single empty block */
    write_tar(&m, "0.tar");
    assert_int_equal(state_of(&m, text, sizeof(text)), RAW_WHOLE);
    m.tar.n_bytes = whole + TAR_BLOCK / 2;
    write_tar(&m, "0.tar");
    assert_int_equal(state_of(&m, text, sizeof(text)), RAW_DAMAGED);
    tar_writer_reset(&m.tar);
    add(&m, "README", "no key");
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    write_tar(&m, "0.tar");
    assert_int_equal(state_of(&m, text, sizeof(text)), RAW_NO_SAMPLE);
    assert_string_equal(text, "0.tar: no sample is in it");
    end(&m);
}

/* Tars that were joined as files: what follows the first end is not read, and is counted as lost. */
static void what_follows_the_end_is_counted(void **state)
{
    (void)state;
    char text[300];
    for (int i = 0; i < 4; i++) {
        Made m = begin();
        add(&m, "0.jpg", "P");
        add(&m, "0.txt", "C");
        assert_int_equal(tar_writer_finish(&m.tar), 0);
        if (i == 1) { /* bytes that are not a header */
            assert_int_equal(tar_writer_finish(&m.tar), 0);
            memcpy(m.tar.data + m.tar.n_bytes - TAR_BLOCK + 257, "ustar", 5);
        }
        for (int n = 0; i == 3 && n < TAR_TAIL_MAX / TAR_BLOCK; n++) /* too far away to be met */
            assert_int_equal(tar_writer_finish(&m.tar), 0);
        const size_t end_at = m.tar.n_bytes;
        if (i >= 2)
            add(&m, "1.jpg", "P");
        write_tar(&m, "0.tar");
        const RawState is = state_of(&m, text, sizeof(text));
        assert_int_equal(is, i == 2 ? RAW_DAMAGED : RAW_WHOLE);
        if (i == 2) {
            char wanted[300];
            (void)snprintf(
                wanted, sizeof(wanted),
                "0.tar: members follow its end, at byte %zu, and are not read; tars that were joined must be split",
                end_at);
            assert_string_equal(text, wanted);
        }
        end(&m);
    }
}

static void another_format_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *begins;
        size_t n;
        const char *says;
    } cases[] = {
        {"\x1f\x8b\x08\0", 4, "is not a tar but gzip"},
        {"\x28\xb5\x2f\xfd", 4, "is not a tar but zstd"},
        {"PK\x03\x04", 4, "is not a tar but a zip archive"},
        {"\xef\xbb\xbf <?XML version", 17, "is not a tar but an XML text"},
        {"\n<!DOCTYPE html>", 16, "is not a tar but an HTML page"},
        {"version https://git-lfs.github.com/spec/v1", 42, "is not a tar but a pointer of Git LFS"},
        {"<", 1, "is not a tar: no header"},
    };
    Made m = begin();
    char path[PATH_MAX], text[400];
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_good(file_write(scratch_path(&m.scratch, "0.tar", path), cases[i].begins, cases[i].n,
                               0, &err),
                    err);
        describe(m.scratch.path, &plain, text, sizeof(text));
        if (!strstr(text, cases[i].says))
            fail_msg("%s: %s", cases[i].says, text);
    }
    end(&m);
}

/* With keep_missing the first part of the sample was already returned with an empty caption, so the whole unit is
 * rejected. */
static void members_that_do_not_lie_together_are_the_tars_fault(void **state)
{
    (void)state;
    Made m = begin();
    RawOptions empty = plain;
    empty.keep_missing = true;
    add(&m, "0.jpg", "P");
    add(&m, "1.jpg", "P");
    add(&m, "1.txt", "C");
    add(&m, "0.json", "{}");
    add(&m, "1.jpg", "again");
    add(&m, "2.jpg", "P");
    add(&m, "2.txt", "C");
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    write_tar(&m, "0.tar");
    expect(&m, &plain, "0: no-caption\n1: P|C\n0: apart\n1: duplicate-key\n2: P|C\n");
    expect(&m, &empty,
           "0: P|-\n1: P|C\n"
           "0.tar: the members of 0 do not lie together; sort the tar by name\n");
    end(&m);
}

/* A .json with NaN or Infinity, as Python's json module writes them, is accepted; these values are read as null. */
static void words_that_are_no_numbers_are_missing_values(void **state)
{
    (void)state;
    Made m = begin();
    RawOptions options = plain;
    options.fields = true;
    add(&m, "0.jpg", "P");
    add(&m, "0.json",
        "\xef\xbb\xbf{\"caption\": \"NaN \\\"Infinity\\\" \\\\\", \"a\": NaN, \"b\": [-Infinity,"
        "Infinity], \"NaN\": 1}");
    add(&m, "1.jpg", "P");
    add(&m, "1.json", "{\"caption\": NaN}");
    add(&m, "2.jpg", "P");
    add(&m, "2.json", "{\"caption\": \"C\", \"a\": Nan}");
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    write_tar(&m, "0.tar");
    expect(&m, &options, "0: P|NaN \"Infinity\" \\\n1: no-caption\n2: bad-json\n");

    Error err = ERROR_INIT;
    RawSet *set;
    RawUnit *unit;
    RawSample *s;
    assert_good(raw_set_open(m.scratch.path, &options, &set, &err), err);
    assert_good(raw_unit_open(set, 0, &unit, &err), err);
    assert_int_equal(raw_unit_next(unit, true, &s, &err), 1);
    assert_true(json_is_null(json_object_get(s->fields, "a")));
    assert_true(json_is_null(json_array_get(json_object_get(s->fields, "b"), 1)));
    assert_true(json_is_integer(json_object_get(s->fields, "NaN")));
    raw_unit_free(unit);
    raw_set_free(set);
    end(&m);
}

/* The message names the members that the sample has instead of a picture. */
static void who_has_no_picture_is_told_what_it_has(void **state)
{
    (void)state;
    static const struct {
        const char *names[3], *says;
    } cases[] = {
        {{"a.00.jpg", "a.txt"}, "no .jpg, .jpeg, .png or .webp among: .00.jpg, .txt"},
        {{"a.gif", "a.txt"}, "among: .gif, .txt; .gif is not read, convert it"},
        {{"a.txt"}, "among: .txt"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Made m = begin();
        Error err = ERROR_INIT;
        RawSet *set;
        RawUnit *unit;
        RawSample *s;
        for (size_t k = 0; cases[i].names[k]; k++)
            add(&m, cases[i].names[k], "C");
        assert_int_equal(tar_writer_finish(&m.tar), 0);
        write_tar(&m, "0.tar");
        assert_good(raw_set_open(m.scratch.path, &plain, &set, &err), err);
        assert_good(raw_unit_open(set, 0, &unit, &err), err);
        assert_int_equal(raw_unit_next(unit, true, &s, &err), 1);
        assert_int_equal(s->reason, RAW_NO_IMAGE);
        if (!strstr(s->why, cases[i].says))
            fail_msg("%s", s->why);
        raw_unit_free(unit);
        raw_set_free(set);
        end(&m);
    }
}

static RecipeNames names(const char *const *list)
{
    RecipeNames names = {0};
    while (*list)
        (void)snprintf(names.names[names.n++], sizeof(names.names[0]), "%s", *list++);
    return names;
}
#define NAMES(...) names((const char *const[]){__VA_ARGS__, NULL})

/* A recipe may define which members are picture and caption, and at which dot the key ends. */
static void members_are_what_the_recipe_says(void **state)
{
    (void)state;
    const RecipeMembers usual = recipe_default_members;
    RecipeMembers mapped = {.image = NAMES("input.jpg"), .caption = NAMES("prompt.txt")};
    RecipeMembers last = usual;
    last.key_ends_last = true;
    RecipeMembers json_first = {.image = NAMES("jpg"), .caption = NAMES("meta.json", "txt")};
    const struct {
        const RecipeMembers *members;
        const char *names[8], *texts[8], *says;
    } cases[] = {
        {&mapped,
         {"a.input.jpg", "a.output.jpg", "a.txt", "a.Prompt.TXT"},
         {"P", "Q", "C", "D"},
         "a: P|D\n"},
        {&mapped, {"a.jpg", "a.prompt.txt"}, {"P", "C"}, "a: no-image\n"},
        {&usual, {"photo 22.05.jpg", "photo 22.05.txt"}, {"P", "C"}, "photo 22: no-image\n"},
        {&last,
         {"d.1/photo 22.05.jpg", "d.1/photo 22.05.txt", "d.1/photo 22.06.jpg",
          "d.1/photo 22.06.txt", "d.1/README"},
         {"P", "C", "Q", "D", ""},
         "d.1/photo 22.05: P|C\nd.1/photo 22.06: Q|D\n"},
        {&last,
         {"a.jpg", "a.seg.png", "a.txt"},
         {"P", "Q", "C"},
         "a: no-caption\na.seg: no-caption\na: apart\n"},
        {&json_first,
         {"a.txt", "a.jpg", "a.meta.json", "b.txt", "b.meta.json", "b.jpg", "c.jpg", "c.json"},
         {"C", "P", "{\"caption\": \"J\"}", "D", "{\"caption\": null}", "Q", "R",
          "{\"caption\": \"K\"}"},
         "a: P|J\nb: Q|D\nc: no-caption\n"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Made m = begin();
        RawOptions options = plain;
        options.members = cases[i].members;
        for (size_t k = 0; k < ELEMENTSOF(cases[i].names) && cases[i].names[k]; k++)
            add(&m, cases[i].names[k], cases[i].texts[k]);
        assert_int_equal(tar_writer_finish(&m.tar), 0);
        write_tar(&m, "0.tar");
        expect(&m, &options, cases[i].says);
        end(&m);
    }
}

static RawProof proof_of(const char *name, const char *text, size_t n_before, bool whole)
{
    Made m = begin();
    Error err = ERROR_INIT;
    RawSet *set;
    RawUnit *unit;
    RawSample *s;
    add(&m, name, text);
    add(&m, "0.txt", "caption");
    for (size_t i = 0; i < n_before; i++)
        add(&m, "README", "no key"); /* moves the members that follow */
    add(&m, "1.jpg", "picture");
    add(&m, "1.txt", "caption");
    assert_int_equal(tar_writer_finish(&m.tar), 0);
    write_tar(&m, "0.tar");
    assert_good(raw_set_open(m.scratch.path, &plain, &set, &err), err);
    assert_good(raw_unit_open(set, 0, &unit, &err), err);
    assert_int_equal(raw_unit_next(unit, whole, &s, &err), 1);
    const RawProof first = raw_unit_take_proof(unit);
    assert_int_equal(raw_unit_next(unit, whole, &s, &err), 1);
    const RawProof second = raw_unit_take_proof(unit);
    raw_unit_free(unit);
    raw_set_free(set);
    end(&m);
    assert_false(hash_equal(first.members, second.members));
    return (RawProof){hash_bytes(&(Hash[]){first.members, second.members}, 2 * sizeof(Hash)),
                      hash_bytes(&(Hash[]){first.bytes, second.bytes}, 2 * sizeof(Hash))};
}

/* One hash covers the names, sizes and offsets of members, the other hash covers the bytes that were read. Each call
 * covers only the sample that was read last. */
static void what_samples_are_made_of_is_proven(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        size_t n_before;
        bool members, bytes; /* whether each hash equals that of the first case */
    } cases[] = {
        {"0.jpg", "picture", 0, true, true},  {"0.jpg", "picturE", 0, true, false},
        {"0.png", "picture", 0, false, true}, {"0.jpg", "picture!", 0, false, false},
        {"0.jpg", "picture", 1, false, true}, {"0.npy", "picture", 0, false, false},
    };
    const RawProof first = proof_of(cases[0].name, cases[0].text, cases[0].n_before, true);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const RawProof proof = proof_of(cases[i].name, cases[i].text, cases[i].n_before, true);
        assert_int_equal(hash_equal(proof.members, first.members), cases[i].members);
        assert_int_equal(hash_equal(proof.bytes, first.bytes), cases[i].bytes);
        const RawProof keys = proof_of(cases[i].name, cases[i].text, cases[i].n_before, false);
        assert_true(hash_equal(keys.members, proof.members));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_tar_is_told_to_be),
        cmocka_unit_test(what_follows_the_end_is_counted),
        cmocka_unit_test(another_format_is_named),
        cmocka_unit_test(members_that_do_not_lie_together_are_the_tars_fault),
        cmocka_unit_test(words_that_are_no_numbers_are_missing_values),
        cmocka_unit_test(who_has_no_picture_is_told_what_it_has),
        cmocka_unit_test(members_are_what_the_recipe_says),
        cmocka_unit_test(what_samples_are_made_of_is_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

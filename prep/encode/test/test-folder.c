/* SPDX-License-Identifier: Apache-2.0 */
/* test-folder.c - a folder accepts its own encoding and input, and refuses others with a text that names the
 * difference. */
#include "prep/encode/folder.h"

#include "data/test/testing-scratch.h"

#define OURS "11111111111111111111111111111111"
#define BEFORE "22222222222222222222222222222222"
#define OTHER "33333333333333333333333333333333"

/* Claims a folder whose identity.json has these values. more: text behind identity and input, as in
 * {"identity": ..., "input": ...MORE}. */
static int claim_as(const char *identity, const char *input, const char *more, const char *terms,
                    Error *err)
{
    json_t *our_terms = terms ? json_loads(terms, 0, NULL) : NULL;
    Scratch s = scratch_make();
    char path[PATH_MAX], text[400];
    Folder folder = {0};
    InputList none = {0}, there = {0};
    FolderClaim ours = {
        .identity = OURS, .before = BEFORE, .input = OTHER, .units = &none, .terms = our_terms};
    assert_good(folder_make(scratch_path(&s, "encoding", path), err), *err);
    (void)snprintf(text, sizeof(text), "{\"identity\": \"%s\", \"input\": \"%s\"%s}\n", identity,
                   input, more);
    assert_good(file_write(scratch_path(&s, "encoding/identity.json", path), text, strlen(text), 0,
                           err),
                *err);
    assert_good(store_open(s.path, &folder.store, err), *err);
    int r = folder_claim(&folder, &ours, &there, err);
    input_list_clear(&there);
    store_free(folder.store);
    scratch_remove(&s);
    json_decref(our_terms);
    return r;
}

static int claim(const char *identity, const char *input, Error *err)
{
    return claim_as(identity, input, "", NULL, err);
}

static void a_folder_is_ours_or_says_why_not(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    assert_int_equal(claim(OURS, OTHER, &err), 0);
    assert_int_equal(claim(BEFORE, OTHER, &err), -EEXIST);
    assert_names(err, "was begun by an earlier version");
    assert_int_equal(claim(OTHER, OTHER, &err), -EEXIST);
    assert_names(err, "another encoding: its identity is " OTHER);
    assert_int_equal(claim(OURS, BEFORE, &err), -EEXIST);
    assert_names(err, "another input");
}

/* The error names the values that differ if the folder has them, otherwise the error says that only hashes are
 * known. */
static void another_encoding_is_told_by_its_keys(void **state)
{
    (void)state;
    static const char ours[] = "{\"recipe\": {\"side\": 512}, \"weights\": \"a\"}";
    Error err = ERROR_INIT;
    assert_int_equal(claim_as(OTHER, OTHER,
                              ", \"encoding\": {\"recipe\": {\"side\": 256}, \"weights\": \"b\"}",
                              ours, &err),
                     -EEXIST);
    assert_names(err, "another encoding: recipe.side was 256, is 512; weights was \"b\", is \"a\"");
    assert_names(err, "its identity was " OTHER ", is " OURS);
    err = ERROR_INIT;
    assert_int_equal(claim_as(OTHER, OTHER, "", ours, &err), -EEXIST);
    assert_names(err, "only the hashes are known of it");
    err = ERROR_INIT;
    assert_int_equal(claim_as(OTHER, OTHER, ", \"encoding\": 3", ours, &err), -EEXIST);
    assert_names(err, "only the hashes are known of it");
    assert_int_equal(claim_as(OURS, OTHER, ", \"encoding\": {}", ours, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_folder_is_ours_or_says_why_not),
                                       cmocka_unit_test(another_encoding_is_told_by_its_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

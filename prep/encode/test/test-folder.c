/* SPDX-License-Identifier: Apache-2.0 */
/* test-folder.c - whose the folder of a dataset under way is: by which words another's is refused. */
#include "prep/encode/folder.h"

#include "trainer/data/test/testing-scratch.h"

#define OURS "11111111111111111111111111111111"
#define BEFORE "22222222222222222222222222222222"
#define OTHER "33333333333333333333333333333333"

static int claim(const char *identity, const char *input, Error *err)
{
    Scratch s = scratch_make();
    char path[PATH_MAX], text[200];
    Folder folder = {0};
    InputList none = {0}, there = {0};
    FolderClaim ours = {.identity = OURS, .before = BEFORE, .input = OTHER, .units = &none};
    assert_good(folder_make(scratch_path(&s, "encoding", path), err), *err);
    (void)snprintf(text, sizeof(text), "{\"identity\": \"%s\", \"input\": \"%s\"}\n", identity,
                   input);
    assert_good(file_write(scratch_path(&s, "encoding/identity.json", path), text, strlen(text), 0,
                           err),
                *err);
    assert_good(store_open(s.path, &folder.store, err), *err);
    int r = folder_claim(&folder, &ours, &there, err);
    input_list_clear(&there);
    store_free(folder.store);
    scratch_remove(&s);
    return r;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_folder_is_ours_or_says_why_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test-job-identity.c - the identities of several job files are constants. Checkpoints store the identity, so if an
 * identity changed, jobs submitted before could not resume. */
#include "base/file.h"
#include "base/test/testing.h"
#include "protocol/job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct Kept {
    /* The field `text` is a job file's text, or the file's path in the source tree. */
    const char *what, *text, *identity;
} Kept;

#define JOB(DATA, TRAIN)                                                                           \
    "{\"name\": \"kept\", \"world\": {\"min\": 1, \"max\": 4}, \"model\": {\"config\": \"/u\"}, "  \
    "\"data\": {\"streams\": [{\"uri\": \"/d\"}]" DATA "}, \"train\": {\"global_batch\": 4, "      \
    "\"grain\": 1, \"steps\": 40" TRAIN "}, \"checkpoint\": {\"uri\": \"/c\"}}"
#define EMPTY ", \"empty_text\": \"/d/empty.npy\""

static const Kept kept[] = {
    {"corpus, whole", "tests/corpus/job/whole.json", "3b2c08d825a7bedb33024ffde3ce4dcf"},
    {"corpus, random", "tests/corpus/job/random.json", "f99c6229ecd7226077869189ce25c74e"},
    {"0.2.0", "tests/golden/versions/0.2.0/job.json", "533424079a32dd94518b0c2ab1e62841"},
    {"least", JOB(EMPTY, ""), "4d0897e5e00c4dc8f331022564af7b61"},
    {"explicit",
     JOB(EMPTY ", \"latents\": \"latents\", \"text\": \"text\", \"latent_scale\": 1", ""),
     "4d0897e5e00c4dc8f331022564af7b61"},
    {"columns", JOB(EMPTY ", \"latents\": \"latents_256\", \"text\": \"caption_latents\"", ""),
     "92716e10d25e774c10ec4ae11d4c678a"},
    {"scale", JOB(EMPTY ", \"latent_scale\": 0.18215", ""), "7100ed2011f270cf2502f31a5b012e29"},
    {"no drop", JOB("", ", \"caption_drop\": 0"), "c7fbe91e204d3a94e569f7b7af7dfe7d"},
    {"no drop, empty text", JOB(EMPTY, ", \"caption_drop\": 0"),
     "c7fbe91e204d3a94e569f7b7af7dfe7d"},
    {"of the tests of the whole system",
     JOB(EMPTY ", \"shuffle_window\": 32", ", \"optimizer\": {\"lr\": 1e-3, \"warmup_steps\": 5}, "
                                           "\"ema\": {\"decay\": 0.99, \"start_step\": 10}"),
     "9f3270119f9db2c6faabc32d644a1a07"},
    {"of a GPU",
     JOB(EMPTY, ", \"device\": \"cuda\", \"precision\": \"bf16\", \"optimizer\": "
                "{\"lr\": 1e-4, \"warmup_steps\": 1}, \"ema\": {}"),
     "a13ce312ee28703149fa7cda1d21f91e"},
};

/* Returns the text of a job file. A file of the tree has the word FOLDER, for which any absolute path may be used. */
static char *text_of(const Kept *k)
{
    const char *tree = getenv("SDTRAIN_SOURCE");
    char path[PATH_MAX], *text = NULL;
    Error err = ERROR_INIT;
    if (*k->text == '{')
        return strdup(k->text);
    (void)snprintf(path, sizeof(path), "%s/%s", tree ? tree : ".", k->text);
    if (file_read(path, JOB_TEXT_MAX, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    for (char *at = text; (at = strstr(at, "FOLDER/"));)
        *at = '/';
    return text;
}

static void identities_stay(void **state)
{
    (void)state;
    int n_changed = 0;
    for (size_t i = 0; i < ELEMENTSOF(kept); i++) {
        char identity[HASH_TEXT_BYTES];
        Error err = ERROR_INIT;
        _cleanup_(job_freep) Job *job = NULL;
        _cleanup_free_ char *text = text_of(&kept[i]);
        if (job_parse(kept[i].what, text, strlen(text), &job, &err) < 0)
            fail_msg("%s", err.text);
        if (strcmp(hash_format(job->identity, identity), kept[i].identity) == 0)
            continue;
        print_error("%s: %s instead of %s\n", kept[i].what, identity, kept[i].identity);
        n_changed++;
    }
    assert_int_equal(n_changed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identities_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

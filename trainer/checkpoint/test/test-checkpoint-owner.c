/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-owner.c - two writers use one folder, in many ways: either one writer is refused and the error names
 * the owner, or both histories stay whole. Also tests which objects a writer never removes. */
#include "trainer/checkpoint/owner.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "store/test/testing-far.h"
#include "trainer/checkpoint/search.h"
#include "trainer/checkpoint/test/testing-state.h"

#include <string.h>
#include <sys/stat.h>

static const char one[] = "11111111111111111111111111111111",
                  two[] = "22222222222222222222222222222222",
                  three[] = "33333333333333333333333333333333";

static Fixture fixture;
static char folder[] = "/tmp/test-owner-XXXXXX";

/* ---- a hook at a fault point ---- */

static void (*hook)(void);
static const char *hook_point;

int __real_fault(const char *point);
int __wrap_fault(const char *point);

int __wrap_fault(const char *point)
{
    if (hook && strcmp(point, hook_point) == 0) {
        void (*now)(void) = hook;
        hook = NULL;
        now();
    }
    return __real_fault(point);
}

static void when(const char *point, void (*then)(void))
{
    hook_point = point;
    hook = then;
}

/* ---- a job in a cluster, or a run ---- */

typedef struct Life {
    Store *store;
    Comm *comm;
    CheckpointWriter *writer;
    CheckpointFacts facts;
    CheckpointOptions options;
    int64_t last; /* step of the last commit */
} Life;

static Life begin_as(const char *path, const char *submission, int64_t generation,
                     CheckpointClaim claimed)
{
    Error err = ERROR_INIT;
    Life l = {.facts = testing_facts(generation)};
    char uri[128];
    (void)snprintf(uri, sizeof(uri), "far://%s", path);
    (void)snprintf(l.facts.submission, sizeof(l.facts.submission), "%s", submission);
    (void)snprintf(l.facts.job, sizeof(l.facts.job), "job-%c", *submission);
    assert_int_equal(store_open(uri, &l.store, &err), 0);
    assert_int_equal(comm_open_self(&l.comm, &err), 0);
    const CheckpointOptions options = {.store = l.store,
                                       .reports = l.comm,
                                       .parameters = fixture.parameters,
                                       .unet_config = testing_config,
                                       .facts = l.facts,
                                       .claim = claimed,
                                       .keep_last = 2,
                                       .keep_every = 0};
    if (checkpoint_writer_new(&options, &l.writer, &err) < 0)
        fail_msg("%s", err.text);
    return l;
}

static Life begin_at(const char *path, const char *submission, int64_t generation, OwnerTakes takes,
                     bool alone)
{
    return begin_as(path, submission, generation,
                    (CheckpointClaim){.takes = takes, .alone = alone});
}

static Life begin(const char *submission, int64_t generation, OwnerTakes takes)
{
    return begin_at(folder, submission, generation, takes, false);
}

/* Begins a job at an operator's request with the id `act`. */
static Life begin_by(const char *submission, int64_t generation, const char *act)
{
    return begin_as(folder, submission, generation,
                    (CheckpointClaim){.takes = OWNER_TAKES_ANY, .act = act});
}

/* Begins a job that has another job identity than the other jobs of this test. */
static Life begin_other(const char *submission, OwnerTakes takes)
{
    Error err = ERROR_INIT;
    Life l = begin(submission, 1, takes);
    l.writer = checkpoint_writer_free(l.writer);
    CheckpointOptions options = {.store = l.store,
                                 .reports = l.comm,
                                 .parameters = fixture.parameters,
                                 .unet_config = testing_config,
                                 .facts = l.facts,
                                 .claim = {.takes = takes},
                                 .keep_last = 2};
    options.facts.job_identity.low ^= 1;
    assert_int_equal(checkpoint_writer_new(&options, &l.writer, &err), 0);
    return l;
}

static void end(Life *l)
{
    l->writer = checkpoint_writer_free(l->writer);
    l->comm = comm_free(l->comm);
    l->store = store_free(l->store);
}

static int64_t claim(Life *l)
{
    Error err = ERROR_INIT;
    CheckpointOwner *owner;
    if (checkpoint_claim(l->writer, &owner, &err) < 0)
        fail_msg("%s", err.text);
    return checkpoint_owner_number(owner);
}

static void assert_refused(const Error *err, int r, const char *by)
{
    assert_int_equal(r, -CHECKPOINT_NOT_OWNER);
    if (!strstr(err->text, by))
        fail_msg("\"%s\" does not name %s", err->text, by);
}

/* Checks that a claim is refused, and that the error's text contains `by`. */
static void refused(Life *l, const char *by)
{
    Error err = ERROR_INIT;
    int r = checkpoint_claim(l->writer, NULL, &err);
    assert_refused(&err, r, by);
}

static CheckpointResult save(Life *l, int64_t step)
{
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, step, 0, 1, 0, false);
    return testing_save(l->writer, state, 1, l->last + 1);
}

static void idle(Life *l)
{
    while (checkpoint_busy(l->writer))
        (void)usleep(1000); /* if usleep() returns early, the check is only repeated earlier */
}

/* Saves and commits, and waits until retention has ended. */
static CheckpointResult commit(Life *l, int64_t step)
{
    CheckpointResult result = save(l, step);
    if (result.phase != CHECKPOINT_WRITTEN)
        fail_msg("step %lld: %s", (long long)step, result.error.text);
    checkpoint_settle(l->writer, true);
    l->last = step;
    idle(l);
    return result;
}

static void resume(Life *l, const CheckpointResult *from)
{
    Error err = ERROR_INIT;
    const char *name = from->uri + strlen(store_uri(l->store)) + 1;
    _cleanup_free_ char *of = strndup(name, strcspn(name, "/"));
    _cleanup_(manifest_freep) Manifest *m = NULL;
    assert_int_equal(manifest_read(l->store, of, &from->hash, &m, &err), 0);
    assert_int_equal(checkpoint_adopt_history(l->writer, m, &err), 0);
    l->last = from->step;
}

/* Checks that all checkpoints are whole, and that their steps and owners are `expected`: "20.2 10.1", newest first. */
static void assert_whole(const char *expected)
{
    Error err = ERROR_INIT;
    StoreList list;
    _cleanup_(store_freep) Store *store = NULL;
    char found[256] = "";
    assert_int_equal(store_open(folder, &store, &err), 0);
    assert_int_equal(checkpoint_list(store, &list, &err), 0);
    for (size_t i = 0; i < list.n_objects; i++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 0, 0, 1, 0, false);
        if (manifest_read(store, list.objects[i].key, NULL, &m, &err) < 0 ||
            checkpoint_restore(store, NULL, m, state, &err) < 0)
            fail_msg("%s", err.text);
        for (size_t k = 0; k < m->n_segments; k++) {
            uint64_t n;
            assert_int_equal(store_head(store, m->segments[k].key, &n, &err), 0);
        }
        size_t used = strlen(found);
        (void)snprintf(found + used, sizeof(found) - used, "%s%lld.%lld", i ? " " : "",
                       (long long)m->name.step, (long long)m->name.owner);
    }
    store_list_clear(&list);
    assert_string_equal(found, expected);
}

static void path_of(const char *key, char path[256])
{
    (void)snprintf(path, 256, "%s/%s", folder, key);
}

static void write_file(const char *key, const char *text)
{
    Error err = ERROR_INIT;
    char path[256];
    path_of(key, path);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(folder_make(path, &err), 0);
    *slash = '/';
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
}

static bool is_there(const char *key)
{
    char path[256];
    path_of(key, path);
    return access(path, F_OK) == 0;
}

static void remove_file(const char *key)
{
    char path[256];
    path_of(key, path);
    assert_int_equal(unlink(path), 0);
}

/* ---- two writers ---- */

/* All generations of a submission are one owner; another submission's error names the owner of the folder. */
static void test_another_submission(void **unused)
{
    (void)unused;
    Life a = begin(one, 3, OWNER_TAKES_NONE);
    assert_int_equal(claim(&a), 1);
    (void)commit(&a, 10);
    Life next = begin(one, 4, OWNER_TAKES_NONE);
    assert_int_equal(claim(&next), 1);
    Life b = begin(two, 1, OWNER_TAKES_NONE);
    refused(&b, "job-1 of submission 11111111");
    CheckpointResult result = save(&b, 10); /* a save without a claim is refused, too */
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    assert_refused(&result.error, result.error.code, "owner/1");
    assert_whole("10.1");
    end(&b);
    end(&next);
    end(&a);
}

/* The folder has a second path: a symbolic link, in place of a second mount. */
static void test_second_path(void **unused)
{
    (void)unused;
    char link[64];
    (void)snprintf(link, sizeof(link), "%s-link", folder);
    assert_int_equal(symlink(folder, link), 0);
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    (void)commit(&a, 10);
    Life b = begin_at(link, two, 1, OWNER_TAKES_NONE, false);
    refused(&b, "job-1");
    end(&b);
    Life run = begin_at(link, three, 1, OWNER_TAKES_ALONE, true);
    refused(&run, "job-1"); /* a run takes over only from runs */
    end(&run);
    end(&a);
    assert_whole("10.1");
    assert_int_equal(unlink(link), 0);
}

/* A job is started with --resume while the first job trains: the second job becomes the owner, and the first job finds
 * this out before it writes. Both histories stay whole until the second job's commits have passed the older history. */
static void test_taken_over(void **unused)
{
    (void)unused;
    Life a = begin(one, 7, OWNER_TAKES_NONE);
    (void)commit(&a, 10);
    (void)commit(&a, 20);
    (void)commit(&a, 30);
    assert_whole("30.1 20.1");
    CheckpointResult forty = commit(&a, 40);

    Life b = begin(two, 1, OWNER_TAKES_ONCE);
    resume(&b, &forty);
    b.last = 40;
    assert_int_equal(claim(&b), 2);
    CheckpointResult result = save(&a, 50);
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    assert_refused(&result.error, result.error.code, "job-2 of submission 22222222");
    assert_whole("40.1 30.1");

    /* Generation 1 of owner 2 is later than generation 7 of owner 1, so retention continues. */
    (void)commit(&b, 50);
    assert_whole("50.2 40.1");
    (void)commit(&b, 60);
    assert_whole("60.2 50.2");
    end(&a);

    /* If another job has taken the folder over, the same --resume does not take the folder back. */
    Life c = begin(three, 1, OWNER_TAKES_ONCE);
    assert_int_equal(claim(&c), 3);
    Life again = begin(two, 2, OWNER_TAKES_ONCE);
    refused(&again, "job-3");
    end(&again);
    Life recover = begin(two, 3, OWNER_TAKES_ANY);
    assert_int_equal(claim(&recover), 4);
    refused(&c, "job-2");
    end(&recover);
    end(&c);
    end(&b);
}

/* `job recover` takes the folder over once: later generations of its job own the folder. If another job takes it over
 * later, no world of the first job takes it back by the same request. Another `job recover` takes it back. */
static void test_recover_takes_over_once(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    CheckpointResult ten = commit(&a, 10);
    Life plain = begin(two, 1, OWNER_TAKES_NONE);
    refused(&plain, "job-1");
    end(&plain);

    Life b = begin_by(two, 2, "1931ab-77");
    resume(&b, &ten);
    b.last = 10;
    assert_int_equal(claim(&b), 2);
    refused(&a, "job-2");
    end(&a);
    /* the request's first world was lost before its first commit */
    Life again = begin_by(two, 3, "1931ab-77");
    assert_int_equal(claim(&again), 2);
    end(&b);

    Life c = begin(three, 1, OWNER_TAKES_ANY);
    assert_int_equal(claim(&c), 3);
    end(&again);
    Life stale = begin_by(two, 4, "1931ab-77");
    refused(&stale, "job-3");
    end(&stale);
    Life anew = begin_by(two, 5, "1931ac-78");
    assert_int_equal(claim(&anew), 4);
    refused(&c, "job-2");
    end(&anew);
    end(&c);
}

/* Without a lock, a run records its end in the folder, so that the next run can take the folder over without an
 * operator. An operator is still needed if the run was killed, if the record is another run's, or if a job of a cluster
 * wants the folder. */
static void test_run_that_has_closed(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    Life a = begin_at(folder, one, 1, OWNER_TAKES_NONE, true);
    (void)commit(&a, 10);
    Life early = begin_at(folder, two, 1, OWNER_TAKES_NONE, true);
    refused(&early, "job-1");
    end(&early);
    assert_int_equal(checkpoint_close(a.writer, &err), 0);
    Life job = begin(three, 1, OWNER_TAKES_NONE);
    refused(&job, "job-1");
    end(&job);

    Life b = begin_at(folder, two, 2, OWNER_TAKES_NONE, true);
    assert_int_equal(claim(&b), 2);
    /* the folder now belongs to another run */
    assert_int_equal(checkpoint_close(a.writer, &err), -CHECKPOINT_NOT_OWNER);
    Life late = begin_at(folder, one, 3, OWNER_TAKES_NONE, true);
    refused(&late, "job-2"); /* b has not closed, like a run that was killed */
    end(&late);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/owner/closed-2", folder);
    assert_int_equal(file_write(path, "00112233445566778899aabbccddeeff", 32, 0, &err), 0);
    Life lied = begin_at(folder, one, 4, OWNER_TAKES_NONE, true);
    refused(&lied, "job-2");
    end(&lied);
    end(&a);
    end(&b);
}

static void take_over_by_two(void)
{
    Life b = begin(two, 1, OWNER_TAKES_ANY);
    assert_int_equal(claim(&b), 2);
    end(&b);
}

/* The folder is taken over while objects are uploaded, after the check at the beginning of the save: no manifest is
 * written, and no object remains. */
static void test_taken_over_in_a_save(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    (void)commit(&a, 10);
    when("checkpoint.manifest.before", take_over_by_two);
    CheckpointResult result = save(&a, 20);
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    assert_refused(&result.error, result.error.code, "job-2");
    assert_whole("10.1");
    end(&a);
}

/* The folder is taken over between a commit and its retention: nothing is removed, and the writer reports why. */
static void test_taken_over_before_retention(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    (void)commit(&a, 10);
    (void)commit(&a, 20);
    CheckpointResult result = save(&a, 30);
    assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
    take_over_by_two();
    checkpoint_settle(a.writer, true);
    idle(&a);
    checkpoint_poll(a.writer, &result);
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    assert_refused(&result.error, result.error.code, "job-2");
    assert_whole("30.1 20.1 10.1");
    end(&a);
}

static void claim_by_three(void)
{
    Life c = begin(three, 1, OWNER_TAKES_NONE);
    assert_int_equal(claim(&c), 1);
    (void)commit(&c, 10);
    end(&c);
}

/* Both writers saw an empty folder: the second writer to put a claim is refused. */
static void test_race(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    when("store.put.before", claim_by_three);
    refused(&a, "job-3");
    assert_whole("10.1");
    end(&a);
}

static Life third;

static void third_claims(void)
{
    third = begin(three, 1, OWNER_TAKES_NONE);
    assert_int_equal(claim(&third), 1);
    (void)commit(&third, 10);
}

/* The same race on a server that overwrites existing objects: the later put remains, and the earlier writer notices
 * this at its next check. The checkpoint that the earlier writer wrote before stays whole. */
static void test_race_without_if_absent(void **unused)
{
    (void)unused;
    atomic_store(&far->no_if_absent, true);
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    when("store.put.before", third_claims);
    assert_int_equal(claim(&a), 1);
    assert_whole("10.1");
    refused(&third, "job-1");
    CheckpointResult result = save(&third, 20);
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    end(&third);
    (void)commit(&a, 10);
    end(&a);
}

static char *claim_of_three;

static void three_puts_over(void) { write_file("owner/1", claim_of_three); }

/* The other writer puts its claim while this writer waits to read its own claim back. */
static void test_put_over_without_if_absent(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char path[256];
    path_of("owner/1", path);
    Life c = begin(three, 1, OWNER_TAKES_NONE);
    assert_int_equal(claim(&c), 1);
    end(&c);
    assert_int_equal(file_read(path, 4096, &claim_of_three, NULL, &err), 0);
    remove_file("owner/1");
    atomic_store(&far->no_if_absent, true);
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    when("store.put.after", three_puts_over);
    refused(&a, "job-3");
    end(&a);
    free(claim_of_three);
}

/* ---- runs without a cluster ---- */

static void test_runs(void **unused)
{
    (void)unused;
    Life a = begin_at(folder, one, 1, OWNER_TAKES_ALONE, true);
    CheckpointResult ten = commit(&a, 10);
    /* as on s3://, where no lock shows that a run has ended */
    Life s3 = begin_at(folder, two, 2, OWNER_TAKES_NONE, true);
    refused(&s3, "sdtrainer run of job job-1");
    end(&s3);
    /* as if the first run's lock were free */
    Life next = begin_at(folder, two, 2, OWNER_TAKES_ALONE, true);
    resume(&next, &ten);
    assert_int_equal(claim(&next), 2);
    (void)commit(&next, 20);
    refused(&a, "sdtrainer run of job job-2"); /* the first run has not ended after all */
    Life job = begin(three, 1, OWNER_TAKES_NONE);
    refused(&job, "sdtrainer run of job job-2");
    end(&job);
    assert_whole("20.2 10.1");
    end(&next);
    end(&a);
}

/* ---- objects that are lost or damaged ---- */

static void test_lost_owner(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    (void)commit(&a, 10);
    remove_file("owner/1");
    CheckpointResult twenty = commit(&a, 20);
    assert_true(is_there("owner/1"));
    end(&a);

    /* No writer is left that could put the claim again: a job that continues from a checkpoint in the folder may claim
     * the folder. */
    remove_file("owner/1");
    Life b = begin(two, 1, OWNER_TAKES_NONE);
    refused(&b, "holds 2 checkpoints");
    resume(&b, &twenty);
    assert_int_equal(claim(&b), 1);
    end(&b);
}

static void test_damaged_owner(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    CheckpointResult ten = commit(&a, 10);
    end(&a);
    write_file("owner/1", "{\"v\": 1, \"subm");
    Life b = begin(two, 1, OWNER_TAKES_NONE);
    refused(&b, "cannot be read");
    end(&b);
    a = begin(one, 2, OWNER_TAKES_NONE);
    refused(&a, "cannot be read"); /* nothing shows that the folder is this job's */
    resume(&a, &ten);
    /* the job's own checkpoint shows that the folder is the job's */
    assert_int_equal(claim(&a), 1);
    (void)commit(&a, 20);
    end(&a);
    write_file("owner/lock", "");
    write_file("owner/007", "");
    write_file("owner/1234567", "");
    write_file("owner/2x", "");
    a = begin(one, 3, OWNER_TAKES_ANY);
    assert_int_equal(claim(&a), 2); /* the four files written above are not claims */
    end(&a);
}

/* ---- objects of others ---- */

/* The owner of a folder removes no objects of a job with another identity, and no objects whose owner is not known. */
static void test_others_stay(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    for (int64_t step = 10; step <= 40; step += 10)
        (void)commit(&a, step);
    end(&a);
    write_file("step-0000000005-o1-g1-0000abcd/moments/c000000.bin", "unfinished");
    write_file("step-0000000005-o9-g1-0000abcd/moments/c000000.bin", "of nobody");
    Life b = begin_other(two, OWNER_TAKES_ANY);
    for (int64_t step = 50; step <= 80; step += 10) {
        b.last = step - 1;
        CheckpointResult result = save(&b, step);
        assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
        checkpoint_settle(b.writer, true);
        idle(&b);
        end(&b);
        b = begin_other(two, OWNER_TAKES_NONE);
    }
    end(&b);
    assert_true(is_there("step-0000000005-o1-g1-0000abcd/moments/c000000.bin"));
    assert_true(is_there("step-0000000005-o9-g1-0000abcd/moments/c000000.bin"));
    assert_whole("80.2 40.1 30.1");
}

/* The wrappers count unlinks: a manifest must be removed on the disk before any of its objects is removed. */
static int n_unlinked_manifests, n_unlinked_objects, n_unsynced;
static bool synced;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

int __wrap_fsync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        synced = true;
    return __real_fsync(fd);
}

int __wrap_unlink(const char *path)
{
    if (strstr(path, "/step-") && strstr(path, "/manifest.json")) {
        n_unlinked_manifests++;
        synced = false;
    } else if (strstr(path, "/step-") && !strstr(path, ".put-")) {
        n_unlinked_objects++;
        /* the test checks this count: an assertion must not fail in the writer's thread */
        n_unsynced += !synced;
    }
    return __real_unlink(path);
}

static void test_synced_between(void **unused)
{
    (void)unused;
    Life a = begin(one, 1, OWNER_TAKES_NONE);
    n_unlinked_manifests = n_unlinked_objects = n_unsynced = 0;
    for (int64_t step = 10; step <= 50; step += 10)
        (void)commit(&a, step);
    end(&a);
    assert_int_equal(n_unlinked_manifests, 3);
    assert_true(n_unlinked_objects > 3);
    assert_int_equal(n_unsynced, 0);
}

static int setup(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    far_begin();
    hook = NULL;
    return folder_make(folder, &err);
}

static int teardown(void **unused)
{
    (void)unused;
    return folder_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_another_submission, setup, teardown),
        cmocka_unit_test_setup_teardown(test_second_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recover_takes_over_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_run_that_has_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_over_in_a_save, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_over_before_retention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_race, setup, teardown),
        cmocka_unit_test_setup_teardown(test_race_without_if_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_put_over_without_if_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_others_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_synced_between, setup, teardown),
    };
    log_set_level(LOG_LEVEL_ERROR);
    if (!mkdtemp(folder))
        return 1;
    fixture_open(FIXTURE_SMALL, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    return failed;
}

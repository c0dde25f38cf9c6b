/* test-cache.c - one cache, many processes: one fetches and the others wait, for it or for its
 * death; the bound holds; what the dead leave is cleared. The parent opens nothing, so that it can
 * fork at any time. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "trainer/data/cache.h"
#include "trainer/data/index.h"
#include "trainer/data/testing-far.h"
#include "trainer/data/testing-loader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const struct timespec pause_msec = {0, 1000000};

typedef struct Lab {
    Fixture f;
    char uri[PATH_MAX + 8];
    uint64_t shard_bytes; /* of all */
} Lab;

/* The index is made by a child, too. */
static int make_index(void *context)
{
    Lab *lab = context;
    Error err = ERROR_INIT;
    Store *store = NULL;
    Index *index = NULL;
    int r = store_open(lab->uri, &store, &err);
    if (r == 0)
        r = index_make(store, false, NULL, NULL, &index, &err);
    if (r < 0)
        log_error("%s", err.text);
    (void)index_free(index);
    (void)store_free(store);
    return r < 0;
}

typedef int Life(void *context);

static pid_t begin(Life *life, void *context, const char *faults)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    Error err = ERROR_INIT;
    if (setenv("SDTRAIN_FAULT", faults, 1) < 0 || fault_open(&err) < 0)
        _exit(3);
    _exit(life(context));
}

/* The signal that ended it, or its exit status. */
static int end(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void lab_begin(Lab *lab, const char *compression)
{
    ScratchData data = plain;
    data.compression = compression;
    far_begin();
    fixture_make(&lab->f, &data);
    (void)snprintf(lab->uri, sizeof(lab->uri), "far://%s", lab->f.folders[0]);
    assert_int_equal(end(begin(make_index, lab, "data.none=eio")), 0);
    lab->f.job.data.streams[0].uri = lab->uri;
    lab->f.job.data.read_ahead = 16;
    lab->f.job.data.cache_dir = lab->f.cache;
    lab->f.job.data.cache_bytes = 1 << 30;
    lab->shard_bytes = 0;
    DIR *dir = opendir(lab->f.folders[0]);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (strncmp(e->d_name, "shard.", 6) == 0 && fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
            lab->shard_bytes += (uint64_t)st.st_size;
    }
    assert_int_equal(closedir(dir), 0);
    far_begin();
}

/* Of the cache now: bytes, whole files, parts. */
static uint64_t look(const Lab *lab, int *ret_files, int *ret_parts)
{
    uint64_t total = 0;
    DIR *dir = opendir(lab->f.cache);
    *ret_files = *ret_parts = 0;
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!strstr(e->d_name, ".mds") || fstatat(dirfd(dir), e->d_name, &st, 0) < 0)
            continue;
        total += (uint64_t)st.st_size;
        *(strstr(e->d_name, ".part") ? ret_parts : ret_files) += 1;
    }
    assert_int_equal(closedir(dir), 0);
    return total;
}

/* A rank that reads two passes and compares every number. cmocka's failure ends with a status of its
 * own only in the test's process: so does this. */
static int rank_life(void *context)
{
    Lab *lab = context;
    Dataset *dataset = NULL;
    Error err = ERROR_INIT;
    if (dataset_open(&lab->f.job, &dataset, &err) < 0) {
        log_error("%s", err.text);
        return 1;
    }
    Loader *loader = NULL;
    int r = loader_new(dataset, &lab->f.job, 0, 0, 6, 1 << 16, &loader, &err);
    for (int64_t step = 0; r == 0 && step < 45; step++) {
        for (int64_t g = 0; r == 0 && g < 6; g++) {
            LoaderGrain grain;
            r = loader_get(loader, step, g, 100 * USEC_PER_SEC, &grain, &err);
            for (int i = 0; r == 0 && i < 4; i++)
                for (int k = 0; k < 4 * 6 * 3; k++)
                    if (grain.latents[i * 72 + k % 18 * 4 + k / 18] !=
                        scratch_latent(&lab->f.data[0], (int)grain.samples[i].sample, k))
                        r = error_set(&err, -EBADMSG, "step %d holds another sample", (int)step);
        }
        if (r == 0)
            loader_release(loader, step);
    }
    if (r < 0)
        log_error("%s", err.text);
    (void)loader_free(loader);
    (void)dataset_free(dataset);
    return r < 0;
}

static void one_fetches_for_all(void **state)
{
    (void)state;
    for (int zip = 0; zip < 2; zip++) {
        Lab lab;
        pid_t ranks[4];
        lab_begin(&lab, zip ? "zstd:1" : NULL);
        atomic_store(&far->delay_usec, 2000); /* time for the others to come */
        for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
            ranks[i] = begin(rank_life, &lab, "data.none=eio");
        for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
            assert_int_equal(end(ranks[i]), 0);
        /* Every shard once, and the index once. */
        assert_int_equal(atomic_load(&far->fetches), 1);
        struct stat st;
        char path[PATH_MAX];
        assert_int_equal(stat(scratch_path(&lab.f.scratch, "first/" INDEX_NAME, path), &st), 0);
        assert_int_equal(atomic_load(&far->bytes), lab.shard_bytes + (uint64_t)st.st_size);
        int files, parts;
        (void)look(&lab, &files, &parts);
        assert_true(files > 5);
        assert_int_equal(parts, 0);
        scratch_remove(&lab.f.scratch);
    }
}

/* Whoever looks, whenever: never more than the bound. */
static void the_bound_holds_for_all_together(void **state)
{
    (void)state;
    for (int zip = 0; zip < 2; zip++) {
        Lab lab;
        pid_t ranks[3];
        int left = ELEMENTSOF(ranks), looks = 0, files, parts;
        lab_begin(&lab, zip ? "zstd:1" : NULL);
        lab.f.job.data.cache_bytes = 40000; /* three shards and a zipped one */
        for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
            ranks[i] = begin(rank_life, &lab, "data.none=eio");
        while (left > 0) {
            /* A listing while files come and go may count one that is gone beside its successor;
             * under the folder's lock nothing comes. */
            char path[PATH_MAX];
            int lock =
                cache_lock(scratch_path(&lab.f.scratch, "cache/.lock", path), 60 * USEC_PER_SEC);
            uint64_t bytes = lock >= 0 ? look(&lab, &files, &parts) : 0;
            (void)fd_close(lock);
            looks++;
            if (bytes > 40000)
                fail_msg("%llu bytes", (unsigned long long)bytes);
            for (size_t i = 0; i < ELEMENTSOF(ranks); i++) {
                int status;
                if (ranks[i] > 0 && waitpid(ranks[i], &status, WNOHANG) == ranks[i]) {
                    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                    ranks[i] = 0;
                    left--;
                }
            }
            (void)nanosleep(&pause_msec, NULL);
        }
        print_message("%d looks\n", looks);
        (void)look(&lab, &files, &parts);
        assert_int_equal(parts, 0);
        assert_true(files > 0);
        scratch_remove(&lab.f.scratch);
    }
}

/* Killed with the shard whole but unnamed, then others come. */
static void a_killed_fetcher_leaves_nothing(void **state)
{
    (void)state;
    const char *faults[] = {"cache.commit=kill@2", "cache.write=kill@3", "cache.reserve=kill@2"};
    for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
        Lab lab;
        int files, parts;
        lab_begin(&lab, i == 1 ? "zstd:1" : NULL);
        assert_int_equal(end(begin(rank_life, &lab, faults[i])), -SIGKILL);
        (void)look(&lab, &files, &parts);
        assert_true(parts > 0);
        lab.f.job.data.shuffle_window = 1; /* another order */
        assert_int_equal(end(begin(rank_life, &lab, "data.none=eio")), 0);
        (void)look(&lab, &files, &parts);
        assert_int_equal(parts, 0);
        scratch_remove(&lab.f.scratch);
    }
}

/* One is at it while the store is away, another waits for it, the first is killed: the second does
 * it itself. */
static void who_waits_for_a_dead_one_goes_on(void **state)
{
    (void)state;
    Lab lab;
    int files, parts = 0;
    lab_begin(&lab, NULL);
    atomic_store(&far->away, true);
    pid_t first = begin(rank_life, &lab, "data.none=eio");
    while (atomic_load(&far->under_way) == 0)
        (void)nanosleep(&pause_msec, NULL);
    pid_t second = begin(rank_life, &lab, "data.none=eio");
    while (atomic_load(&far->versions) < 2) /* it opens the dataset */
        (void)nanosleep(&pause_msec, NULL);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(end(first), -SIGKILL);
    atomic_store(&far->away, false);
    assert_int_equal(end(second), 0);
    (void)look(&lab, &files, &parts);
    assert_int_equal(parts, 0);
    assert_true(files > 5);
    scratch_remove(&lab.f.scratch);
}

/* A real disk that is too small for the bound, in a mount namespace of the rank's own. */
static int small_disk_life(void *context)
{
    Lab *lab = context;
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        folder_make(lab->f.cache, NULL) < 0 ||
        mount("none", lab->f.cache, "tmpfs", 0, "size=100k") < 0)
        return 77;
    int r = rank_life(lab), files, parts;
    if (r != 0)
        return r;
    uint64_t bytes = look(lab, &files, &parts);
    /* Room was made for new ones: it is full, not stuck. */
    return bytes <= 100 << 10 && files >= 2 && parts == 0 ? 0 : 2;
}

static void a_disk_that_is_full_is_made_room_on(void **state)
{
    (void)state;
    for (int zip = 0; zip < 2; zip++) {
        Lab lab;
        lab_begin(&lab, zip ? "zstd:1" : NULL);
        int status = end(begin(small_disk_life, &lab, "data.none=eio"));
        scratch_remove(&lab.f.scratch);
        if (status == 77)
            skip(); /* not root */
        assert_int_equal(status, 0);
    }
}

/* ---- the cache alone ---- */

static void put_file(Cache *cache, const char *name, size_t n_bytes)
{
    int fd = cache_reserve(cache, name, n_bytes);
    assert_true(fd >= 0);
    assert_int_equal(cache_commit(cache, name, fd, false), 0);
    (void)fd_close(fd);
}

static bool has_file(Cache *cache, const char *name, size_t n_bytes)
{
    int fd = cache_open(cache, name, n_bytes);
    (void)fd_close(fd);
    return fd >= 0;
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    Scratch scratch = scratch_make();
    char folder[PATH_MAX];
    Error err = ERROR_INIT;
    Cache *cache;
    (void)scratch_path(&scratch, "deep/cache", folder);
    assert_good(cache_new(folder, 35000, &cache, &err), err);
    const char *names[] = {"a.mds", "b.mds", "c.mds"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        put_file(cache, names[i], 10000);
        (void)nanosleep(&(struct timespec){0, 20000000}, NULL); /* more than a tick of file times */
    }
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    char path[PATH_MAX];
    assert_int_equal(utimensat(AT_FDCWD, scratch_path(&scratch, "deep/cache/a.mds", path), old, 0),
                     0);
    assert_true(has_file(cache, "a.mds", 10000)); /* used: b is the oldest now */
    put_file(cache, "d.mds", 10000);
    assert_false(has_file(cache, "b.mds", 10000));
    assert_true(has_file(cache, "a.mds", 10000));

    /* What somebody reads stays, however old. */
    int reader = cache_open(cache, "c.mds", 10000);
    assert_true(reader >= 0);
    put_file(cache, "f.mds", 20000);
    assert_true(has_file(cache, "c.mds", 10000));
    assert_int_equal(cache_reserve(cache, "x.mds", 30000), -ENOBUFS);
    (void)fd_close(reader);

    /* What is being filled counts and stays. */
    int fd = cache_reserve(cache, "e.mds", 20000);
    assert_true(fd >= 0);
    assert_int_equal(cache_reserve(cache, "e.mds", 20000), -EAGAIN);
    assert_int_equal(cache_reserve(cache, "f.mds", 20000), -ENOBUFS);
    assert_int_equal(cache_reserve(cache, "f.mds", 40000), -ENOBUFS);
    assert_int_equal(cache_commit(cache, "e.mds", fd, true), 0);
    assert_int_equal(cache_reserve(cache, "e.mds", 20000), -EEXIST);
    (void)fd_close(fd);
    assert_false(has_file(cache, "e.mds", 10000)); /* of another size: removed */
    assert_false(has_file(cache, "e.mds", 20000));
    fd = cache_reserve(cache, "g.mds", 100);
    assert_true(fd >= 0);
    fd = cache_abandon(cache, "g.mds", fd);
    fd = cache_reserve(cache, "g.mds", 100);
    assert_true(fd >= 0);
    fd = cache_abandon(cache, "g.mds", fd);
    cache_free(cache);
    scratch_remove(&scratch);
}

int main(void)
{
    log_open("test-cache");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(one_fetches_for_all),
        cmocka_unit_test(the_bound_holds_for_all_together),
        cmocka_unit_test(a_killed_fetcher_leaves_nothing),
        cmocka_unit_test(who_waits_for_a_dead_one_goes_on),
        cmocka_unit_test(a_disk_that_is_full_is_made_room_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

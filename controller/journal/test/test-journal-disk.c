/* SPDX-License-Identifier: Apache-2.0 */
/* test-journal-disk.c - a disk that fails at any call of the journal: lines that are not in the parts are counted,
 * and all other lines are there, in order. */
#include "base/clock.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "controller/journal/test/testing-life.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the disk ---- */

int __real_open(const char *path, int flags, ...);
int __real_fstat(int fd, struct stat *ret);
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __real_pread(int fd, void *data, size_t n, off_t offset);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __wrap_open(const char *path, int flags, ...);
int __wrap_fstat(int fd, struct stat *ret);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);

static struct {
    bool on;
    size_t n;            /* number of calls so far */
    size_t first, count; /* the first call that fails, and how many calls fail; 0: none */
    int error;
    bool cuts;        /* a failing write has written half of its bytes */
    bool is_cut;      /* a write was cut, and the write of its rest fails */
    char calls[8192]; /* the calls so far, one letter for each */
    /* Other ways to fail: */
    const char *fails_while; /* writes fail while this file exists */
    bool new_stays;          /* a new part cannot be renamed to the present part's name */
} disk;

static bool fails(char call)
{
    if (!disk.on)
        return false;
    assert_true(disk.n < sizeof(disk.calls));
    disk.calls[disk.n++] = call;
    errno = disk.error;
    return disk.n >= disk.first && disk.n < disk.first + disk.count;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails('o') ? -1 : __real_open(path, flags, mode);
}

int __wrap_fstat(int fd, struct stat *ret) { return fails('s') ? -1 : __real_fstat(fd, ret); }

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    if (disk.is_cut || (disk.fails_while && access(disk.fails_while, F_OK) == 0)) {
        disk.is_cut = false;
        errno = disk.error;
        return -1;
    }
    if (!fails('w'))
        return __real_write(fd, data, n);
    disk.is_cut = disk.cuts && n > 1;
    return disk.is_cut ? __real_write(fd, data, n / 2) : -1;
}

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset)
{
    return fails('r') ? -1 : __real_pread(fd, data, n, offset);
}

int __wrap_rename(const char *from, const char *to)
{
    const bool stays = disk.new_stays && strstr(from, ".new");
    if (stays)
        errno = ENOSPC;
    return stays || fails('n') ? -1 : __real_rename(from, to);
}

int __wrap_unlink(const char *path) { return fails('u') ? -1 : __real_unlink(path); }

/* ---- each call ---- */

enum { MAX_BYTES = 24 << 10 };

/* Starts a controller on a disk that fails for a moment: a failed start is tried again, as for a service. */
static void start(Life *s)
{
    s->may_fail = true;
    while (life_open(s, MAX_BYTES) < 0)
        assert_true(disk.n < disk.first + disk.count); /* a start fails only while calls fail */
    s->may_fail = false;
    life_begin_job(s);
}

/* Runs two processes, one after the other; each writes several parts. */
static LifeParts live(Life *s)
{
    disk.n = 0;
    disk.on = true;
    start(s);
    for (int64_t generation = 1; generation < 4; generation++)
        life_lose_a_rank(s, generation);
    start(s);
    for (int64_t generation = 1; generation < 4; generation++)
        life_lose_a_rank(s, generation);
    disk.on = disk.is_cut = false;
    return life_check(s);
}

static LifeParts live_with(size_t first, size_t count, int error, bool cuts)
{
    void *life;
    disk.first = first;
    disk.count = count;
    disk.error = error;
    disk.cuts = cuts;
    assert_int_equal(life_setup(&life), 0);
    LifeParts seen = live(life);
    assert_int_equal(life_teardown(&life), 0);
    return seen;
}

/* True when the test lets this call fail: every call other than a read or a write and, of the reads and writes, a few,
 * more while a part begins. */
static bool is_tried(const char *calls, size_t i, bool *begins)
{
    if (calls[i] == 'o')
        *begins = true;
    else if (calls[i] == 'w' && calls[i - 1] == 'n')
        *begins = false;
    const bool carries = calls[i] == 'w' || calls[i] == 'r';
    return !carries || i % (*begins ? 4 : 29) == 0;
}

static void any_call_fails(_unused_ void **state)
{
    int n_lives = 0, n_losing = 0, n_cut = 0;
    bool begins = false;
    char calls[sizeof(disk.calls)];
    LifeParts whole = live_with(0, 0, 0, false);
    assert_int_equal(whole.lost_events + whole.lost_decisions + whole.n_cut, 0);
    const size_t n_calls = disk.n;
    memcpy(calls, disk.calls, n_calls);
    for (size_t i = 0; i < n_calls; i++) {
        if (!is_tried(calls, i, &begins))
            continue;
        const LifeParts seen[] = {live_with(i + 1, 1, i % 2 ? EIO : ENOSPC, true),
                                  live_with(i + 1, 30, i % 2 ? ENOSPC : EIO, i % 3 == 0)};
        for (size_t k = 0; k < ELEMENTSOF(seen); k++) {
            n_lives++;
            n_losing += seen[k].lost_events > 0;
            n_cut += seen[k].n_cut;
        }
    }
    print_message("%zu calls, %d lives, %d of them lost lines, %d lines were cut\n", n_calls,
                  n_lives, n_losing, n_cut);
    assert_true(n_lives > 100 && n_losing > 50 && n_cut > 10);
}

/* ---- what is reported ---- */

/* If one write fails, the lines of the next minute are lost; the log and the next part report how many. */
static void what_is_lost_is_said(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    disk.n = 0;
    disk.on = true;
    disk.first = disk.count = 1;
    disk.error = EIO;
    life_tick(s);
    disk.on = false;
    assert_non_null(strstr(s->said, "events.jsonl: Input/output error; events are not recorded"));
    const uint64_t failed_usec = s->now_usec;
    s->said[0] = '\0';
    life_tick(s);
    life_put_node(s, "n3");
    s->now_usec = failed_usec + 60 * USEC_PER_SEC - 10 * USEC_PER_MSEC - 2;
    life_tick(s); /* a microsecond too early: a tick takes 10 ms and 1 us */
    assert_string_equal(s->said, "");
    s->now_usec = failed_usec + 60 * USEC_PER_SEC - 10 * USEC_PER_MSEC - 1;
    life_tick(s);
    assert_non_null(strstr(s->said, "is written again, without 4 events and 0 decisions\n"));
    LifeParts seen = life_check(s);
    assert_int_equal(seen.lost_events, 4);
    assert_int_equal(seen.n_heads, 2);
}

/* A controller that ends before a new part could begin also reports the lost lines. */
static void what_is_lost_at_the_end_is_said(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    disk.n = 0;
    disk.on = true;
    disk.first = disk.count = 1;
    disk.error = ENOSPC;
    life_put_node(s, "n1");
    disk.on = false;
    const int n_decisions = s->n_decisions;
    life_begin_job(s);
    LifeParts seen = life_check(s);
    assert_true(s->n_decisions > n_decisions);
    assert_int_equal(seen.lost_decisions, s->n_decisions - n_decisions);
    assert_non_null(strstr(s->said, " decisions are not in /tmp/"));
}

/* At the start a failing disk is an error, but a full disk is not: lines that could not be written are counted in
 * the part that begins when there is room. */
static void a_start_on_a_full_disk(void **state)
{
    Life *s = *state;
    disk.n = 0;
    disk.on = disk.cuts = s->may_fail = true;
    for (size_t i = 1; i <= 2; i++) {
        disk.n = 0;
        disk.first = i;
        disk.count = 1;
        disk.error = EIO;
        assert_int_equal(life_open(s, LIFE_LARGE), -EIO);
        assert_null(s->journal);
    }
    assert_int_equal(unlink(s->path), 0);
    disk.n = 0;
    disk.first = 1;
    disk.error = EDQUOT;
    s->now_usec = clock_boottime_usec();
    assert_int_equal(life_open(s, LIFE_LARGE), 0);
    assert_non_null(strstr(s->said, "events.jsonl: Disk quota exceeded; events are not recorded"));
    disk.on = false;
    life_begin_job(s);
    assert_int_equal(access(s->path, F_OK), -1);
    s->now_usec = UINT64_C(1) << 50;
    life_lose_a_rank(s, 1);
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_heads, 1);
    assert_true(seen.lost_events > 10 && seen.lost_decisions > 1);
    assert_int_equal(seen.lost_decisions + seen.n_decisions, s->n_decisions);
}

static ino_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

/* If a new part cannot be renamed, the present part gets its name back, so that a full disk does not remove it. */
static void a_part_that_cannot_take_its_place(void **state)
{
    Life *s = *state;
    int64_t generation = 1;
    life_open(s, 64 << 10);
    life_begin_job(s);
    const ino_t part = inode_of(s->path);
    disk.new_stays = true;
    while (generation < 20)
        life_lose_a_rank(s, generation++);
    assert_int_equal(inode_of(s->path), part);
    assert_int_equal(inode_of(s->old_path), 0);
    disk.new_stays = false;
    while (generation < 21)
        life_lose_a_rank(s, generation++);
    assert_int_equal(inode_of(s->old_path), part);
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_heads, 2);
    assert_true(seen.n_decisions > 4 && seen.lost_decisions > 4);
    assert_int_equal(seen.lost_decisions + seen.n_decisions, s->n_decisions);
}

/* On a full disk, and only there, the part before the present one is removed to make room. */
static void a_full_disk_loses_the_part_before(void **state)
{
    Life *s = *state;
    life_open(s, 256 << 10);
    life_begin_job(s);
    int64_t generation = 1;
    while (!inode_of(s->old_path))
        life_lose_a_rank(s, generation++);
    const ino_t before = inode_of(s->old_path);
    disk.fails_while = s->old_path;
    disk.error = EIO;
    for (int i = 0; i < 20; i++)
        life_lose_a_rank(s, generation++);
    assert_int_equal(inode_of(s->old_path), before);
    assert_null(strstr(s->said, "made way"));
    disk.error = ENOSPC;
    for (int i = 0; i < 20 && disk.fails_while; i++) {
        life_lose_a_rank(s, generation++);
        if (inode_of(s->old_path) != before)
            disk.fails_while = NULL;
    }
    assert_null(disk.fails_while);
    assert_non_null(strstr(s->said, "the disk is full: "));
    assert_non_null(strstr(s->said, "events.jsonl.1 and its "));
    life_lose_a_rank(s, generation++);
    LifeParts seen = life_check(s);
    assert_true(seen.lost_events > 0 && seen.n_decisions > 0);
    assert_int_equal(seen.lost_decisions + seen.n_decisions, s->n_decisions);
}

static int begin(void **state)
{
    memset(&disk, 0, sizeof(disk));
    return life_setup(state);
}

#define WITH_LIFE(test) cmocka_unit_test_setup_teardown(test, begin, life_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_fails),
        WITH_LIFE(what_is_lost_is_said),
        WITH_LIFE(what_is_lost_at_the_end_is_said),
        WITH_LIFE(a_start_on_a_full_disk),
        WITH_LIFE(a_part_that_cannot_take_its_place),
        WITH_LIFE(a_full_disk_loses_the_part_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

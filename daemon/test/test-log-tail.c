/* SPDX-License-Identifier: Apache-2.0 */
/* test-log-tail.c - the exact bytes that a reader of a rank's log gets: real files, with times of birth that the
 * test sets. */
#include "base/file.h"
#include "base/test/testing.h"
#include "daemon/process/log-tail.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static LogTail tail;
static LogPlace place;
static LogTailPiece piece;
static char buffer[LOG_TAIL_LINE_MAX];

/* ---- times of birth, and a disk that fails ---- */

static int birth_r, read_errno;
static unsigned birth_mask;
static int64_t birth_sec;

__typeof__(statx) __wrap_statx;
ssize_t __real_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset);

int __wrap_statx(_unused_ int fd, _unused_ const char *path, _unused_ int flags, unsigned mask,
                 struct statx *ret)
{
    assert_int_equal(mask, STATX_BTIME);
    *ret = (struct statx){.stx_mask = birth_mask, .stx_btime = {.tv_sec = birth_sec}};
    return birth_r;
}

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset)
{
    if (!read_errno)
        return __real_pread(fd, data, n, offset);
    errno = read_errno;
    return -1;
}

static const char *path_of(const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof(path), "%s/a/g1/%s", folder, name);
    return path;
}

static void append(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "ae");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void append_lines(const char *name, size_t bytes)
{
    FILE *file = fopen(path_of(name), "ae");
    assert_non_null(file);
    for (size_t i = 1; i <= bytes; i++)
        assert_true(fputc(i % 64 && i < bytes ? 'x' : '\n', file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void turn_over(void)
{
    char old[200];
    (void)snprintf(old, sizeof(old), "%s", path_of("rank4.log.1"));
    assert_int_equal(rename(path_of("rank4.log"), old), 0);
}

static int set_up(_unused_ void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/test-log-tail-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(folder_make(path_of(""), NULL), 0);
    tail = (LogTail){.log_dir = folder, .job = "a", .generation = 1, .tail_bytes = 1000};
    place = (LogPlace){.rank = 4};
    birth_r = read_errno = 0;
    birth_mask = STATX_BTIME;
    birth_sec = 1700000000;
    return 0;
}

static int tear_down(_unused_ void **state) { return folder_remove(folder, NULL); }

static void expect(const char *text, int64_t skipped, bool more)
{
    errno = EIO; /* errno has no meaning after a success */
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_int_equal(piece.n, strlen(text));
    assert_memory_equal(buffer, text, piece.n);
    assert_int_equal(piece.skipped, skipped);
    assert_int_equal(piece.more, more);
}

/* ---- where a reader begins ---- */

static void a_reader_begins_at_a_line_of_the_tail(_unused_ void **state)
{
    append("rank4.log", "one\ntwo\nthree\n");
    tail.tail_bytes = 6; /* the length of the last line */
    expect("three\n", 8, false);
    expect("", 0, false);
    place = (LogPlace){.rank = 4};
    tail.tail_bytes = 7;
    expect("three\n", 8, false);
    place = (LogPlace){.rank = 4};
    tail.tail_bytes = 5; /* the reader begins after the line that is cut */
    expect("", 14, false);
    place = (LogPlace){.rank = 4};
    tail.tail_bytes = 100;
    expect("one\ntwo\nthree\n", 0, false);
}

static void a_tail_may_begin_in_the_old_file(_unused_ void **state)
{
    append("rank4.log", "one\ntwo\n");
    turn_over();
    expect("one\ntwo\n", 0, false); /* the log has no more bytes */
    append("rank4.log", "three\n");
    expect("", 0, true);
    expect("three\n", 0, false);
    for (int64_t bytes = 10; bytes <= 14; bytes += 4) {
        place = (LogPlace){.rank = 4};
        tail.tail_bytes = bytes; /* the last 10 bytes begin with "two", the last 14 with "one" */
        expect(bytes == 10 ? "two\n" : "one\ntwo\n", bytes == 10 ? 4 : 0, true);
        expect("three\n", 0, false);
    }
    place = (LogPlace){.rank = 4};
    tail.tail_bytes = 6; /* the length of the present file */
    expect("three\n", 8, false);
    place = (LogPlace){.rank = 4};
    tail.tail_bytes = 3;
    expect("", 14, false);
}

static void what_turns_over_is_read_once(_unused_ void **state)
{
    char old[200];
    tail.follow = true;
    append("rank4.log", "one\nha");
    expect("one\n", 0, false);
    turn_over();
    expect("ha", 0, false); /* the old file gets no more bytes */
    append("rank4.log", "");
    expect("", 0, false);
    append("rank4.log", "lf\n");
    expect("lf\n", 0, false);
    expect("", 0, false);
    append("rank4.log", "four\n");
    (void)unlink(path_of("rank4.log.1"));
    (void)snprintf(old, sizeof(old), "%s", path_of("rank4.log.1"));
    assert_int_equal(link(path_of("rank4.log"), old), 0); /* two names of one file */
    expect("four\n", 0, false);
    expect("", 0, false);
    (void)unlink(path_of("rank4.log"));
    (void)unlink(old);
    append("rank4.log", "new\n"); /* a new file, as if the log had turned over twice */
    birth_sec++;
    expect("new\n", 1, false);
    assert_int_equal(truncate(path_of("rank4.log"), 0), 0);
    expect("", 0, false);
    append("rank4.log", "x\n");
    expect("x\n", 0, false);
}

/* ---- readers that are too far behind ---- */

static void who_is_too_far_behind_is_set_to_the_tail(_unused_ void **state)
{
    const int64_t most = LOG_TAIL_BEHIND_MAX + 64;
    tail.tail_bytes = 64;
    append("rank4.log", "\n");
    expect("\n", 0, false);
    append_lines("rank4.log", (size_t)most);
    const LogPlace before = place;
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_true(piece.skipped == 0 && piece.n > 0 && piece.n % 64 == 0 && piece.more);
    place = before;
    append("rank4.log", "y\n");
    expect("y\n", most, false); /* the reader begins after the line that is cut */

    turn_over();
    append_lines("rank4.log", 128);
    place = before; /* a place in the old file; the tail begins in the present file */
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_int_equal(piece.skipped, most + 2 + 64);
    assert_true(piece.n == 64 && !piece.more);
    tail.tail_bytes = 130;
    place = before;
    expect("y\n", most, true);
}

/* ---- files that are not logs, and calls that fail ---- */

static void lines_are_whole_where_they_can_be(_unused_ void **state)
{
    tail.tail_bytes = 1 << 20;
    append_lines("rank4.log", 3 * sizeof(buffer) - 32);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
        assert_int_equal(piece.n, i < 2 ? sizeof(buffer) : sizeof(buffer) - 32);
        assert_int_equal(piece.more, i < 2);
    }
    append("rank4.log", "12345678\n");
    append_lines("rank4.log", sizeof(buffer));
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_true(piece.n == sizeof(buffer) - 64 + 9 && piece.more);
    append("rank4.log", "not whole");
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_int_equal(piece.n, 64 + 9);
}

static void what_is_no_log_is_none(_unused_ void **state)
{
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), -ENOENT);
    assert_int_equal(mkfifo(path_of("rank4.log"), 0600), 0);
    assert_int_equal(mkdir(path_of("rank4.log.1"), 0700), 0);
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), -ENOENT);
    (void)unlink(path_of("rank4.log"));
    append("rank4.log", "x\n");
    piece.n = 77;
    read_errno = EIO;
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), -EIO);
    assert_int_equal(piece.n, 77);
}

/* If the time of birth is unknown, the inode number alone identifies a file. */
static void a_birth_that_is_not_known_tells_nothing(_unused_ void **state)
{
    append("rank4.log", "one\n");
    birth_mask = 0;
    expect("one\n", 0, false);
    birth_sec++;
    expect("", 0, false);
    birth_mask = STATX_BTIME;
    birth_r = -1;
    expect("", 0, false);
    birth_r = 0;
    for (int i = 0; i < 64; i++) { /* the number that names a file must be positive */
        birth_sec = (int64_t)((UINT64_C(1) << 63) >> (i % 32)) / 1000000007 + i;
        place = (LogPlace){.rank = 4};
        expect("one\n", 0, false);
        assert_true(place.file > 0);
    }
}

/* Descriptor 0 is valid in a daemon without standard input, and no descriptor is left open. */
static void descriptor_0_is_one_and_none_is_left(_unused_ void **state)
{
    int ranks[4];
    const int input = dup(0), first = dup(0);
    assert_int_equal(close(first) | close(0), 0);
    append("rank4.log", "one\n");
    expect("one\n", 0, false);
    append("rank4.log", "two\n");
    turn_over();
    expect("two\n", 0, false); /* the old file is opened as descriptor 0 */
    append("rank4.log", "three\n");
    place = (LogPlace){.rank = 4};
    expect("one\ntwo\n", 0, true);
    expect("three\n", 0, false);
    assert_int_equal(log_tail_ranks(&tail, ranks, 4), 1);
    read_errno = EIO;
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), -EIO);
    assert_int_equal(dup2(input, 0), 0);
    assert_int_equal(dup(0), first);
    assert_int_equal(close(first) | close(input), 0);
}

/* ---- the ranks of a generation ---- */

static void expect_ranks(size_t most, const int *wanted, size_t n)
{
    static const int before[] = {-1, 2, 1000000};
    int ranks[16];
    for (size_t i = 0; i < ELEMENTSOF(before); i++) {
        for (size_t k = 0; k < ELEMENTSOF(ranks); k++)
            ranks[k] = before[i];
        assert_int_equal(log_tail_ranks(&tail, ranks, most), n);
        assert_memory_equal(ranks, wanted, n * sizeof(ranks[0]));
        for (size_t k = n; k < ELEMENTSOF(ranks); k++)
            assert_int_equal(ranks[k], before[i]);
    }
}

static void the_lowest_ranks_are_listed_in_their_order(_unused_ void **state)
{
    static const char *const files[] = {"rank10.log",   "rank2.log",  "rank2.log.1", "rank0.log.1",
                                        "rank3.log.b",  "rank-1.log", "rank.log",    "xrank4.log",
                                        "rank5",        "rank6.lo",   "rank77.log",  "rank1.log",
                                        "rank99999.log"};
    static const int wanted[] = {0, 1, 2, 10, 77, RECORD_RANKS_MAX - 1};
    char name[40];
    expect_ranks(10, wanted, 0);
    for (size_t i = 0; i < ELEMENTSOF(files); i++)
        append(files[i], "x\n");
    for (int rank = RECORD_RANKS_MAX - 1; rank <= RECORD_RANKS_MAX; rank++) {
        (void)snprintf(name, sizeof(name), "rank%d.log", rank);
        append(name, "x\n");
    }
    for (size_t most = 0; most <= 10; most++)
        expect_ranks(most, wanted, MIN(most, ELEMENTSOF(wanted)));
    tail.generation = 2;
    expect_ranks(10, wanted, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_reader_begins_at_a_line_of_the_tail),
        CASE(a_tail_may_begin_in_the_old_file),
        CASE(what_turns_over_is_read_once),
        CASE(who_is_too_far_behind_is_set_to_the_tail),
        CASE(lines_are_whole_where_they_can_be),
        CASE(what_is_no_log_is_none),
        CASE(a_birth_that_is_not_known_tells_nothing),
        CASE(descriptor_0_is_one_and_none_is_left),
        CASE(the_lowest_ranks_are_listed_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test-rank-log.c - what a rank prints, as stored on disk and as evidence: real pipes and files. */
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "daemon/process/log-tail.h"
#include "daemon/process/logs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/sdtrain-rank-log-XXXXXX";
static sd_event *event;
static RankLog *rank_log;
static int output; /* the trainer's end of the pipe */

/* While this folder exists the disk is full: a file takes five more bytes, then none. */
static const char *full_while;
static int full_errno = ENOSPC;

static bool interrupts;  /* the next write fails with EINTR */
static bool never_empty; /* the pipe never becomes empty */
static int n_reads, n_warnings, n_sources;

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __real_read(int fd, void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n);
__typeof__(sd_event_add_io) __real_sd_event_add_io, __wrap_sd_event_add_io;
__typeof__(sd_event_source_disable_unref) __real_sd_event_source_disable_unref,
    __wrap_sd_event_source_disable_unref;

ssize_t __wrap_read(int fd, void *data, size_t n)
{
    n_reads++;
    if (!never_empty)
        return __real_read(fd, data, n);
    memcpy(data, "more\n", 5);
    return 5;
}

int __wrap_sd_event_add_io(sd_event *e, sd_event_source **ret, int fd, uint32_t events,
                           sd_event_io_handler_t handler, void *userdata)
{
    n_sources++;
    return __real_sd_event_add_io(e, ret, fd, events, handler, userdata);
}

sd_event_source *__wrap_sd_event_source_disable_unref(sd_event_source *source)
{
    n_sources -= source != NULL;
    return __real_sd_event_source_disable_unref(source);
}

static void on_log(_unused_ LogLevel level, _unused_ const char *text) { n_warnings++; }

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    static bool took_some;
    struct stat st;
    if (interrupts && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        interrupts = false;
        errno = EINTR;
        return -1;
    }
    if (!full_while || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || access(full_while, F_OK) < 0)
        return __real_write(fd, data, n);
    took_some = !took_some;
    if (took_some)
        return __real_write(fd, data, MIN(n, (size_t)5));
    errno = full_errno;
    return -1;
}

static int set_up(_unused_ void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/sdtrain-rank-log-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_true(sd_event_new(&event) >= 0);
    log_lend(on_log);
    n_warnings = 0;
    output = -EBADF;
    return 0;
}

static void finish(void)
{
    rank_log = rank_log_free(rank_log);
    output = fd_close(output);
}

static int tear_down(_unused_ void **state)
{
    Error err = ERROR_INIT;
    finish();
    assert_int_equal(n_sources, 0);
    event = sd_event_unref(event);
    assert_int_equal(folder_remove(folder, &err), 0);
    return 0;
}

static void begin(int64_t generation, int64_t max_bytes)
{
    Error err = ERROR_INIT;
    finish();
    if (rank_log_new(event, folder, "a", generation, 3, max_bytes, &output, &rank_log, &err) < 0)
        fail_msg("%s", err.text);
}

static void print(const char *text)
{
    assert_int_equal(write(output, text, strlen(text)), strlen(text));
    rank_log_drain(rank_log);
}

static const char *path_of(int generation, const char *name)
{
    static char path[300];
    (void)snprintf(path, sizeof(path), "%s/a/g%d/%s", folder, generation, name);
    return path;
}

static void expect_of(int generation, const char *name, const char *text)
{
    static char found[4096];
    int fd = open(path_of(generation, name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, found, sizeof(found) - 1);
    assert_true(n >= 0);
    found[n] = '\0';
    assert_int_equal(close(fd), 0);
    assert_string_equal(found, text);
}

static void expect_file(const char *name, const char *text) { expect_of(1, name, text); }

static bool exists(int generation)
{
    struct stat st;
    return stat(path_of(generation, ""), &st) == 0;
}

/* ---- evidence ---- */

static void the_last_line_is_the_last_that_is_not_empty(_unused_ void **state)
{
    begin(1, 1 << 20);
    assert_string_equal(rank_log_last_line(rank_log), "");
    print("one\n");
    assert_string_equal(rank_log_last_line(rank_log), "one");
    print("two\n\n\n");
    assert_string_equal(rank_log_last_line(rank_log), "two");
    print("beg");
    assert_string_equal(rank_log_last_line(rank_log), "beg");
    print("un");
    assert_string_equal(rank_log_last_line(rank_log), "begun");
    print(" and ended\nshort\n");
    assert_string_equal(rank_log_last_line(rank_log), "short");
    print("a\tb\x01\n");
    assert_string_equal(rank_log_last_line(rank_log), "a b ");
    expect_file("rank3.log", "one\ntwo\n\n\nbegun and ended\nshort\na\tb\x01\n");
    print("x");
    assert_string_equal(rank_log_last_line(rank_log), "x");
}

static void a_long_line_is_known_by_its_beginning(_unused_ void **state)
{
    char text[2 * RANK_LOG_LINE_MAX + 1], wanted[RANK_LOG_LINE_MAX + 1];
    memset(text, 'x', sizeof(text) - 1);
    memset(wanted, 'x', sizeof(wanted) - 1);
    text[sizeof(text) - 1] = wanted[sizeof(wanted) - 1] = '\0';
    begin(1, 1 << 20);
    print(text);
    assert_string_equal(rank_log_last_line(rank_log), wanted);
    print(text);
    print("\n");
    assert_string_equal(rank_log_last_line(rank_log), wanted);
    print("next\n");
    assert_string_equal(rank_log_last_line(rank_log), "next");
}

/* All output is drained, even if one read does not take it: what was printed before an end must be read when the end
 * is judged. */
static void all_that_lies_in_the_pipe_is_drained(_unused_ void **state)
{
    char line[1000];
    memset(line, 'y', sizeof(line) - 1);
    line[sizeof(line) - 2] = '\n';
    line[sizeof(line) - 1] = '\0';
    begin(1, 1 << 20);
    for (int i = 0; i < 50; i++)
        assert_int_equal(write(output, line, strlen(line)), strlen(line));
    print("the end\n");
    assert_string_equal(rank_log_last_line(rank_log), "the end");
    struct stat st;
    assert_int_equal(stat(path_of(1, "rank3.log"), &st), 0);
    assert_int_equal(st.st_size, 50 * (sizeof(line) - 1) + 8);
    rank_log_drain(rank_log); /* nothing is left */
    never_empty = true;       /* a rank's child may write on: the drain ends all the same */
    n_reads = 0;
    rank_log_drain(rank_log);
    never_empty = false;
    assert_int_equal(n_reads, 64);
}

static int n_other;

static int on_other(_unused_ sd_event_source *source, _unused_ void *userdata)
{
    n_other++;
    return 0;
}

/* Output lines are read after all other events, since a rank's end must not wait. */
static void lines_come_after_everything_else(_unused_ void **state)
{
    begin(1, 1 << 20);
    for (int i = 0; i < 3; i++) {
        n_other = 0;
        assert_int_equal(write(output, "x\n", 2), 2);
        assert_true(sd_event_add_defer(event, NULL, on_other, NULL) >= 0);
        n_reads = 0;
        assert_true(sd_event_run(event, 0) > 0);
        assert_true(n_other == 1 && n_reads == 0);
        assert_true(sd_event_run(event, 0) > 0);
        assert_true(n_reads > 0);
    }
}

/* Descriptor 0 is valid in a daemon without standard input, and no descriptor is left open. */
static void descriptor_0_is_one_and_none_is_left(_unused_ void **state)
{
    begin(1, 20);
    finish();
    const int input = dup(0), first = dup(0);
    assert_int_equal(close(first) | close(0), 0);
    for (int i = 0; i < 3; i++) {
        begin(1, 20);
        print("123456789\n");
        print("abcdefghi\n");
        expect_file("rank3.log", "abcdefghi\n");
        expect_file("rank3.log.1", "123456789\n");
        rank_log_prune(folder, "a");
        finish();
    }
    assert_int_equal(n_warnings, 0);
    assert_int_equal(dup2(input, 0), 0);
    assert_int_equal(dup(0), first);
    assert_int_equal(close(first) | close(input), 0);
}

/* The loop reads the pipe, and still runs after the trainer has closed its end. */
static void the_loop_reads_until_the_trainer_is_gone(_unused_ void **state)
{
    begin(1, 1 << 20);
    assert_int_equal(write(output, "one\n", 4), 4);
    assert_true(sd_event_run(event, 1000000) > 0);
    assert_string_equal(rank_log_last_line(rank_log), "one");
    output = fd_close(output);
    for (int i = 0; i < 3; i++)
        assert_true(sd_event_run(event, 0) >= 0);
    assert_int_equal(sd_event_run(event, 0), 0); /* the loop does not spin */
}

/* ---- files ---- */

/* The end of the output is always kept: at least as many bytes as half the bound. */
static void a_file_turns_over_at_half_of_its_bound(_unused_ void **state)
{
    begin(1, 20);
    print("12345\n");
    print("789\n"); /* 10 bytes: exactly half the bound */
    expect_file("rank3.log", "12345\n789\n");
    print("a\n");
    expect_file("rank3.log.1", "12345\n789\n");
    expect_file("rank3.log", "a\n");
    print("12345678\n");
    expect_file("rank3.log.1", "a\n");
    expect_file("rank3.log", "12345678\n");
    print("b\n");
    expect_file("rank3.log.1", "12345678\n");
    expect_file("rank3.log", "b\n");
    assert_string_equal(rank_log_last_line(rank_log), "b");
    print("c\n"); /* a new file has room for more than one line */
    expect_file("rank3.log.1", "12345678\n");
    expect_file("rank3.log", "b\nc\n");
}

static void a_rank_that_starts_again_begins_anew(_unused_ void **state)
{
    begin(1, 1 << 20);
    print("of before\n");
    begin(1, 1 << 20);
    print("new\n");
    expect_file("rank3.log", "new\n");
}

/* A disk that fails costs lines: the rank runs, and its last line still explains its end. */
static void without_a_file_the_last_line_is_known(_unused_ void **state)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/a", folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* a file in place of the folder */
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    begin(1, 20);
    for (int i = 0; i < 10; i++)
        print("it goes on\n");
    assert_int_equal(n_warnings, 1);
    assert_string_equal(rank_log_last_line(rank_log), "it goes on");
}

/* The disk is full until something is removed: generations beyond the newest ones are removed, once, and no byte of
 * the output is lost or written twice. */
static void a_full_disk_costs_old_generations_first(_unused_ void **state)
{
    enum { N = RANK_LOG_GENERATIONS_KEPT + 3 };
    Error err = ERROR_INIT;
    begin(N, 1 << 20);
    for (int generation = 1; generation < N; generation++)
        assert_int_equal(folder_make(path_of(generation, ""), &err), 0);
    interrupts = true;
    print("before\n");
    assert_true(exists(1)); /* there is room: nothing is removed */
    _cleanup_free_ char *first = strdup(path_of(1, ""));
    full_while = first;
    print("a line that is written in two parts\n");
    full_while = NULL;
    expect_of(N, "rank3.log", "before\na line that is written in two parts\n");
    assert_int_equal(n_warnings, 0);
    for (int generation = 1; generation <= N; generation++)
        assert_int_equal(exists(generation), generation > N - RANK_LOG_GENERATIONS_KEPT);

    full_while = folder; /* nothing more can be removed */
    full_errno = EDQUOT;
    print("all of this is lost\n");
    assert_int_equal(folder_make(path_of(1, ""), &err), 0);
    print("all of this is lost\n");
    assert_true(exists(1)); /* logs are not removed again */
    assert_int_equal(n_warnings, 1);
    full_while = NULL;
    print("and it goes on\n");
    full_errno = ENOSPC;
    assert_true(exists(N - RANK_LOG_GENERATIONS_KEPT + 1));
    assert_string_equal(rank_log_last_line(rank_log), "and it goes on");
}

static void the_newest_generations_are_kept(_unused_ void **state)
{
    enum { N = RANK_LOG_GENERATIONS_KEPT + 5 };
    Error err = ERROR_INIT;
    for (int generation = 1; generation <= N; generation++)
        assert_int_equal(folder_make(path_of(2 * generation, ""), &err), 0);
    char other[300];
    (void)snprintf(other, sizeof(other), "%s/a/other", folder);
    assert_int_equal(folder_make(other, &err), 0);
    rank_log_prune(folder, "b"); /* job b has no logs */
    rank_log_prune(folder, "a");
    for (int generation = 1; generation <= N; generation++)
        assert_int_equal(exists(2 * generation), generation > N - RANK_LOG_GENERATIONS_KEPT);
    struct stat st;
    assert_int_equal(stat(other, &st), 0);
    rank_log_prune(folder, "a");
    assert_true(exists(2 * N) && exists(2 * (N - RANK_LOG_GENERATIONS_KEPT + 1)));
}

static void an_edquot_is_a_full_disk(_unused_ void **state)
{
    enum { N = RANK_LOG_GENERATIONS_KEPT + 1 };
    Error err = ERROR_INIT;
    for (int generation = 1; generation < N; generation++)
        assert_int_equal(folder_make(path_of(generation, ""), &err), 0);
    begin(N, 1 << 20);
    _cleanup_free_ char *first = strdup(path_of(1, ""));
    full_while = first;
    full_errno = EIO; /* removing logs would not help */
    print("all of this is lost\n");
    assert_true(exists(1));
    begin(N, 1 << 20);
    full_errno = EDQUOT;
    print("a line that is written in two parts\n");
    full_while = NULL;
    full_errno = ENOSPC;
    assert_false(exists(1));
}

/* If there are more generations than one call lists, the call removes the oldest of those that it lists; the next
 * call removes more. */
static void a_great_many_generations_go_part_by_part(_unused_ void **state)
{
    enum { N = 300 };
    Error err = ERROR_INIT;
    int n = 0;
    for (int generation = 1; generation <= N; generation++)
        assert_int_equal(folder_make(path_of(generation, ""), &err), 0);
    rank_log_prune(folder, "a");
    for (int generation = 1; generation <= N; generation++)
        n += exists(generation);
    assert_int_equal(n, N - (256 - RANK_LOG_GENERATIONS_KEPT));
    rank_log_prune(folder, "a");
    for (int generation = 1; generation <= N; generation++)
        n -= exists(generation);
    assert_int_equal(n, N - 256);
    assert_int_equal(n_warnings, 0);
}

/* A line that fills the reader's buffer is handed out: a reader that waited for its end would wait for ever. */
static void a_line_as_long_as_the_buffer_is_handed_out(_unused_ void **state)
{
    static char text[LOG_TAIL_LINE_MAX + 1], buffer[LOG_TAIL_LINE_MAX];
    const LogTail tail = {
        .log_dir = folder, .job = "a", .generation = 1, .tail_bytes = 1 << 20, .follow = true};
    LogPlace place = {.rank = 3};
    LogTailPiece piece;
    begin(1, 1 << 20);
    memset(text, 'x', LOG_TAIL_LINE_MAX - 1);
    print(text);
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_true(piece.n == 0 && !piece.more); /* the line is held back, since it may go on */
    print("y");
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_int_equal(piece.n, LOG_TAIL_LINE_MAX);
    assert_int_equal(buffer[LOG_TAIL_LINE_MAX - 1], 'y');
    print("the rest\n");
    assert_int_equal(log_tail_read(&tail, &place, buffer, sizeof(buffer), &piece), 0);
    assert_int_equal(piece.n, 9);
    assert_memory_equal(buffer, "the rest\n", 9);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_last_line_is_the_last_that_is_not_empty),
        CASE(a_long_line_is_known_by_its_beginning),
        CASE(all_that_lies_in_the_pipe_is_drained),
        CASE(the_loop_reads_until_the_trainer_is_gone),
        CASE(lines_come_after_everything_else),
        CASE(descriptor_0_is_one_and_none_is_left),
        CASE(a_file_turns_over_at_half_of_its_bound),
        CASE(a_rank_that_starts_again_begins_anew),
        CASE(without_a_file_the_last_line_is_known),
        CASE(a_full_disk_costs_old_generations_first),
        CASE(an_edquot_is_a_full_disk),
        CASE(the_newest_generations_are_kept),
        CASE(a_great_many_generations_go_part_by_part),
        CASE(a_line_as_long_as_the_buffer_is_handed_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test-flight-record.c - whose record is waited for, and which records stay. */
#include "exec/resources/flight-record.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/test/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAY = 32, MORE = 7 };

static char folder[] = "/tmp/test-flight-XXXXXX";

static const char *at(const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    assert_int_equal(file_write(at(name), text, strlen(text), 0, NULL), 0);
}

/* The newest stay, whatever their names; a folder is left alone. */
static void old_records_are_removed(_unused_ void **state)
{
    Error err = ERROR_INIT;
    char name[40];
    assert_int_equal(flight_records_prepare(folder, &err), 0);
    for (int i = 0; i < STAY + MORE; i++) {
        const struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        (void)snprintf(name, sizeof(name), "flights/demo-g%d-rank0", (i * 5) % (STAY + MORE));
        put(name, "record");
        assert_int_equal(utimensat(AT_FDCWD, at(name), times, 0), 0);
    }
    assert_int_equal(mkdir(at("flights/folder"), 0700), 0);
    assert_int_equal(flight_records_prepare(folder, &err), 0);
    for (int i = 0; i < STAY + MORE; i++) {
        (void)snprintf(name, sizeof(name), "flights/demo-g%d-rank0", (i * 5) % (STAY + MORE));
        assert_int_equal(access(at(name), F_OK), i < MORE ? -1 : 0);
    }
    assert_int_equal(access(at("flights/folder"), F_OK), 0);
    put("file", "");
    assert_true(flight_records_prepare(at("file"), &err) < 0);
    assert_non_null(strstr(err.text, "file"));
}

static FlightRecord find(const char *pipe, const char *file)
{
    FlightRecord record;
    flight_record_find(&record, pipe, file, 5);
    return record;
}

static void pipe_and_record_are_those_of_the_rank(_unused_ void **state)
{
    FlightRecord record = find("/a/pipe-", "/b/record-");
    assert_string_equal(record.pipe, "/a/pipe-5.pipe");
    assert_string_equal(record.file, "/b/record-5");
    const FlightRecord none[] = {find("", "/b/"), find(NULL, "/b/"), find("/a/", NULL)};
    for (size_t i = 0; i < ELEMENTSOF(none); i++) {
        assert_string_equal(none[i].pipe, "");
        FlightRecord asked = none[i];
        assert_false(flight_record_request(&asked, 1));
        assert_int_equal(flight_record_watch(&asked, 2), 0);
    }
    _cleanup_free_ char *deep = memory_zeroed(PATH_MAX, 1);
    memset(deep, 'x', PATH_MAX - 3);
    record = find(deep, "/b/");
    assert_string_equal(record.pipe, "");
}

/* A file is not written to, nor a pipe that has no reader. */
static void only_a_pipe_with_a_reader_is_asked(_unused_ void **state)
{
    FlightRecord record = find(at("p-"), "/b/");
    _cleanup_free_ char *text = NULL;
    assert_false(flight_record_request(&record, 1));
    put("p-5.pipe", "a file");
    assert_false(flight_record_request(&record, 1));
    assert_int_equal(file_read(at("p-5.pipe"), 100, &text, NULL, NULL), 0);
    assert_string_equal(text, "a file");
    assert_int_equal(unlink(at("p-5.pipe")), 0);
    assert_int_equal(mkfifo(at("other"), 0600), 0);
    _cleanup_free_ char *target = memory_text(at("other"));
    const int reader = open(target, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(symlink(target, at("p-5.pipe")), 0);
    assert_false(flight_record_request(&record, 1)); /* a link may lead anywhere */
    assert_int_equal(unlink(at("p-5.pipe")), 0);
    assert_int_equal(rename(target, at("p-5.pipe")), 0);
    assert_true(flight_record_request(&record, 1));
    (void)close(reader);
    assert_false(flight_record_request(&record, 1));
}

/* A record is written when it has changed and then stood still; an older one of that name does not count. */
static void a_record_is_waited_for(_unused_ void **state)
{
    const uint64_t second = USEC_PER_SEC;
    _cleanup_free_ char *prefix = memory_text(at("record-"));
    FlightRecord record = find(at("q-"), prefix);
    put("record-5", "old");
    assert_int_equal(mkfifo(at("q-5.pipe"), 0600), 0);
    const int reader = open(at("q-5.pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(flight_record_request(&record, second));
    uint64_t now = second, next;
    for (int i = 0; i < 10; i++, now = next) {
        next = flight_record_watch(&record, now);
        assert_true(next > now && next < now + second / 5 && !record.is_written);
    }
    put("record-5", "n");
    now = flight_record_watch(&record, now);
    put("record-5", "newer");
    next = flight_record_watch(&record, now);
    assert_true(next > now && !record.is_written);
    assert_int_equal(flight_record_watch(&record, now + second / 5), 0);
    assert_true(record.is_written);
    /* and of one that never comes the wait ends */
    record = find(at("q-"), prefix);
    assert_true(flight_record_request(&record, second));
    assert_true(flight_record_watch(&record, 2 * second) > 0);
    assert_int_equal(flight_record_watch(&record, 3 * second), 0);
    assert_false(record.is_written);
    (void)close(reader);
}

static int set_up(_unused_ void **state) { return mkdtemp(folder) ? 0 : -1; }

static int tear_down(_unused_ void **state)
{
    (void)folder_remove(folder, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_records_are_removed),
        cmocka_unit_test(pipe_and_record_are_those_of_the_rank),
        cmocka_unit_test(only_a_pipe_with_a_reader_is_asked),
        cmocka_unit_test(a_record_is_waited_for),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

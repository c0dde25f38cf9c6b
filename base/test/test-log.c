/* SPDX-License-Identifier: Apache-2.0 */
/* test-log.c - tests which text becomes a field of the journal or a line on standard error, and that text from outside
 * cannot forge either. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/message-id.h"
#include "base/test/testing.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char entry[4096]; /* the last entry, one field per line */
static int sent, answer;

static int fake_send(const struct iovec *fields, int n)
{
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(entry + used, sizeof(entry) - used, "%.*s\n",
                                 (int)fields[i].iov_len, (const char *)fields[i].iov_base);
    sent++;
    return answer;
}

static bool has(const char *line)
{
    char whole[300];
    (void)snprintf(whole, sizeof(whole), "\n%s\n", line);
    return strstr(entry, whole) || strncmp(entry, whole + 1, strlen(whole + 1)) == 0;
}

/* Redirects standard error to an empty file. If as_journal, JOURNAL_STREAM names that file. Returns the old standard
 * error. */
static int catch_lines(const char *path, bool as_journal)
{
    int old = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct stat st;
    char stream[64];
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0 && fstat(fd, &st) == 0);
    (void)close(fd);
    (void)snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino + !as_journal);
    (void)setenv("JOURNAL_STREAM", stream, 1);
    log_open("tester");
    return old;
}

/* Returns the text written since catch_lines(), and restores the old standard error. */
static char *caught(const char *path, int old)
{
    char *text = NULL;
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    (void)close(old);
    assert_int_equal(file_read(path, 1 << 16, &text, NULL, NULL), 0);
    return text;
}

static char path[] = "/tmp/sdtrain-log-XXXXXX";

static void trailing_words_become_fields(_unused_ void **state)
{
    int old = catch_lines(path, true);
    log_event(LOG_LEVEL_WARNING, MESSAGE_RANK_HANGS,
              "hangs at %d in %s JOB=%s GENERATION=%d RANK=%d", 7, "reducing", "first", 3, 0);
    _cleanup_free_ char *text = caught(path, old);
    assert_string_equal(text, "");
    assert_true(has("MESSAGE=hangs at 7 in reducing JOB=first GENERATION=3 RANK=0"));
    assert_true(has("PRIORITY=4"));
    assert_true(has("SYSLOG_IDENTIFIER=tester"));
    assert_true(has("MESSAGE_ID=" MESSAGE_RANK_HANGS));
    assert_true(has("JOB=first"));
    assert_true(has("GENERATION=3"));
    assert_true(has("RANK=0"));
}

static void only_the_format_makes_fields(_unused_ void **state)
{
    int old = catch_lines(path, true);
    log_info("%s", "evil PRIORITY=0 JOB=other");
    assert_true(has("MESSAGE=evil PRIORITY=0 JOB=other"));
    assert_true(has("PRIORITY=6"));
    assert_false(has("JOB=other"));
    assert_null(strstr(entry, "MESSAGE_ID="));

    log_info("%s RANK=%d", "evil JOB=other", 2);
    assert_true(has("RANK=2"));
    assert_false(has("JOB=other"));

    log_info("shown JOB=%s RANK=%d", "two words",
             2); /* a blank ends a field, and "words" by itself is not a field */
    assert_true(has("RANK=2"));
    assert_null(strstr(entry, "\nJOB="));

    log_info("shown NODE=%s RANK=%d", "", 2);
    assert_null(strstr(entry, "\nNODE="));
    log_info("JOB=%s", "alone");
    assert_true(has("JOB=alone"));
    log_info("not one: =%d, and lower case job=%s", 2, "x");
    assert_null(strstr(entry, "\njob="));
    _cleanup_free_ char *text = caught(path, old);
    assert_string_equal(text, "");
}

/* Keys of a model's config and of samples may come from strangers. Their control characters must not reach a terminal,
 * and the keys must not look like another log line. */
static void controls_do_not_pass(_unused_ void **state)
{
    static const char evil[] = "\033[2Jkey\302\233\177\n2026-01-31 error\ttester: forged";
    static const char said[] = "?[2Jkey??? 2026-01-31 error\ttester: forged is ignored";
    char wanted[256];
    int old = catch_lines(path, true);
    log_warning("%s is ignored", evil);
    _cleanup_free_ char *text = caught(path, old);
    assert_string_equal(text, "");
    (void)snprintf(wanted, sizeof(wanted), "MESSAGE=%s", said);
    assert_true(has(wanted));

    old = catch_lines(path, false);
    log_warning("%s is ignored", evil);
    _cleanup_free_ char *line = caught(path, old);
    (void)snprintf(wanted, sizeof(wanted), "Z warning tester: %s\n", said);
    assert_non_null(strstr(line, wanted));
}

static void a_long_message_is_cut(_unused_ void **state)
{
    char big[4000];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    int old = catch_lines(path, true);
    log_info("%s JOB=%s", big, "first");
    assert_true(strlen(entry) > 1900 && strlen(entry) < 2200);
    assert_null(strstr(entry, "\nJOB="));
    _cleanup_free_ char *text = caught(path, old);
    assert_string_equal(text, "");
}

static void without_a_journal_there_are_lines(_unused_ void **state)
{
    int old = catch_lines(path, true);
    answer = -ENOENT;
    log_warning("no journal JOB=%s", "first");
    answer = 0;
    _cleanup_free_ char *text = caught(path, old);
    assert_string_equal(text, "<4>no journal JOB=first\n");

    int before = sent; /* JOURNAL_STREAM is inherited and names another stream */
    old = catch_lines(path, false);
    log_warning("to a file JOB=%s", "first");
    _cleanup_free_ char *line = caught(path, old);
    assert_int_equal(sent, before);
    assert_non_null(strstr(line, "Z warning tester: to a file JOB=first\n"));
}

/* This test must be the last: the fields that it sets stay until the process ends. */
static void fields_of_the_process_come_with_every_entry(_unused_ void **state)
{
    log_set_field("NODE", "n0");
    log_set_field("NODE", "n1");
    int old = catch_lines(path, true);
    log_info("hello");
    assert_true(has("MESSAGE=hello"));
    assert_true(has("NODE=n1"));
    log_info("about another NODE=%s", "n2");
    assert_true(has("NODE=n2"));
    assert_false(has("NODE=n1"));
    _cleanup_free_ char *none = caught(path, old);
    assert_string_equal(none, "");

    old = catch_lines(path, false);
    log_info("hello");
    log_info("about another NODE=%s", "n2");
    _cleanup_free_ char *text = caught(path, old);
    assert_non_null(strstr(text, "tester: hello NODE=n1\n"));
    assert_non_null(strstr(text, "tester: about another NODE=n2\n"));
}

static int make_file(_unused_ void **state)
{
    log_use_journal(fake_send);
    return fd_close(mkstemp(path)) == -EBADF ? 0 : -1;
}

static int remove_file(_unused_ void **state) { return unlink(path); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trailing_words_become_fields),
        cmocka_unit_test(only_the_format_makes_fields),
        cmocka_unit_test(controls_do_not_pass),
        cmocka_unit_test(a_long_message_is_cut),
        cmocka_unit_test(without_a_journal_there_are_lines),
        cmocka_unit_test(fields_of_the_process_come_with_every_entry),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}

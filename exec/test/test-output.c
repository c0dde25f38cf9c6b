/* SPDX-License-Identifier: Apache-2.0 */
/* test-output.c - a program's output on its way: all bytes pass, secrets are masked wherever they are cut, patterns
 * find numbers, and the last lines stay. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "exec/output.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

static Output o;
static int in[2], out[2];
static char found[4096];

static void on_found(_unused_ void *userdata, OutputNumber kind, const char *number)
{
    (void)snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s=%s ",
                   kind == OUTPUT_LOSS ? "loss" : "step", number);
}

static void begin(const SecretSet *secrets, const char *step, const char *loss)
{
    const OutputPatterns patterns = {.step = step, .loss = loss, .found = on_found};
    assert_true(pipe2(in, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    *found = '\0';
    output_open(&o, in[0], out[1], secrets, &patterns);
}

static void end(void)
{
    output_close(&o);
    in[1] = fd_close(in[1]);
    out[0] = fd_close(out[0]);
    out[1] = fd_close(out[1]);
}

static void print(const char *text)
{
    assert_int_equal(write(in[1], text, strlen(text)), (ssize_t)strlen(text));
    assert_true(output_move(&o));
}

/* Closes the program's end, and returns everything that arrived. */
static const char *finish(void)
{
    static char all[1 << 18];
    size_t n = 0;
    bool more = true;
    in[1] = fd_close(in[1]);
    while (more) {
        more = output_move(&o);
        ssize_t got;
        while ((got = read(out[0], all + n, sizeof(all) - 1 - n)) > 0)
            n += (size_t)got;
    }
    all[n] = '\0';
    return all;
}

static void all_bytes_pass(_unused_ void **state)
{
    static char big[100000];
    memset(big, 'b', sizeof(big) - 1);
    begin(NULL, NULL, NULL);
    print("one\ntwo");
    assert_int_equal(fcntl(in[1], F_SETPIPE_SZ, 1 << 20) >= 1 << 17, 1);
    assert_int_equal(write(in[1], big, sizeof(big) - 1), (ssize_t)sizeof(big) - 1);
    const char *all = finish();
    assert_int_equal(strlen(all), 7 + sizeof(big) - 1);
    assert_int_equal(strncmp(all, "one\ntwobbb", 10), 0);
    assert_int_equal(o.n_read, 7 + sizeof(big) - 1);
    assert_int_equal(strlen(output_end(&o)), OUTPUT_TAIL_MAX);
    end();
}

/* A log that is written slowly holds the program up instead of growing memory. */
static void a_full_log_holds_the_program_up(_unused_ void **state)
{
    static char piece[4096];
    struct pollfd fd;
    memset(piece, 'p', sizeof(piece));
    begin(NULL, NULL, NULL);
    ssize_t n = 0;
    for (int i = 0; i < 1000; i++) {
        const ssize_t w = write(in[1], piece, sizeof(piece));
        n += MAX(w, 0);
        assert_true(output_move(&o));
    }
    assert_true(n < 1 << 20);
    assert_int_equal(output_poll(&o, &fd), 1);
    assert_true(fd.fd == out[1] && fd.events == POLLOUT);
    assert_int_equal((ssize_t)strlen(finish()), n);
    end();
}

static void what_cannot_be_written_is_dropped(_unused_ void **state)
{
    begin(NULL, NULL, NULL);
    out[0] = fd_close(out[0]);
    print("lost\n");
    print("lost, too\n");
    in[1] = fd_close(in[1]);
    while (output_move(&o))
        ;
    assert_string_equal(output_end(&o), "lost\nlost, too\n");
    end();
}

static void secrets_are_masked_wherever_they_are_cut(_unused_ void **state)
{
    SecretSet secrets = {0};
    const char *text = "a token=hunter2secret b\nhunter2secret\n";
    secret_set_add(&secrets, "hunter2secret");
    for (size_t cut = 1; cut < strlen(text); cut++) {
        char first[64];
        (void)snprintf(first, sizeof(first), "%.*s", (int)cut, text);
        begin(&secrets, NULL, NULL);
        print(first);
        print(text + cut);
        assert_string_equal(finish(), "a token=*** b\n***\n");
        assert_null(strstr(output_end(&o), "hunter"));
        end();
    }
    begin(&secrets, NULL, NULL);
    print("without an end: hunter2secret");
    assert_string_equal(finish(), "without an end: ***");
    end();
    secret_set_clear(&secrets);
}

static void a_line_that_never_ends_passes(_unused_ void **state)
{
    static char piece[OUTPUT_PIECE_MAX / 2];
    SecretSet secrets = {0};
    secret_set_add(&secrets, "hunter2secret");
    memset(piece, 'x', sizeof(piece));
    begin(&secrets, NULL, NULL);
    (void)fcntl(in[1], F_SETPIPE_SZ, 1 << 20);
    (void)fcntl(out[1], F_SETPIPE_SZ, 1 << 20);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(write(in[1], piece, sizeof(piece)), (ssize_t)sizeof(piece));
        assert_true(output_move(&o));
    }
    assert_int_equal(strlen(finish()), 6 * sizeof(piece));
    end();
    secret_set_clear(&secrets);
}

static void patterns_find_numbers(_unused_ void **state)
{
    static char big[OUTPUT_LINE_MAX + 100];
    begin(NULL, "step ([0-9]+)", "loss ([0-9.e-]+)");
    print("loading\nstep 1 loss 0.5\nst");
    print("ep 2");
    print(" loss 0.25\nloss only 3\nstep x\nstep 3");
    memset(big, 'y', sizeof(big) - 1);
    (void)finish();
    (void)output_end(&o);
    assert_string_equal(found, "loss=0.5 step=1 loss=0.25 step=2 step=3 ");
    end();

    begin(NULL, "step ([0-9]+)", NULL);
    memcpy(big + sizeof(big) - 10, " step 9\n", 9); /* beyond what is read of a line */
    print(big);
    print("step 10\n");
    (void)finish();
    assert_string_equal(found, "step=10 ");
    end();
}

static void the_tail_is_printable(_unused_ void **state)
{
    begin(NULL, NULL, NULL);
    assert_int_equal(write(in[1], "a\033[1m\0b\xff\nlast\n", 14), 14);
    (void)finish();
    assert_string_equal(output_end(&o), "a?[1m?b?\nlast\n");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_bytes_pass),
        cmocka_unit_test(a_full_log_holds_the_program_up),
        cmocka_unit_test(what_cannot_be_written_is_dropped),
        cmocka_unit_test(secrets_are_masked_wherever_they_are_cut),
        cmocka_unit_test(a_line_that_never_ends_passes),
        cmocka_unit_test(patterns_find_numbers),
        cmocka_unit_test(the_tail_is_printable),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

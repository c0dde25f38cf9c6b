/* SPDX-License-Identifier: Apache-2.0 */
/* test-top.c - `sdctl top`: texts cut to a terminal's cells, the contents of a frame, and the use of a real
 * terminal. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "ctl/test/testing-ctl.h"
#include "ctl/top/cells.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* ---- cells ---- */

static const char *put(const char *text, int cells)
{
    static char line[64];
    size_t at = 0;
    line[0] = '\0';
    (void)cells_put(line, sizeof(line), &at, text, cells);
    assert_int_equal(at, strlen(line));
    return line;
}

static void texts_are_cut_between_letters(_unused_ void **state)
{
    assert_string_equal(put("abc", 3), "abc");
    assert_string_equal(put("abcd", 3), "ab…");
    assert_string_equal(put("äöü", 3), "äöü");
    assert_string_equal(put("äöüß", 3), "äö…");
    assert_string_equal(put("日本語", 6), "日本語"); /* two cells per letter */
    assert_string_equal(put("日本語", 5), "日本…");
    assert_string_equal(put("日本語", 4), "日…");
    assert_string_equal(put("日本語", 1), "…");
    assert_string_equal(put("abc", 0), "");
    assert_string_equal(put("e\xcc\x81"
                            "e",
                            2),
                        "e\xcc\x81"
                        "e"); /* a combining mark takes no cell */
    assert_int_equal(cells_width("日a"), 3);
}

static void harmful_bytes_become_question_marks(_unused_ void **state)
{
    assert_string_equal(put("a\033[31mb", 20), "a?[31mb");
    assert_string_equal(put("a\tb\nc\x7f", 20), "a?b?c?");
    assert_string_equal(put("a\xc2\x9b"
                            "31m",
                            20),
                        "a?31m"); /* a C1 control character */
    assert_string_equal(put("a\xe2\x80\xae"
                            "b",
                            20),
                        "a?b"); /* U+202E, which changes the writing direction */
    assert_string_equal(put("a\xff\xc3", 20), "a??"); /* not UTF-8, and a letter cut short */
    assert_string_equal(put("\xe2\x80", 20), "??");
    assert_string_equal(put("\xc0\xaf\xed\xa0\x80", 20), "???"); /* an overlong form; a surrogate */
    assert_string_equal(put("\xf4\x90\x80\x80", 20), "????");    /* beyond Unicode */
}

static void columns_and_breaks(_unused_ void **state)
{
    char line[64] = "";
    size_t at = 0;
    cells_put_column(line, sizeof(line), &at, "ab", 4);
    cells_put_column(line, sizeof(line), &at, "7", -3);
    cells_put_column(line, sizeof(line), &at, "12345", -3);
    assert_string_equal(line, "ab    712…");
    const char *text = "one two three";
    assert_string_equal(cells_break(text, 8), " three");
    assert_string_equal(cells_break(text, 20), "");
    assert_string_equal(cells_break("onetwothree", 3), "twothree");
    assert_string_equal(cells_break("日本", 1), "本"); /* at least one letter is taken */
    char small[4] = "";
    at = 0;
    /* cells_put() never writes beyond the buffer. */
    assert_int_equal(cells_put(small, sizeof(small), &at, "abcdef", 6), 3);
    assert_string_equal(small, "abc");
}

/* ---- one frame ---- */

static const char long_name[] = "a-job-whose-name-is-as-long-as-a-job-s-name-may-be-and-then-some";

static void check_width(const char *text, int columns)
{
    char line[2000];
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1) {
        (void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        if (cells_width(line) > columns || strpbrk(line, "\033\r\t"))
            fail_msg("not in %d cells: %s", columns, line);
    }
}

static void put_cluster(CtlLab *lab)
{
    char name[RECORD_JOB_MAX + 1];
    (void)snprintf(name, sizeof(name), "%.63s", long_name);
    LeaderRecord leader = {.name = "controller1"};
    CTL_PUT(lab, KEY_LEADER, "1", leader_record, leader);
    NodeRecord node = {.name = "n1", .machine_id = "1", .incarnation = 1, .n_slots = 2};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    (void)snprintf(node.name, sizeof(node.name), "n2");
    node.verdict = NODE_SUSPECT;
    (void)snprintf(node.evidence, sizeof(node.evidence),
                   "its fan \033[2J is \xf0\x9f\x94\xa5, %0200d", 7);
    CTL_PUT(lab, KEY_NODES, "n2", node_record, node);
    CordonRecord cordon = {.node = "n1",
                           .n_causes = 1,
                           .causes = {{.mode = CORDON_CORDON, .reason = "its disk"}}};
    CTL_PUT(lab, KEY_CORDONS, "n1", cordon_record, cordon);
    HealthRecord health = {.node = "n9",
                           .verdict = NODE_HEALTHY,
                           .at_usec = UINT64_C(1700000000000000)};
    CTL_PUT(lab, KEY_HEALTH, "n9", health_record, health);
    ctl_put_running_job(lab, name);
    ctl_put_running_job(lab, "b");
    PhaseRecord phase = {.phase = PHASE_RECOVERING,
                         .generation = 2,
                         .since_usec = 1,
                         .cost = {.rate = 1, .since_usec = 1, .spent = INT64_C(123456000000)}};
    (void)snprintf(phase.reason, sizeof(phase.reason), "node-lost of rank 1 on n9: %0200d", 1);
    CTL_PUT(lab, KEY_PHASES, name, phase_record, phase);
    IncidentRecord incident = {.id = "b-1",
                               .job = "b",
                               .cause = "hang",
                               .node = "n2",
                               .rank = 1,
                               .evidence = "no step for 60 s",
                               .at_usec = UINT64_C(1700000020000000)};
    CTL_PUT(lab, KEY_INCIDENTS, "b-1", incident_record, incident);
}

static void a_frame_has_what_an_operator_asks_for(void **state)
{
    CtlLab *lab = *state;
    put_cluster(lab);
    assert_int_equal(setenv("COLUMNS", "80", 1), 0);
    assert_int_equal(ctl_run(lab, "top"), 0); /* not on a terminal: prints one frame */
    check_width(lab->out, 80);
    assert_contains(
        lab->out,
        "  cluster lab\nleader  controller1\netcd    1 of 1 member answers, with a leader");
    assert_contains(lab->out,
                    "nodes   2 up, 1 lost, 1 cordoned, 1 unwell   slots   2 used, 1 free of 4\n");
    assert_contains(
        lab->out,
        "JOB         PHASE      RANKS          STEP SAMPL/S    LOSS    ETA  SAVED    COST\n");
    assert_contains(
        lab->out,
        "\na-job-whos… recovering     2        12/100       -  0.5000      -      -   $123k\n"
        "  node-lost of rank 1 on n9: 00000");
    assert_contains(
        lab->out,
        "\nb           running        2        12/100    32.0  0.5000    44s      -       -\n");
    assert_contains(lab->out,
                    "! incident b-1 is open: hang on n2: no step for 60 s\n"
                    "    the job recovers by itself; sdctl job events b tells the story\n");
    assert_contains(lab->out, "! node n2 is not healthy: its fan ?[2J is");
    assert_contains(lab->out, "! node n9 is lost: nobody has heard of it since ");
    assert_contains(lab->out, "\nnode n1 is cordoned: its disk\n");

    assert_int_equal(setenv("COLUMNS", "120", 1), 0);
    assert_int_equal(ctl_run(lab, "top --once"), 0);
    check_width(lab->out, 120);
    assert_contains(lab->out, "\na-job-whose-name-is-as-long-as-a-job-s-name-may-be… recovering ");
    assert_int_equal(setenv("COLUMNS", "40", 1), 0);
    assert_int_equal(ctl_run(lab, "top --once"), 0);
    check_width(lab->out, 40);
    assert_int_equal(unsetenv("COLUMNS"), 0);
    assert_int_equal(ctl_run(lab, "top --once --cluster none"), 0);
    assert_contains(lab->out, "no jobs; sdctl job start submits one");
    assert_contains(lab->out, "! no controller leads: nothing is decided; training goes on");
    assert_int_equal(ctl_run(lab, "top b"), 2);
    assert_contains(lab->err, "\"b\" is one word too many");
}

/* ---- a terminal ---- */

typedef struct Terminal {
    pid_t pid;
    int fd;
    char seen[1 << 16]; /* output since the last terminal_forget() */
    size_t n;
} Terminal;

static void terminal_begin(Terminal *t, unsigned short rows)
{
    const struct winsize size = {.ws_row = rows, .ws_col = 80};
    char path[512];
    const char *bin = getenv("SDTRAIN_BIN");
    (void)snprintf(path, sizeof(path), "%s/sdctl", bin ? bin : "build/dev/bin");
    *t = (Terminal){0};
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        (void)setenv("TERM", "xterm", 1);
        (void)execl(path, "sdctl", "top", NULL);
        _exit(127);
    }
}

static void terminal_forget(Terminal *t)
{
    t->n = 0;
    t->seen[0] = '\0';
}

/* Waits until the text was written, or with text NULL until the program has closed the terminal. */
static void terminal_wait(Terminal *t, const char *text)
{
    const uint64_t end = clock_boottime_usec() + 60 * USEC_PER_SEC;
    while (!text || !strstr(t->seen, text)) {
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        if (clock_boottime_usec() > end)
            fail_msg("the terminal did not show \"%s\" but:\n%s", text ? text : "its end", t->seen);
        if (poll(&p, 1, 1000) <= 0)
            continue;
        if (t->n > sizeof(t->seen) / 2)
            terminal_forget(t);
        ssize_t n = read(t->fd, t->seen + t->n, sizeof(t->seen) - 1 - t->n);
        if (n <= 0) {
            assert_null(text);
            return;
        }
        t->n += (size_t)n;
        t->seen[t->n] = '\0';
    }
}

static int terminal_end(Terminal *t)
{
    int status;
    terminal_wait(t, NULL);
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    struct termios after;
    assert_int_equal(tcgetattr(t->fd, &after), 0);
    assert_int_equal(after.c_lflag & (ECHO | ICANON), ECHO | ICANON);
    assert_int_equal(close(t->fd), 0);
    const char *left = strstr(t->seen, "\033[?1049l");
    assert_non_null(left); /* the previous screen is restored */
    assert_null(strstr(left, "\033[H"));
    assert_non_null(strstr(t->seen, "\033[?25h"));
    return status;
}

static void a_terminal_is_filled_and_given_back(void **state)
{
    CtlLab *lab = *state;
    static Terminal t;
    struct termios within;
    put_cluster(lab);
    terminal_begin(&t, 60);
    terminal_wait(&t, "node n1 is cordoned: its disk");
    assert_non_null(strstr(t.seen, "\033[?1049h"));
    assert_int_equal(tcgetattr(t.fd, &within), 0);
    assert_int_equal(within.c_lflag & (ECHO | ICANON), 0);
    ctl_put_phase(lab, "b", PHASE_RUNNING, "2 ranks, 4 wanted: needs a slot");
    terminal_wait(&t,
                  "2 ranks, 4 wanted: needs a slot"); /* the new phase arrived through the watch */

    const struct winsize small = {.ws_row = 12, .ws_col = 60};
    terminal_forget(&t);
    assert_int_equal(ioctl(t.fd, TIOCSWINSZ, &small), 0);
    terminal_wait(&t, "more lines: sdctl cluster status");
    terminal_forget(&t);
    terminal_wait(&t, "\033[H");
    terminal_wait(&t, "\033[J");
    int rows = 1;
    for (const char *at = strstr(t.seen, "\033[H"); (at = strstr(at, "\r\n")); at += 2)
        rows++;
    assert_in_range(rows, 6, 12);

    testing_etcd_kill(lab->server, 0);
    terminal_forget(&t);
    terminal_wait(&t, "etcd    does not answer: all below is of ");
    assert_null(strstr(t.seen, "sdctl:")); /* no error is printed over the screen */
    testing_etcd_restart(lab->server, 0);
    testing_etcd_wait_healthy(lab->server, 0);
    terminal_forget(&t);
    terminal_wait(&t, " of 1 member answers");

    terminal_forget(&t);
    assert_int_equal(write(t.fd, "xq", 2), 2);
    int status = terminal_end(&t);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void signals_give_it_back_too(_unused_ void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    static Terminal t;
    for (size_t i = 0; i < ELEMENTSOF(signals); i++) {
        terminal_begin(&t, 24);
        terminal_wait(&t, "cluster lab");
        terminal_forget(&t);
        assert_int_equal(kill(t.pid, signals[i]), 0);
        int status = terminal_end(&t);
        assert_true(signals[i] == SIGINT ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                                         : WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_between_letters),
        cmocka_unit_test(harmful_bytes_become_question_marks),
        cmocka_unit_test(columns_and_breaks),
        cmocka_unit_test(a_frame_has_what_an_operator_asks_for),
        cmocka_unit_test(a_terminal_is_filled_and_given_back),
        cmocka_unit_test(signals_give_it_back_too),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}

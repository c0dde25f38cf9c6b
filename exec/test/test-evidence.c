/* SPDX-License-Identifier: Apache-2.0 */
/* test-evidence.c - what the end of a program means, by its code, its error file and its last lines. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "exec/evidence.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static char folder[] = "/tmp/test-evidence-XXXXXX";
static char error_file[64];

static JobExec exec = {.codes = {{3, EXIT_NEVER_RETRY}, {4, EXIT_PEER_LOST}}, .n_codes = 2};

static ExecVerdict judge(int code, int status, const char *tail, const char *error)
{
    ExecVerdict v;
    (void)unlink(error_file);
    if (error)
        assert_int_equal(file_write(error_file, error, strlen(error), 0, NULL), 0);
    exec_judge(&exec, (ExecEnd){code, status}, tail, error_file, &v);
    return v;
}

static void check(ExecVerdict v, int code, const char *text)
{
    assert_string_equal(v.text, text);
    assert_int_equal(v.code, code);
}

static void codes_mean_what_they_mean_of_trainers(_unused_ void **state)
{
    check(judge(CLD_EXITED, 0, "last\n", NULL), EXIT_DONE, "finished");
    check(judge(CLD_EXITED, 78, "a\nno such model\n\n", NULL), EXIT_NEVER_RETRY, "no such model");
    check(judge(CLD_EXITED, 3, "bad flag\n", NULL), EXIT_NEVER_RETRY, "bad flag");
    check(judge(CLD_EXITED, 1, "KeyError: 'x'\n", NULL), EXIT_RETRY, "KeyError: 'x'");
    check(judge(CLD_EXITED, 1, "", NULL), EXIT_RETRY, "exited 1 without a word");
    /* a code with a meaning counts before lines that mean something else */
    check(judge(CLD_EXITED, 75, "Connection reset by peer\n", NULL), EXIT_RETRY,
          "Connection reset by peer");
    check(judge(CLD_EXITED, 4, "CUDA out of memory\n", NULL), EXIT_PEER_LOST, "CUDA out of memory");
}

static void lines_explain(_unused_ void **state)
{
    static const struct {
        const char *line;
        int code;
    } cases[] = {
        {"RuntimeError: CUDA error: uncorrectable ECC error encountered", EXIT_DEVICE_FAULT},
        {"RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
         EXIT_DEVICE_FAULT},
        {"Unable to determine the device handle for GPU0: GPU is lost.  Reboot the system",
         EXIT_DEVICE_FAULT},
        {"RuntimeError: [pair.cc:545] Read error [127.0.0.1]:1: Connection reset by peer. This may indicate",
         EXIT_PEER_LOST},
        {"RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:1", EXIT_PEER_LOST},
        {"RuntimeError: Broken pipe", EXIT_PEER_LOST},
        {"DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
         EXIT_PEER_LOST},
        {"ncclRemoteError: A call failed possibly due to a network error", EXIT_PEER_LOST},
        {"[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9",
         EXIT_PEER_LOST},
        {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", EXIT_RETRY},
        {"The server socket has failed to bind: errno: 98 - Address already in use", EXIT_RETRY},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char tail[300];
        (void)snprintf(tail, sizeof(tail), "step 3\n%s\n  in train.py\n", cases[i].line);
        check(judge(CLD_EXITED, 1, tail, NULL), cases[i].code, cases[i].line);
        check(judge(CLD_KILLED, SIGABRT, tail, NULL), cases[i].code, cases[i].line);
    }
    /* the last such line is the program's own summary */
    check(judge(CLD_EXITED, 1, "a: Broken pipe\nRuntimeError: b: Broken pipe\n", NULL),
          EXIT_PEER_LOST, "RuntimeError: b: Broken pipe");
    /* a device's fault explains a lost peer, not the other way round */
    check(judge(CLD_EXITED, 1, "Broken pipe\nGPU is lost\n", NULL), EXIT_DEVICE_FAULT,
          "GPU is lost");
}

static void a_signal_is_its_own_evidence(_unused_ void **state)
{
    check(judge(CLD_KILLED, SIGKILL, "", NULL), -SIGKILL, "killed by SIGKILL");
    check(judge(CLD_DUMPED, SIGSEGV, "Broken pipe\n", NULL), -SIGSEGV,
          "killed by SIGSEGV, core dumped; its last words: Broken pipe");
    check(judge(CLD_KILLED, SIGABRT, "assert failed\n", NULL), -SIGABRT,
          "killed by SIGABRT; its last words: assert failed");
}

static void the_error_file_tells_more_than_the_last_line(_unused_ void **state)
{
    static const char *const torch =
        "{\"message\": {\"message\": \"ValueError: no shard\", \"extraInfo\": {}}}";
    check(judge(CLD_EXITED, 1, "bye\n", torch), EXIT_RETRY, "ValueError: no shard");
    check(judge(CLD_EXITED, 1, "bye\n", "{\"message\": \"plain\"}"), EXIT_RETRY, "plain");
    check(judge(CLD_EXITED, 1, "bye\n", "{\"message\": \"x: Broken pipe\"}"), EXIT_PEER_LOST,
          "x: Broken pipe");
    check(judge(CLD_EXITED, 1, "Broken pipe\n", torch), EXIT_PEER_LOST, "ValueError: no shard");
    static const char *const bad[] = {
        "", "{", "[]", "{}", "{\"message\": 3}", "{\"message\": {}}", "{\"message\": \"\"}"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        check(judge(CLD_EXITED, 1, "bye\n", bad[i]), EXIT_RETRY, "bye");
    check(judge(CLD_KILLED, SIGKILL, "bye\n", torch), -SIGKILL,
          "killed by SIGKILL; its last words: ValueError: no shard");
}

static void long_lines_are_cut(_unused_ void **state)
{
    static char tail[3000];
    memset(tail, 'x', sizeof(tail) - 1);
    ExecVerdict v = judge(CLD_EXITED, 1, tail, NULL);
    assert_int_equal(strlen(v.text), EXEC_TEXT_MAX - 1);
    v = judge(CLD_KILLED, SIGKILL, tail, NULL);
    assert_int_equal(strlen(v.text), EXEC_TEXT_MAX - 1);
    assert_int_equal(strncmp(v.text, "killed by SIGKILL; its last words: xxx", 38), 0);
}

static void the_innermost_frame_is_found(_unused_ void **state)
{
    static const struct {
        const char *tail, *frame; /* NULL: there is none */
    } cases[] = {
        {"Current thread 0x00007f (most recent call first):\n  File \"/a/train.py\", line 33 in step\n"
         "  File \"/a/train.py\", line 99 in <module>\n",
         "step (train.py:33)"},
        /* the thread that got the signal counts, and the last print */
        {"Thread 0x1 (most recent call first):\n  File \"loader.py\", line 1 in fetch\n\n"
         "Current thread 0x2 (most recent call first):\n  File \"a.py\", line 2 in f\n",
         "f (a.py:2)"},
        {"Current thread 0x2 (most recent call first):\n  File \"a.py\", line 2 in f\n"
         "Current thread 0x2 (most recent call first):\n  File \"a.py\", line 5 in g\n",
         "g (a.py:5)"},
        {"Thread 0x1 (most recent call first):\n  File \"b.py\", line 7 in <lambda>\n",
         "<lambda> (b.py:7)"},
        {"Current thread 0x2 (most recent call first):\n  <no Python frame>\n", NULL},
        {"Current thread 0x2 (most recent call first):\n", NULL},
        {"Current thread 0x2", NULL},
        {"Current thread 0x2 (most recent call first):\n  File \"a.py\", line x in f\n", NULL},
        {"Current thread 0x2 (most recent call first):\n  File \"a.py", NULL},
        {"step 3\n", NULL},
        {"", NULL},
    };
    char frame[EXEC_FRAME_MAX], tail[600], name[200];
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_int_equal(exec_find_frame(cases[i].tail, frame), cases[i].frame != NULL);
        if (cases[i].frame)
            assert_string_equal(frame, cases[i].frame);
    }
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)snprintf(tail, sizeof(tail),
                   "Thread 0x1 (most recent call first):\n  File \"%s\", line 7 in %s\n", name,
                   name);
    assert_true(exec_find_frame(tail, frame));
    assert_int_equal(strlen(frame), 63 + strlen(" (") + 40 + strlen(":7)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_mean_what_they_mean_of_trainers),
        cmocka_unit_test(lines_explain),
        cmocka_unit_test(a_signal_is_its_own_evidence),
        cmocka_unit_test(the_error_file_tells_more_than_the_last_line),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(the_innermost_frame_is_found),
    };
    if (!mkdtemp(folder))
        return 1;
    (void)snprintf(error_file, sizeof(error_file), "%s/error.json", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    return failed;
}

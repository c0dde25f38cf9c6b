/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.c - see evidence.h. */
#include "exec/evidence.h"

#include "base/cleanup.h"
#include "base/text/printable.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { ERROR_FILE_MAX = 64 * 1024 };

/* A line with `fragment` explains an end as `means`. The first row that fits counts: a fault of a device explains a
 * lost peer, and a lost peer a lack of memory. */
static const struct {
    const char *fragment;
    ExitCode means;
} rows[] = {
    /* the card: texts of cudaGetErrorString() and of NVML */
    {"uncorrectable ECC error encountered", EXIT_DEVICE_FAULT},
    {"uncorrectable NVLink error detected", EXIT_DEVICE_FAULT},
    {"GPU is lost", EXIT_DEVICE_FAULT},
    /* a peer: gloo/transport/tcp/pair.cc */
    {"Connection reset by peer", EXIT_PEER_LOST},
    {"Connection closed by peer", EXIT_PEER_LOST},
    {"Broken pipe", EXIT_PEER_LOST},
    /* a peer: torch/csrc/distributed/c10d, TCPStore and ProcessGroupNCCL */
    {"Connection was likely closed", EXIT_PEER_LOST},
    {"ncclRemoteError", EXIT_PEER_LOST},
    {"Watchdog caught collective operation timeout", EXIT_PEER_LOST},
    /* transient: c10/cuda/CUDACachingAllocator.cpp, and bind() */
    {"CUDA out of memory", EXIT_RETRY},
    {"CUDA error: out of memory", EXIT_RETRY},
    {"EADDRINUSE", EXIT_RETRY},
    {"Address already in use", EXIT_RETRY},
};

/* Copies the line of `text` in which `at` lies. */
static void copy_line(const char *text, const char *at, char ret[EXEC_TEXT_MAX])
{
    while (at > text && at[-1] != '\n')
        at--;
    (void)snprintf(ret, EXEC_TEXT_MAX, "%.*s", (int)MIN(strcspn(at, "\n"), EXEC_TEXT_MAX - 1), at);
    printable_repair(ret);
}

/* Returns the last place of the fragment, or NULL: what a program prints last is its own summary. */
static const char *find_last(const char *text, const char *fragment)
{
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, fragment)); at++)
        last = at;
    return last;
}

/* Finds the first row that fits any line. */
static bool find_row(const char *text, ExecVerdict *ret)
{
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        const char *at = find_last(text, rows[i].fragment);
        if (!at)
            continue;
        ret->code = (int)rows[i].means;
        copy_line(text, at, ret->text);
        return true;
    }
    return false;
}

/* Copies the last line that is not empty; "": there is none. */
static void copy_last(const char *text, char ret[EXEC_TEXT_MAX])
{
    size_t n = strlen(text);
    while (n > 0 && strchr(" \n", text[n - 1]))
        n--;
    *ret = '\0';
    if (n > 0)
        copy_line(text, text + n - 1, ret);
}

/* Reads the message of torch's error file: {"message": {"message": "..."}} or {"message": "..."}. */
static bool read_message(const char *path, char ret[EXEC_TEXT_MAX])
{
    _cleanup_json_ json_t *json = NULL;
    Error ignored = ERROR_INIT; /* a program that was killed may leave half a file */
    if (json_read_file(path, ERROR_FILE_MAX, &json, &ignored) < 0)
        return false;
    json_t *message = json_object_get(json, "message");
    if (json_is_object(message))
        message = json_object_get(message, "message");
    if (!json_is_string(message))
        return false;
    copy_last(json_string_value(message), ret);
    printable_make(ret);
    return *ret != '\0';
}

bool exec_find_frame(const char *tail, char ret[EXEC_FRAME_MAX])
{
    static const char header[] = "(most recent call first):\n", file[] = "  File \"";
    const char *at = find_last(tail, "Current thread 0x");
    at = at ? strstr(at, header) : find_last(tail, header);
    at = at ? at + strlen(header) : NULL;
    if (!at || strncmp(at, file, strlen(file)) != 0)
        return false;
    at += strlen(file);
    const char *end = at + strcspn(at, "\"\n"), *name = memrchr(at, '/', (size_t)(end - at));
    char function[64];
    int line;
    if (sscanf(end, "\", line %d in %63[^\n]", &line, function) != 2)
        return false;
    name = name ? name + 1 : at;
    (void)snprintf(ret, EXEC_FRAME_MAX, "%s (%.*s:%d)", function, (int)MIN(end - name, 40), name,
                   line);
    printable_repair(ret);
    return true;
}

static void name_signal(ExecEnd end, char ret[EXEC_TEXT_MAX])
{
    const char *name = sigabbrev_np(end.status); /* NULL: a real-time signal */
    (void)snprintf(ret, EXEC_TEXT_MAX, "killed by SIG%s%s", name ? name : "RT",
                   end.code == CLD_DUMPED ? ", core dumped" : "");
}

void exec_judge(const JobExec *exec, ExecEnd end, const char *tail, const char *error_file,
                ExecVerdict *ret)
{
    char message[EXEC_TEXT_MAX];
    const bool exited = end.code == CLD_EXITED;
    *ret = (ExecVerdict){.code = exited ? end.status : -end.status};
    if (ret->code == EXIT_DONE) {
        (void)snprintf(ret->text, sizeof(ret->text), "finished");
        return;
    }
    const bool has_message = read_message(error_file, message);
    /* A code that has a meaning tells more than a line. So does a signal, but for SIGABRT, by which libraries end a
     * process after they have named the reason. */
    ExitCode meaning = EXIT_RETRY;
    const bool has_meaning =
        exited ? job_exec_find_code(exec, end.status, &meaning) : end.status != SIGABRT;
    if (!has_meaning && (find_row(tail, ret) || (has_message && find_row(message, ret)))) {
        if (has_message)
            (void)snprintf(ret->text, sizeof(ret->text), "%s", message);
        return;
    }
    if (exited)
        ret->code = has_meaning ? (int)meaning : EXIT_RETRY;
    if (has_message)
        (void)snprintf(ret->text, sizeof(ret->text), "%s", message);
    else
        copy_last(tail, ret->text);
    if (!exited || !*ret->text) {
        char last[EXEC_TEXT_MAX];
        (void)snprintf(last, sizeof(last), "%s", ret->text);
        if (exited)
            (void)snprintf(ret->text, sizeof(ret->text), "exited %d without a word", end.status);
        else
            name_signal(end, ret->text);
        if (*last)
            (void)snprintf(ret->text + strlen(ret->text), sizeof(ret->text) - strlen(ret->text),
                           "; its last words: %s", last);
    }
}

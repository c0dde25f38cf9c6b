/* SPDX-License-Identifier: Apache-2.0 */
/* testing-faults.c - starts the proxy and sends it commands: one line per command, one line per answer. */
#include "store/s3/test/testing-faults.h"

#include "base/macro.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_SIZE = 1 << 16, ARGUMENTS_MAX = 16 };

struct Faults {
    pid_t pid;
    FILE *control;
    char endpoint[128], behind[128];
    char sent[LINE_SIZE], answer[LINE_SIZE];
};

static _noreturn_ void die(const char *what, const char *text)
{
    fprintf(stderr, "testing-faults: %s: %s\n", what, text);
    abort();
}

/* Copies the text after "name": " in a line of JSON. */
static void text_of(const char *line, const char *name, char *ret, size_t size)
{
    char pattern[32];
    (void)snprintf(pattern, sizeof pattern, "\"%s\": \"", name); /* all names are short enough */
    const char *at = strstr(line, pattern);
    size_t n = at ? strcspn(at + strlen(pattern), "\"") : size;
    if (n >= size)
        die("the proxy did not start", line);
    memcpy(ret, at + strlen(pattern), n);
    ret[n] = '\0';
}

static FILE *connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        die("too long", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die(path, strerror(errno));
    FILE *file = fdopen(fd, "r+");
    if (!file)
        die(path, strerror(errno));
    return file;
}

Faults *faults_start(const char *const *more)
{
    const char *source = getenv("SDTRAIN_SOURCE"), *behind = getenv("AWS_ENDPOINT_URL");
    if (!behind)
        die("AWS_ENDPOINT_URL is not set", "run the test with tests/s3/with-gateway");
    char script[4096];
    (void)snprintf(script, sizeof script, "%s/tests/s3/fault_proxy.py", source ? source : ".");
    Faults *faults = calloc(1, sizeof *faults);
    int out[2];
    if (!faults || pipe2(out, O_CLOEXEC) < 0)
        die("pipe", strerror(errno));
    (void)snprintf(faults->behind, sizeof faults->behind, "%s", behind);

    const char *arguments[ARGUMENTS_MAX + 1] = {"python3", "-B", script, "--to", behind};
    size_t n = 5;
    for (; more && *more; more++) {
        if (n == ARGUMENTS_MAX)
            die("too many arguments", *more);
        arguments[n++] = *more;
    }

    faults->pid = fork();
    if (faults->pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        execvp(arguments[0], (char *const *)arguments);
        die(arguments[0], strerror(errno));
    }
    close(out[1]);
    FILE *says = fdopen(out[0], "r");
    if (faults->pid < 0 || !says || !fgets(faults->answer, sizeof faults->answer, says))
        die("the proxy did not start", script);
    (void)fclose(says); /* the stream was only read */
    char control[128];
    text_of(faults->answer, "endpoint", faults->endpoint, sizeof faults->endpoint);
    text_of(faults->answer, "control", control, sizeof control);
    faults->control = connect_to(control);
    if (setenv("AWS_ENDPOINT_URL", faults->endpoint, true) < 0)
        die("setenv", strerror(errno));
    return faults;
}

Faults *faults_stop(Faults *faults)
{
    if (!faults)
        return NULL;
    (void)fclose(faults->control); /* nothing is buffered, so nothing is lost */
    kill(faults->pid, SIGTERM);
    if (waitpid(faults->pid, NULL, 0) < 0 || setenv("AWS_ENDPOINT_URL", faults->behind, true) < 0)
        die("faults_stop", strerror(errno));
    free(faults);
    return NULL;
}

const char *faults_endpoint(const Faults *faults) { return faults->endpoint; }

static _printf_(2, 0) const char *tell(Faults *faults, const char *format, va_list list)
{
    int n = vsnprintf(faults->sent, sizeof faults->sent - 1, format, list);
    if (n < 0 || (size_t)n >= sizeof faults->sent - 1)
        die("too long", format);
    for (char *c = faults->sent; *c; c++)
        if (*c == '\'')
            *c = '"';
    if (fprintf(faults->control, "%s\n", faults->sent) < 0 || fflush(faults->control) != 0)
        die(faults->sent, "the proxy has gone");
    if (!fgets(faults->answer, sizeof faults->answer, faults->control))
        die(faults->sent, "the proxy has gone, or says too much");
    if (strncmp(faults->answer, "{\"error\"", 8) == 0)
        die(faults->sent, faults->answer);
    return faults->answer;
}

const char *faults_do(Faults *faults, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const char *answer = tell(faults, format, list);
    va_end(list);
    return answer;
}

long faults_number(const char *answer, const char *name)
{
    char pattern[32];
    (void)snprintf(pattern, sizeof pattern, "\"%s\": ", name); /* a name that is cut is not found */
    const char *at = strstr(answer, pattern);
    if (!at)
        die(name, answer);
    at += strlen(pattern);
    return strtol(at + (*at == '['), NULL, 10);
}

long faults_add(Faults *faults, const char *format, ...)
{
    char wrapped[4096];
    int n = snprintf(wrapped, sizeof wrapped, "{'do': 'add', 'rules': [%s]}", format);
    if (n < 0 || (size_t)n >= sizeof wrapped)
        die("too long", format);
    va_list list;
    va_start(list, format);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the caller's own format was checked */
    long id = faults_number(tell(faults, wrapped, list), "ids");
#pragma GCC diagnostic pop
    va_end(list);
    return id;
}

void faults_wait(Faults *faults, long rule, int n)
{
    faults_do(faults, "{'do': 'wait', 'rule': %ld, 'n': %d}", rule, n);
}

long faults_count(Faults *faults, const char *match)
{
    return faults_number(faults_do(faults, "{'do': 'count', 'match': %s}", match), "n");
}

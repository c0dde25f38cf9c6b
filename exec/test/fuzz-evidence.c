/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-evidence.c - the last output of a program, and torch's error file, of any bytes. The first byte is the exit code
 * or, from 128 on, a signal; the error file follows behind the output's NUL. */
#include "exec/evidence.h"

#include "base/macro.h"
#include "base/memory.h"
#include "base/text/printable.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A text of a verdict goes to logs and records. */
static void check(const char *text)
{
    for (; *text; text++)
        assert(*text == '\t' || ((unsigned char)*text >= 0x20 && *text != 0x7f));
}

/* As output_end() does. */
static void make_printable(char *tail)
{
    for (char *at = tail; *at;) {
        const size_t n = strcspn(at, "\n");
        printable_repair_bytes(at, n);
        printable_make_bytes(at, n);
        at += n + (at[n] == '\n');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const JobExec exec;
    ExecVerdict verdict;
    char path[64], frame[EXEC_FRAME_MAX];
    if (n == 0)
        return 0;
    const ExecEnd end = data[0] < 128 ? (ExecEnd){CLD_EXITED, data[0]}
                                      : (ExecEnd){CLD_KILLED, 1 + (data[0] - 128) % 64};
    char *tail = memory_bytes(data + 1, n - 1);
    const size_t n_tail = strlen(tail), rest = n - 1 > n_tail ? n - 2 - n_tail : 0;
    const int fd = memfd_create("error-file", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, tail + n_tail + 1, rest) == (ssize_t)rest);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    make_printable(tail);
    exec_judge(&exec, end, tail, path, &verdict);
    assert((verdict.code == 0) == (end.code == CLD_EXITED && end.status == 0));
    assert(*verdict.text);
    check(verdict.text);
    if (exec_find_frame(tail, frame))
        assert(*frame);
    (void)close(fd);
    free(tail);
    return 0;
}

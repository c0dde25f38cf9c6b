/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-journal.c - any bytes as a journal: `sdctl simulate` reads files that people exchange. */
#include "base/cleanup.h"
#include "controller/journal/replay.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static int on_report(const ReplayReport *report, void *userdata)
{
    size_t *n = userdata;
    *n += report->event ? strlen(report->event) : 0;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    size_t seen = 0;
    Error err = ERROR_INIT;
    _cleanup_fd_ int fd = memfd_create("journal", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    (void)journal_replay(path, on_report, &seen, &err);
    return 0;
}

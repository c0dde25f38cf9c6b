/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - see machine.h. */
#include "daemon/machine.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysinfo.h>

int machine_read_boot_id(char ret[MACHINE_BOOT_ID_BYTES], Error *err)
{
    const char *path = "/proc/sys/kernel/random/boot_id";
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[MACHINE_BOOT_ID_BYTES] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return error_errno(err, -errno, "cannot read %s", path);
    text[strcspn(text, "\n")] = '\0';
    memcpy(ret, text, sizeof(text));
    return 0;
}

uint64_t machine_memory_bytes(void)
{
    struct sysinfo info;
    return sysinfo(&info) < 0 ? 0 : ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - see machine.h. */
#include "daemon/machine.h"

#include "base/file.h"

#include <sys/sysinfo.h>

int machine_read_boot_id(char ret[MACHINE_BOOT_ID_BYTES], Error *err)
{
    const char *path = "/proc/sys/kernel/random/boot_id";
    int r = file_read_line(path, ret, MACHINE_BOOT_ID_BYTES);
    return r < 0 ? error_errno(err, r, "cannot read %s", path) : 0;
}

uint64_t machine_memory_bytes(void)
{
    struct sysinfo info;
    return sysinfo(&info) < 0 ? 0 : ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

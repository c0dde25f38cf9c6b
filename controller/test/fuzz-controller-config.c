/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-controller-config.c - sdcontroller.json of any bytes: it is refused with a text, or its settings are within
 * their bounds. */
#include "controller/config/config.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1; /* config_load() needs a path; one file serves all inputs */
    char path[64];
    if (fd < 0)
        fd = memfd_create("config", MFD_CLOEXEC);
    assert(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

    Error err = ERROR_INIT;
    ControllerConfig config;
    SettingsCall call = {.file = path};
    if (config_load(&call, &config, &err) < 0) {
        assert(err.text[0]);
        return 0;
    }
    assert(config.lease_sec >= 1 && config.max_nodes >= 1 && config.max_jobs >= 1);
    assert(config.etcd.endpoints[0] && config.cluster[0] && config.name[0]);
    return 0;
}

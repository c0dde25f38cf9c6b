/* SPDX-License-Identifier: Apache-2.0 */
/* test-loop-libsystemd.c - libsystemd gives the same results for the scripts that test-loop.c runs
 * on the model. */
#include "base/cleanup.h"
#include "tests/sim/seams/test/loop-scripts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>

#include <cmocka.h>

static void run(sd_event *event) { assert_true(sd_event_run(event, UINT64_MAX) >= 0); }

static bool idle(sd_event *event)
{
    return sd_event_get_state(event) == SD_EVENT_FINISHED || sd_event_run(event, 0) == 0;
}

static int descriptor(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

static void set_ready(sd_event *event _unused_, int fd, bool ready)
{
    uint64_t n = 1;
    assert_int_equal(ready ? write(fd, &n, sizeof(n)) : read(fd, &n, sizeof(n)), sizeof(n));
}

static void descriptor_close(int fd) { (void)fd_close(fd); }

static void scripts(void **state _unused_)
{
    loop_scripts_run(&(LoopKind){.run = run,
                                 .idle = idle,
                                 .descriptor = descriptor,
                                 .set_ready = set_ready,
                                 .close = descriptor_close});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scripts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

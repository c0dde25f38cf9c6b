/* SPDX-License-Identifier: Apache-2.0 */
/* test-status.c - the controller's line for systemctl status, as the service manager receives it. */
#include "base/cleanup.h"
#include "base/test/testing.h"
#include "controller/status.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static int manager = -EBADF;

static int open_manager(_unused_ void **state)
{
    /* The address is abstract: there is no file to remove. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sdtrain-status-%d",
                     (int)getpid());
    char name[64];
    (void)snprintf(name, sizeof(name), "@%s", address.sun_path + 1);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
                     0);
    return setenv("NOTIFY_SOCKET", name, 1);
}

static int close_manager(_unused_ void **state)
{
    manager = fd_close(manager);
    return 0;
}

/* Returns the next message; "" if there is none. */
static const char *heard(void)
{
    static char text[STATUS_BYTES * 2];
    ssize_t n = recv(manager, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static void a_change_is_said_once(_unused_ void **state)
{
    const ClusterLimits limits = {
        .nodes = 4, .jobs = 2, .reports = 8, .incidents = 200, .requests = 4};
    _cleanup_free_ void *memory = calloc(1, cluster_bytes(&limits));
    assert_non_null(memory);
    Cluster *cluster = cluster_init(memory, &limits, &cluster_config_default);
    ControllerStatus status = {0};

    status_write(&status, cluster, "prod", 0, false, true);
    assert_string_equal(heard(), "STATUS=following in cluster prod");
    status_write(&status, cluster, "prod", 0, false, true);
    assert_string_equal(heard(), "");
    status_write(&status, cluster, "prod", 12, false, true);
    assert_string_equal(heard(),
                        "STATUS=leading cluster prod, term 12: 0 of 0 nodes up, 0 jobs, 0 running");

    static Actions actions;
    NodeRecord node = {.name = "n1", .n_slots = 1, .incarnation = 1, .state = NODE_UP};
    Event event = {.kind = EVENT_NODE, .name = "n1", .revision = 1, .node_record = &node};
    cluster_step(cluster, &event, &actions);
    status_write(&status, cluster, "prod", 12, false, true);
    assert_string_equal(heard(),
                        "STATUS=leading cluster prod, term 12: 1 of 1 nodes up, 0 jobs, 0 running");
    status_write(&status, cluster, "prod", 0, false, false);
    assert_string_equal(heard(), "STATUS=following in cluster prod, without a lease: etcd does not "
                                 "answer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_change_is_said_once)};
    return cmocka_run_group_tests(tests, open_manager, close_manager);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test-watch.c - libetcd's watch, in situations that cannot be brought about with a real etcd. */
#include "base/test/testing.h"
#include "etcd/etcd.h"
#include "tests/sim/fleet/members.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <string.h>

enum { READER, WRITER };

static Server *server;
static sd_event *loops[2];
static Etcd *clients[2];
static EtcdWatch *watch;

static int set_up(_unused_ void **state)
{
    const EtcdOptions options = {.timeout_usec = 10 * USEC_PER_SEC};
    loops_open(USEC_PER_SEC);
    server = members_open(&(MembersOptions){.n_members = 1, .n_machines = 2, .seed = 1});
    for (size_t i = 0; i < 2; i++) {
        EtcdOptions its = options;
        its.endpoints = members_endpoints();
        assert_int_equal(sd_event_new(&loops[i]), 0);
        loop_set_machine(loops[i], i);
        assert_int_equal(etcd_new(loops[i], &its, &clients[i], NULL), 0);
    }
    return 0;
}

static int tear_down(_unused_ void **state)
{
    watch = etcd_watch_free(watch);
    for (size_t i = 0; i < 2; i++) {
        clients[i] = etcd_free(clients[i]);
        loops[i] = sd_event_unref(loops[i]);
    }
    members_close();
    loops_close();
    return 0;
}

static void on_written(int r, _unused_ const Error *err, const EtcdTxnResult *result,
                       void *userdata)
{
    assert_int_equal(r, 0);
    *(int64_t *)userdata = result->revision;
}

static void on_events(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                      _unused_ bool initial, void *userdata)
{
    int *n_keys = userdata;
    for (size_t i = 0; i < n; i++)
        *n_keys += events[i].kind == ETCD_EVENT_PUT ? 1 : -1;
}

/* Changes a key. Returns the revision. */
static int64_t change(EtcdOpKind kind, const char *key)
{
    const EtcdOp op = {.kind = kind, .key = key, .value = "v"};
    int64_t revision = 0;
    const uint64_t until = loops_now_usec() + USEC_PER_SEC;
    assert_int_equal(etcd_txn(clients[WRITER], NULL, 0, &op, 1, on_written, &revision, NULL), 0);
    while (revision == 0)
        assert_true(loops_run(until));
    return revision;
}

static void run_for_msec(uint64_t msec)
{
    const uint64_t until = loops_now_usec() + msec * USEC_PER_MSEC;
    while (loops_run(until))
        ;
}

/* etcd accepts a watch that starts at the revision that it has compacted, but never reports the
 * keys that were deleted in that revision. The client notices such a deletion itself. */
static void a_delete_between_list_and_watch_survives_a_compaction(_unused_ void **state)
{
    const char *text;
    int n_keys = 0;
    (void)change(ETCD_PUT, "/p/a");
    (void)change(ETCD_PUT, "/p/b");
    network_clog(READER, 0, USEC_PER_SEC); /* each message of the reader takes a second */
    assert_int_equal(etcd_watch_prefix(clients[READER], "/p/", on_events, &n_keys, &watch), 0);
    while (n_keys < 2) /* until the list has arrived and the watch request is sent */
        assert_true(loops_run(UINT64_MAX));
    const int64_t revision = change(ETCD_DELETE, "/p/a");
    assert_int_equal(server_compact(server, revision, &text), SERVER_OK);
    network_server_changed();
    run_for_msec(10000);
    assert_int_equal(n_keys, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_delete_between_list_and_watch_survives_a_compaction,
                                        set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

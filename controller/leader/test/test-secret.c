/* SPDX-License-Identifier: Apache-2.0 */
/* test-secret.c - the secret of a world: written with the world or not at all, a new secret for each world, and never
 * an obstacle to a decision. Uses a real member of etcd. */
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "controller/leader/execute.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>
#include <sys/random.h>

#define LEADER_KEY "/sdtrain/lab/leader/1"

static void on_done(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    if (r < 0)
        print_message("%s\n", err->text);
    *(int *)userdata = r < 0 ? r : result->succeeded;
}

typedef struct Lab {
    TestingEtcd *server;
    sd_event *event;
    Etcd *etcd, *root;
    Feed *feed;
    int64_t term, generation;
} Lab;

/* Opens a client of etcd. If limited, its user has the rights that a controller had before there were secrets. */
static void open_lab(Lab *lab, bool limited)
{
    Error err = ERROR_INIT;
    *lab = (Lab){.server = testing_etcd_start(1, TESTING_ETCD_AUTH)};
    EtcdOptions root = testing_etcd_options(lab->server), user = root;
    if (limited) {
        testing_etcd_ctl(lab->server, "role", "add", "old", NULL);
        testing_etcd_ctl(lab->server, "role", "grant-permission", "--prefix", "old", "readwrite",
                         "/sdtrain/lab/", NULL);
        testing_etcd_ctl(lab->server, "user", "add", "old:word", NULL);
        testing_etcd_ctl(lab->server, "user", "grant-role", "old", "old", NULL);
        user.user = "old";
        user.password = "word";
    }
    assert_true(sd_event_new(&lab->event) >= 0);
    assert_int_equal(etcd_new(lab->event, &root, &lab->root, &err), 0);
    assert_int_equal(etcd_new(lab->event, &user, &lab->etcd, &err), 0);
    lab->feed = feed_new("lab");
    const EtcdOp lead = {.kind = ETCD_PUT, .key = LEADER_KEY, .value = "me"};
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_txn_wait(lab->root, NULL, 0, &lead, 1, &answer, &err), 0);
    lab->term = answer->revision;
}

static void close_lab(Lab *lab)
{
    (void)feed_free(lab->feed);
    (void)etcd_free(lab->etcd);
    (void)etcd_free(lab->root);
    lab->event = sd_event_unref(lab->event);
    (void)testing_etcd_stop(lab->server);
}

static void see_node(Lab *lab, const char *name, const char *features)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    Event event;
    NodeRecord node = {.incarnation = 7, .n_slots = 1};
    _cleanup_free_ char *value = NULL;
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.machine_id, sizeof(node.machine_id), "m");
    (void)snprintf(node.features, sizeof(node.features), "%s", features ? features : "");
    value = node_record_encode(&node, NULL);
    assert_int_equal(feed_event(lab->feed, key_of("lab", KEY_NODES, name, key),
                                features ? value : NULL, features ? strlen(value) : 0, 5, 5, &event,
                                &err),
                     1);
}

static bool draw(void *ret, size_t n) { return getrandom(ret, n, 0) == (ssize_t)n; }

/* Places the next world, on n1 and n2; size 0 removes the job. */
static int decide(Lab *lab, bool may_secrets, int size)
{
    static WorldRun runs[] = {{.node = "n1", .incarnation = 7, .slots = 1},
                              {.node = "n2", .incarnation = 7, .slots = 1}};
    Error err = ERROR_INIT;
    int done = 2;
    const Rights rights = {.may = {[KEY_SECRETS] = may_secrets, [KEY_ALERTS] = true}};
    Target target = {.etcd = lab->etcd,
                     .feed = lab->feed,
                     .cluster = "lab",
                     .leader_key = LEADER_KEY,
                     .rights = &rights,
                     .draw = draw};
    Decision d = {.id = 1,
                  .term = lab->term,
                  .job = "a",
                  .world_revision = REVISION_ANY,
                  .phase_revision = REVISION_ANY,
                  .checkpoints_revision = REVISION_ANY,
                  .desired_revision = REVISION_ANY,
                  .put_world = size > 0,
                  .remove_job = size == 0,
                  .world = {.generation = ++lab->generation,
                            .size = size,
                            .runs = runs,
                            .n_runs = (size_t)size}};
    assert_int_equal(execute(&target, &d, on_done, &done, NULL, &err), 0);
    TESTING_RUN_UNTIL(lab->event, done != 2);
    return done;
}

/* Reads the secret of the present world; "" if the world has none, even if an earlier world's secret still exists. */
static void read_secret(Lab *lab, char ret[SECRET_TEXT_BYTES])
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *world = NULL, *secret = NULL;
    *ret = '\0';
    assert_int_equal(etcd_get_wait(lab->root, key_of("lab", KEY_WORLDS, "a", key), false, &world,
                                   &err),
                     0);
    assert_int_equal(etcd_get_wait(lab->root, key_of("lab", KEY_SECRETS, "a", key), false, &secret,
                                   &err),
                     0);
    if (world->n_kvs == 0 || secret->n_kvs == 0 ||
        secret->kvs[0].mod_revision != world->kvs[0].mod_revision)
        return;
    SecretRecord record;
    assert_int_equal(secret_record_decode(key, secret->kvs[0].value, secret->kvs[0].n_value,
                                          &record, &err),
                     0);
    assert_int_equal(record.generation, lab->generation);
    memcpy(ret, record.secret, SECRET_TEXT_BYTES);
    assert_null(strstr(world->kvs[0].value, record.secret));
    secret_record_clear(&record);
}

static void a_secret_comes_with_each_world(void **state)
{
    (void)state;
    Lab lab;
    char first[SECRET_TEXT_BYTES], second[SECRET_TEXT_BYTES];
    open_lab(&lab, false);
    see_node(&lab, "n1", "secrets");
    see_node(&lab, "n2", "later secrets");
    assert_int_equal(decide(&lab, true, 2), 1);
    read_secret(&lab, first);
    assert_int_equal(strlen(first), 64);
    assert_int_equal(decide(&lab, true, 2), 1);
    read_secret(&lab, second);
    assert_int_equal(strlen(second), 64);
    assert_string_not_equal(first, second);

    /* One rank needs no secret; a node that does not know secrets, or does not exist, could not join. */
    assert_int_equal(decide(&lab, true, 1), 1);
    read_secret(&lab, first);
    assert_string_equal(first, "");
    see_node(&lab, "n2", "");
    assert_int_equal(decide(&lab, true, 2), 1);
    read_secret(&lab, first);
    assert_string_equal(first, "");
    see_node(&lab, "n2", "secrets");
    assert_int_equal(decide(&lab, true, 2), 1);
    read_secret(&lab, first);
    assert_int_equal(strlen(first), 64);
    see_node(&lab, "n2", NULL);
    assert_int_equal(decide(&lab, true, 2), 1);
    read_secret(&lab, first);
    assert_string_equal(first, "");

    /* The secret is removed with the job. */
    see_node(&lab, "n2", "secrets");
    assert_int_equal(decide(&lab, true, 2), 1);
    assert_int_equal(decide(&lab, true, 0), 1);
    char *left = testing_etcd_ask(lab.server, 0, "get", "--prefix", "/sdtrain-secrets/", NULL);
    assert_string_equal(left, "");
    free(left);
    close_lab(&lab);
}

/* etcd denies a whole transaction because of one operation. So a leader without the right to write secrets
 * places worlds without a secret. */
static void a_leader_without_the_right_still_decides(void **state)
{
    (void)state;
    Lab lab;
    char secret[SECRET_TEXT_BYTES];
    open_lab(&lab, true);
    see_node(&lab, "n1", "secrets");
    see_node(&lab, "n2", "secrets");
    assert_int_equal(decide(&lab, true, 2), -EACCES);
    int may = 2;
    assert_int_equal(etcd_request_rights(lab.etcd, "/sdtrain-secrets/lab/.rights", on_done, &may,
                                         NULL),
                     0);
    TESTING_RUN_UNTIL(lab.event, may != 2);
    assert_int_equal(may, -EACCES);
    assert_int_equal(decide(&lab, false, 2), 1);
    read_secret(&lab, secret);
    assert_string_equal(secret, "");
    assert_int_equal(decide(&lab, false, 0), 1);
    close_lab(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_comes_with_each_world),
        cmocka_unit_test(a_leader_without_the_right_still_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test-execute.c - what the transaction of a decision compares, writes and removes, key by key. The test replaces
 * etcd_txn() (--wrap) and keeps each transaction as lines of text. */
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "controller/leader/execute.h"

#include <stdarg.h>
#include <string.h>

#define CLUSTER "/sdtrain/lab/"
#define LEADER_KEY CLUSTER "leader/4d"
#define SECRET "/sdtrain-secrets/lab/a"

int __wrap_etcd_txn(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
                    size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret);

/* The transaction, one operation per line: "if KEY modified 5", "if KEY created 5", "put KEY", "delete KEY", "delete
 * all KEY". */
static char sent[16384];
static char *values[64], *keys[64];
static size_t n_values;
static bool noise;

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    size_t n = strlen(sent);
    va_list arguments;
    va_start(arguments, format);
    assert_true(vsnprintf(sent + n, sizeof(sent) - n, format, arguments) < (int)(sizeof(sent) - n));
    va_end(arguments);
}

int __wrap_etcd_txn(_unused_ Etcd *etcd, const EtcdCompare *compares, size_t n_compares,
                    const EtcdOp *ops, size_t n_ops, _unused_ EtcdTxnHandler handler,
                    _unused_ void *userdata, _unused_ EtcdCall **ret)
{
    static const char *const words[] = {
        [ETCD_PUT] = "put", [ETCD_DELETE] = "delete", [ETCD_DELETE_PREFIX] = "delete all"};
    for (size_t i = 0; i < n_compares; i++)
        add("if %s %s %lld\n", compares[i].key,
            compares[i].target == ETCD_MOD_REVISION ? "modified" : "created",
            (long long)compares[i].equals);
    for (size_t i = 0; i < n_ops; i++) {
        add("%s %s\n", words[ops[i].kind], ops[i].key);
        if (ops[i].kind != ETCD_PUT)
            continue;
        assert_true(n_values < ELEMENTSOF(values));
        for (size_t k = 0; k < n_values; k++) /* etcd refuses a transaction that puts a key twice */
            assert_string_not_equal(keys[k], ops[i].key);
        /* etcd also refuses a transaction that puts and deletes the same key. */
        char removed[KEY_MAX + 16];
        (void)snprintf(removed, sizeof(removed), "\ndelete %s\n", ops[i].key);
        assert_null(strstr(sent, removed));
        keys[n_values] = strdup(ops[i].key);
        values[n_values++] = strdup(ops[i].value);
    }
    return 0;
}

static void forget_sent(void)
{
    sent[0] = '\0';
    while (n_values > 0) {
        free(keys[--n_values]);
        free(values[n_values]);
    }
}

/* Returns the value that was put under the key. */
static const char *value_of(const char *key)
{
    for (size_t i = 0; i < n_values; i++)
        if (strcmp(keys[i], key) == 0)
            return values[i];
    fail_msg("%s was not put:\n%s", key, sent);
    return NULL;
}

static void assert_sent(const char *line)
{
    char whole[KEY_MAX + 64];
    (void)snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (!strstr(sent, whole))
        fail_msg("no \"%s\" in:\n%s", line, sent);
}

static void assert_not_sent(const char *words)
{
    if (strstr(sent, words))
        fail_msg("\"%s\" in:\n%s", words, sent);
}

static bool draw(void *ret, size_t n)
{
    memset(ret, 0xab, n);
    return noise;
}

static const Rights all_rights = {
    .may = {[KEY_SECRETS] = true, [KEY_ALERTS] = true, [KEY_EVALS] = true}};
static const Rights no_rights;

/* Returns a decision about job a that compares only the term. */
static Decision plain(void)
{
    return (Decision){.id = 1,
                      .term = 7,
                      .job = "a",
                      .world_revision = REVISION_ANY,
                      .phase_revision = REVISION_ANY,
                      .checkpoints_revision = REVISION_ANY,
                      .desired_revision = REVISION_ANY};
}

static int send(const Feed *feed, const Rights *rights, const Decision *d)
{
    Error err = ERROR_INIT;
    const Target target = {
        .feed = feed, .cluster = "lab", .leader_key = LEADER_KEY, .rights = rights, .draw = draw};
    forget_sent();
    add("\n");
    return execute(&target, d, NULL, NULL, NULL, &err);
}

static void read_text(Feed *feed, const char *key, const char *text)
{
    Error err = ERROR_INIT;
    Event event;
    assert_int_equal(feed_event(feed, key, text, text ? strlen(text) : 0, 5, 5, &event, &err), 1);
}

static Feed *feed_of_nodes(const char *n1, const char *n2)
{
    Feed *feed = feed_new("lab");
    const char *features[] = {n1, n2};
    for (int i = 0; i < 2; i++) {
        char key[KEY_MAX];
        NodeRecord node = {.incarnation = 7, .n_slots = 1, .machine_id = "m"};
        (void)snprintf(node.name, sizeof(node.name), "n%d", i + 1);
        (void)snprintf(node.features, sizeof(node.features), "%s", features[i]);
        _cleanup_free_ char *text = node_record_encode(&node, NULL);
        read_text(feed, key_of("lab", KEY_NODES, node.name, key), text);
    }
    return feed;
}

/* ---- guards ---- */

static void the_term_and_what_was_decided_upon_are_compared(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.world_revision = 11;
    d.phase_revision = 12;
    d.checkpoints_revision = 13;
    d.desired_revision = 0; /* the record must not exist */
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n"
                              "if " CLUSTER "worlds/a modified 11\n"
                              "if " CLUSTER "phases/a modified 12\n"
                              "if " CLUSTER "checkpoints/a modified 13\n"
                              "if " CLUSTER "desired/a modified 0\n");
    d = plain();
    (void)snprintf(d.followed, sizeof(d.followed), "b");
    d.followed_revision = 14;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n"
                              "if " CLUSTER "checkpoints/b modified 14\n");
    d = plain();
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n");
    (void)feed_free(feed);
}

static void each_record_that_is_written_is_compared(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.put_incident = d.put_request = true;
    d.incident = (IncidentRecord){.id = "a-3", .rank = -1};
    d.incident_revision = 21;
    d.request = (RequestRecord){.id = "r1", .kind = "recover"};
    d.request_revision = 22;
    d.n_cordons = 2;
    d.cordons[0] = (CordonRecord){.node = "n1", .n_causes = 1, .causes = {{.mode = CORDON_DRAIN}}};
    d.cordons[1] = (CordonRecord){.node = "n2"};
    d.cordon_revisions[0] = 23;
    d.cordon_revisions[1] = 24;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_sent("if " CLUSTER "incidents/a-3 modified 21");
    assert_sent("put " CLUSTER "incidents/a-3");
    assert_sent("if " CLUSTER "requests/r1 modified 22");
    assert_sent("put " CLUSTER "requests/r1");
    assert_sent("if " CLUSTER "cordons/n1 modified 23");
    assert_sent("put " CLUSTER "cordons/n1");
    assert_sent("if " CLUSTER "cordons/n2 modified 24");
    assert_sent("delete " CLUSTER "cordons/n2"); /* no cause is left */
    d = plain();
    d.remove_request = true;
    d.request = (RequestRecord){.id = "r1"};
    d.request_revision = 22;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_sent("if " CLUSTER "requests/r1 modified 22");
    assert_sent("delete " CLUSTER "requests/r1");
    assert_not_sent("put ");
    (void)feed_free(feed);
}

/* ---- what is written ---- */

/* Fields of a later version are kept, whether they are in the present text or in the last readable one. */
static void fields_of_others_are_kept(_unused_ void **state)
{
    static const struct {
        KeyKind kind;
        const char *name;
        bool is_put_back;
    } all[] = {{KEY_INCIDENTS, "a-3", false}, {KEY_REQUESTS, "r1", false},
               {KEY_CORDONS, "n1", false},    {KEY_PHASES, "a", true},
               {KEY_DESIRED, "a", true},      {KEY_CHECKPOINTS, "a", true}};
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.put_incident = d.put_request = d.put_phase = d.put_desired = d.put_checkpoints = true;
    d.incident = (IncidentRecord){.id = "a-3", .rank = -1};
    d.request = (RequestRecord){.id = "r1", .kind = "recover"};
    d.desired = (DesiredRecord){.min = 1, .max = 2};
    d.n_cordons = 1;
    d.cordons[0] = (CordonRecord){.node = "n1", .n_causes = 1, .causes = {{.mode = CORDON_DRAIN}}};
    assert_int_equal(send(feed, &all_rights, &d), 0);
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        char key[KEY_MAX], text[4096];
        (void)key_of("lab", all[i].kind, all[i].name, key);
        (void)snprintf(text, sizeof(text), "{\"later\":\"word\",%s", value_of(key) + 1);
        read_text(feed, key, text);
        /* All records that the leader puts back are lost, except the phase. */
        if (all[i].is_put_back && all[i].kind != KEY_PHASES)
            read_text(feed, key, NULL);
    }
    assert_int_equal(send(feed, &all_rights, &d), 0);
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        char key[KEY_MAX];
        if (!strstr(value_of(key_of("lab", all[i].kind, all[i].name, key)), "\"later\""))
            fail_msg("%s has lost a field: %s", key, value_of(key));
    }
    (void)feed_free(feed);
}

static void a_lost_job_file_is_put_back_byte_by_byte(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.put_spec = true;
    d.spec_revision = 31;
    assert_int_equal(send(feed, &all_rights, &d), -ENOENT); /* the text is not remembered */
    assert_string_equal(sent, "\n");
    const SpecRecord spec = {.spec = (char[]){"{}"},
                             .submission = "0123456789abcdef0123456789abcdef"};
    _cleanup_free_ char *encoded = spec_record_encode(&spec, NULL);
    char text[1024];
    (void)snprintf(text, sizeof(text), "{ \"later\":  1, %s", encoded + 1);
    read_text(feed, CLUSTER "specs/a", text);
    read_text(feed, CLUSTER "phases/a", "{}"); /* one record of the job is left */
    read_text(feed, CLUSTER "specs/a", NULL);
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(value_of(CLUSTER "specs/a"), text);
    assert_sent("if " CLUSTER "specs/a modified 31");
    (void)feed_free(feed);
}

static RecordHealth health_of(Feed *feed, const char *key, const char *text)
{
    Error err = ERROR_INIT;
    Event event;
    assert_int_equal(feed_event(feed, key, text, strlen(text), 5, 6, &event, &err), 1);
    assert_null(event.record);
    return event.health;
}

/* An unreadable record exists, and its last content is still known. */
static void what_cannot_be_read_is_not_gone(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    _cleanup_free_ char *text = desired_record_encode(&(DesiredRecord){.min = 1, .max = 2}, NULL);
    read_text(feed, CLUSTER "desired/a", text);
    assert_int_equal(health_of(feed, CLUSTER "desired/a", "{"), RECORD_DAMAGED);
    assert_string_equal(feed_last(feed, CLUSTER "desired/a"), text);
    assert_string_equal(feed_text(feed, CLUSTER "desired/a"), "{");
    assert_int_equal(health_of(feed, CLUSTER "desired/a", "{\"v\":99}"), RECORD_FOREIGN);
    assert_string_equal(feed_last(feed, CLUSTER "desired/a"), text);
    feed_mark(feed);
    assert_string_equal(feed_next_unseen(feed), CLUSTER "desired/a");
    assert_null(feed_next_unseen(feed));
    (void)feed_free(feed);
}

static void the_end_of_job_a_forgets_nothing_of_ab(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    _cleanup_free_ char *text = desired_record_encode(&(DesiredRecord){.min = 1, .max = 2}, NULL);
    read_text(feed, CLUSTER "desired/ab", text);
    read_text(feed, CLUSTER "desired/a", text);
    read_text(feed, CLUSTER "desired/a", NULL);
    assert_null(feed_last(feed, CLUSTER "desired/a"));
    assert_string_equal(feed_last(feed, CLUSTER "desired/ab"), text);
    (void)feed_free(feed);
}

/* ---- a world's secret ---- */

static int send_world(const Feed *feed, const Rights *rights, int size)
{
    static WorldRun runs[] = {{.node = "n1", .incarnation = 7, .slots = 1},
                              {.node = "n2", .incarnation = 7, .slots = 1}};
    Decision d = plain();
    d.put_world = true;
    d.world = (WorldRecord){.generation = 6, .size = size, .runs = runs, .n_runs = (size_t)size};
    return send(feed, rights, &d);
}

static void a_world_has_its_own_secret_or_none(_unused_ void **state)
{
    Feed *both = feed_of_nodes("secrets", "secrets"), *first = feed_of_nodes("secrets", "");
    Feed *second = feed_of_nodes("", "secrets");
    noise = true;
    assert_int_equal(send_world(both, &all_rights, 2), 0);
    Error err = ERROR_INIT;
    SecretRecord secret;
    const char *text = value_of(SECRET);
    assert_int_equal(secret_record_decode("it", text, strlen(text), &secret, &err), 0);
    assert_int_equal(secret.generation, 6);
    assert_int_equal(strspn(secret.secret, "ab"), SECRET_TEXT_BYTES - 1);
    secret_record_clear(&secret);

    const Feed *without[] = {first, second};
    for (size_t i = 0; i < ELEMENTSOF(without); i++) { /* one node does not know secrets */
        assert_int_equal(send_world(without[i], &all_rights, 2), 0);
        assert_sent("delete " SECRET);
        assert_not_sent("put " SECRET);
    }
    assert_int_equal(send_world(both, &all_rights, 1), 0); /* one rank needs no secret */
    assert_sent("delete " SECRET);
    assert_int_equal(send_world(both, &no_rights, 2), 0); /* secrets would be denied */
    assert_not_sent("secrets");
    noise = false;
    assert_int_equal(send_world(both, &all_rights, 2), -EIO);
    assert_string_equal(sent, "\n"); /* no world is written without a secret */
    (void)feed_free(both);
    (void)feed_free(first);
    (void)feed_free(second);
}

/* ---- what is removed ---- */

static void a_generation_goes_and_no_other(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.remove_generation = 1;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n"
                              "delete all " CLUSTER "ranks/a/1/\n" /* but not ranks/a/10/ */
                              "delete " CLUSTER "rendezvous/a/1\n");
    (void)feed_free(feed);
}

static void results_of_evaluations_go(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.remove_eval = 1000;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n"
                              "delete " CLUSTER "evals/a/1000\n");
    d.remove_evals = true;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n"
                              "delete all " CLUSTER "evals/a/\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(send(feed, &no_rights, &d), 0);
        assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n");
        d.remove_evals = false;
    }
    (void)feed_free(feed);
}

static void a_job_goes_and_no_other(_unused_ void **state)
{
    static const char records[] = "\nif " LEADER_KEY " created 7\n"
                                  "delete " CLUSTER "specs/a\n"
                                  "delete " CLUSTER "desired/a\n"
                                  "delete " CLUSTER "worlds/a\n"
                                  "delete " CLUSTER "phases/a\n"
                                  "delete " CLUSTER "checkpoints/a\n"
                                  "delete " CLUSTER "progress/a\n";
    static const char folders[] = "delete all " CLUSTER "ranks/a/\n" /* but not ranks/ab/ */
                                  "delete all " CLUSTER "rendezvous/a/\n";
    char all[2048];
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.remove_job = true;
    assert_int_equal(send(feed, &all_rights, &d), 0);
    (void)snprintf(all, sizeof(all), "%sdelete " SECRET "\n%sdelete all " CLUSTER "evals/a/\n",
                   records, folders);
    assert_string_equal(sent, all);
    assert_int_equal(send(feed, &no_rights, &d), 0);
    (void)snprintf(all, sizeof(all), "%s%s", records, folders);
    assert_string_equal(sent, all);
    (void)feed_free(feed);
}

/* A decision may remove several things at once, and each of them is removed. */
static void what_goes_together_goes(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    d.remove_generation = 2;
    d.remove_job = true;
    d.remove_request = true;
    (void)snprintf(d.request.id, sizeof(d.request.id), "r1");
    (void)snprintf(d.remove_incident, sizeof(d.remove_incident), "a-3");
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_sent("delete all " CLUSTER "ranks/a/2/");
    assert_sent("delete " CLUSTER "rendezvous/a/2");
    assert_sent("delete " CLUSTER "specs/a");
    assert_sent("delete all " CLUSTER "ranks/a/");
    assert_sent("delete " CLUSTER "requests/r1");
    assert_sent("delete " CLUSTER "incidents/a-3");
    assert_sent("delete " CLUSTER "alerts/a-3");
    assert_not_sent("put ");
    (void)feed_free(feed);
}

static void an_incident_goes_with_its_alert(_unused_ void **state)
{
    Feed *feed = feed_new("lab");
    Decision d = plain();
    (void)snprintf(d.remove_incident, sizeof(d.remove_incident), "a-3");
    assert_int_equal(send(feed, &all_rights, &d), 0);
    assert_string_equal(sent, "\nif " LEADER_KEY " created 7\n"
                              "delete " CLUSTER "incidents/a-3\n"
                              "delete " CLUSTER "alerts/a-3\n");
    assert_int_equal(send(feed, &no_rights, &d), 0);
    assert_sent("delete " CLUSTER "incidents/a-3");
    assert_not_sent("alerts");
    (void)feed_free(feed);
}

static int tear_down(_unused_ void **state)
{
    forget_sent();
    return 0;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_term_and_what_was_decided_upon_are_compared),
        CASE(each_record_that_is_written_is_compared),
        CASE(fields_of_others_are_kept),
        CASE(a_lost_job_file_is_put_back_byte_by_byte),
        CASE(what_cannot_be_read_is_not_gone),
        CASE(the_end_of_job_a_forgets_nothing_of_ab),
        CASE(a_world_has_its_own_secret_or_none),
        CASE(a_generation_goes_and_no_other),
        CASE(results_of_evaluations_go),
        CASE(a_job_goes_and_no_other),
        CASE(what_goes_together_goes),
        CASE(an_incident_goes_with_its_alert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

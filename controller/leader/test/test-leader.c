/* SPDX-License-Identifier: Apache-2.0 */
/* test-leader.c - the leader's shell without the program around it: several Leaders in this process, on one loop and
 * a real etcd. The test is linked without HTTP, systemd's messages, settings files and alerting. */
#include "controller/leader/leader.h"

#include "base/clock.h"
#include "controller/core/step/survey.h"
#include "controller/journal/replay.h"
#include "controller/leader/test/testing-lab.h"
#include "etcd/etcd-wait.h"

#include <string.h>

/* One Leader, and the program around it in these tests. */
typedef struct Program {
    Lab *lab;
    Etcd *etcd;
    Journal *journal; /* NULL: nothing is recorded */
    Leader *leader;
    LeaderSettings settings;
    int n_loaded, n_leads, n_ended, n_answered[3] /* by Outcome */;
    int ended; /* the result that LeaderEvents.ended reported */
    int n_read, n_observed, n_views;
    char results
        [80]; /* the last record of an evaluation: "<job>/<step>=<value>", or "... is gone" */
    int64_t shown;
    bool was_first; /* a record was reported as read before the core knew it */
} Program;

static void on_loaded(void *userdata)
{
    Program *p = userdata;
    p->n_loaded++;
    assert_true(leader_view(p->leader).loaded);
}

static void on_view_changed(void *userdata)
{
    Program *p = userdata;
    p->n_views++;
}

static void on_leads(void *userdata)
{
    Program *p = userdata;
    p->n_leads++;
    assert_true(leader_view(p->leader).term > 0);
}

static void on_record_read(void *userdata, const Event *event)
{
    Program *p = userdata;
    p->n_read++;
    if (event->kind == EVENT_INCIDENT && event->record && p->n_loaded)
        p->was_first =
            p->was_first || !cluster_find_incident(leader_view(p->leader).cluster, event->name);
}

static void on_results_read(void *userdata, const char *rest, const char *value, size_t n)
{
    Program *p = userdata;
    if (value)
        (void)snprintf(p->results, sizeof(p->results), "%s=%.*s", rest, (int)n, value);
    else
        (void)snprintf(p->results, sizeof(p->results), "%s is gone", rest);
}

static void on_observed(void *userdata, const Event *event)
{
    Program *p = userdata;
    p->n_observed += event->kind == EVENT_INCIDENT;
}

static void on_answered(void *userdata, const Decision *decision, Outcome outcome,
                        uint64_t begun_usec, int64_t revision)
{
    Program *p = userdata;
    const int64_t term = leader_view(p->leader).term;
    /* term is 0 if the Leader was deposed meanwhile. */
    assert_true(decision->term > 0 && (!term || term == decision->term));
    assert_true(begun_usec <= clock_boottime_usec());
    assert_true((outcome == OUTCOME_DONE) <= (revision > 0));
    p->n_answered[outcome]++;
}

static void on_shown(void *userdata, int64_t revision)
{
    Program *p = userdata;
    assert_true(revision >= p->shown);
    p->shown = revision;
}

static void on_ended(void *userdata, int r)
{
    Program *p = userdata;
    p->n_ended++;
    p->ended = r;
}

static uint8_t drawn; /* the byte that secrets are made of; 0: nothing can be drawn */

static bool draw(void *ret, size_t n)
{
    memset(ret, drawn, n);
    return drawn;
}

static LeaderSettings settings_for(const char *cluster, const char *name)
{
    LeaderSettings s = {
        .lease_sec = 2,
        .core = cluster_config_default,
        .limits = {.nodes = 8, .jobs = 2, .reports = 32, .incidents = 200, .requests = 8},
        .introduction = {.max_nodes = 8, .max_jobs = 2}};
    s.core.ttl_usec = 2 * USEC_PER_SEC;
    (void)snprintf(s.cluster, sizeof(s.cluster), "%s", cluster);
    (void)snprintf(s.introduction.name, sizeof(s.introduction.name), "%s", name);
    return s;
}

static void open_leader(Program *p)
{
    Error err = ERROR_INIT;
    const LeaderNeeds needs = {.event = p->lab->event,
                               .etcd = p->etcd,
                               .journal = p->journal,
                               .draw = draw};
    const LeaderEvents events = {.userdata = p,
                                 .loaded = on_loaded,
                                 .view_changed = on_view_changed,
                                 .leads = on_leads,
                                 .record_read = on_record_read,
                                 .results_read = on_results_read,
                                 .observed = on_observed,
                                 .answered = on_answered,
                                 .shown = on_shown,
                                 .ended = on_ended};
    assert_int_equal(leader_new(&needs, &p->settings, &events, &p->leader, &err), 0);
}

static void start(Program *p, Lab *lab, const char *cluster, const char *name)
{
    Error err = ERROR_INIT;
    EtcdOptions options = testing_etcd_options(lab->server);
    drawn = 0x5a;
    *p = (Program){.lab = lab, .settings = settings_for(cluster, name)};
    assert_int_equal(etcd_new(lab->event, &options, &p->etcd, &err), 0);
    open_leader(p);
}

static void end(Program *p)
{
    p->leader = leader_free(p->leader);
    p->etcd = etcd_free(p->etcd);
    p->journal = journal_free(p->journal);
}

static int64_t term_of(const Program *p) { return p->leader ? leader_view(p->leader).term : 0; }

static void rank_dies(Lab *lab, int64_t generation)
{
    put_rank(lab, generation, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9},
             0, true);
    wait_for(lab, "a", PHASE_RECOVERING, generation + 1, false);
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), generation + 1);
}

static int count_jobs(const Program *p)
{
    JobSurvey job;
    int n = 0;
    while (cluster_survey_job(leader_view(p->leader).cluster, n, &job))
        n++;
    return n;
}

/* ---- tests ---- */

/* Results of evaluations, which the core does not need, reach the program, also while another Leader leads. */
static void results_are_passed_on(void **state)
{
    Lab *lab = *state;
    char key[KEY_MAX];
    Program first, second;
    start(&first, lab, "lab", "first");
    TESTING_RUN_UNTIL(lab->event, term_of(&first));
    put_text(lab, key_eval("lab", "e", 20, key), "found", 0);
    TESTING_RUN_UNTIL(lab->event, strcmp(first.results, "e/20=found") == 0);
    start(&second, lab, "lab", "second");
    TESTING_RUN_UNTIL(lab->event, second.n_loaded);
    assert_string_equal(second.results, "e/20=found");
    assert_int_equal(first.n_read + second.n_read, 0);
    put_text(lab, key, NULL, 0);
    TESTING_RUN_UNTIL(lab->event, strcmp(first.results, "e/20 is gone") == 0 &&
                                      strcmp(second.results, "e/20 is gone") == 0);
    end(&first);
    end(&second);
}

/* The first Leader begins with an empty etcd, places a world and leaves; then a second Leader in the same process
 * leads. A third Leader leads another cluster and must see no record of the first cluster. */
static void one_leads_after_the_other_in_one_process(void **state)
{
    Lab *lab = *state;
    Program first, second, other;
    start(&first, lab, "lab", "first");
    start(&other, lab, "other", "other");
    TESTING_RUN_UNTIL(lab->event, term_of(&first) && term_of(&other));
    start(&second, lab, "lab", "second");
    TESTING_RUN_UNTIL(lab->event, second.n_loaded && count_candidates(lab) == 2);
    const int64_t terms[] = {term_of(&first), term_of(&other)};
    assert_true(leads(lab, "first"));

    bring_to_running(lab);
    TESTING_RUN_UNTIL(lab->event, count_jobs(&second) == 1);
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), 1);
    /* Three decisions are done: starting, go, running. */
    TESTING_RUN_UNTIL(lab->event, first.n_answered[OUTCOME_DONE] >= 3);
    assert_int_equal(second.n_answered[OUTCOME_DONE] + other.n_answered[OUTCOME_DONE], 0);
    assert_int_equal(count_jobs(&first), 1);
    assert_int_equal(count_jobs(&other), 0);
    assert_int_equal(other.n_read, 0);

    leader_leave(first.leader);
    TESTING_RUN_UNTIL(lab->event, first.n_ended);
    assert_int_equal(first.ended, 0);
    end(&first);
    TESTING_RUN_UNTIL(lab->event, term_of(&second));
    assert_true(term_of(&second) > terms[0]);
    assert_int_equal(term_of(&other), terms[1]);
    rank_dies(lab, 1);
    TESTING_RUN_UNTIL(lab->event, second.n_observed && second.was_first);
    TESTING_RUN_UNTIL(lab->event, second.n_answered[OUTCOME_DONE] >= 1);
    assert_int_equal(other.n_answered[OUTCOME_DONE], 0);
    assert_int_equal(first.n_loaded + second.n_loaded + other.n_loaded, 3);
    assert_int_equal(first.n_leads + second.n_leads + other.n_leads, 3);
    assert_int_equal(second.n_ended + other.n_ended, 0);
    end(&second);
    end(&other);
}

/* A Leader is freed with a transaction under way, and the client of etcd stays: no answer may reach what was freed.
 * The next Leader, on the same client, waits for the lease and leads. */
static void the_next_one_may_have_the_same_client(void **state)
{
    Lab *lab = *state;
    Program p;
    start(&p, lab, "lab", "first");
    TESTING_RUN_UNTIL(lab->event, term_of(&p));
    const int64_t term = term_of(&p);
    put_node(lab, "n1", 1);
    put_node(lab, "n2", 1);
    put_job(lab, "a", lab_job, 1, 2);
    TESTING_RUN_UNTIL(lab->event, leader_view(p.leader).cluster && count_jobs(&p) == 1);
    p.leader = leader_free(p.leader); /* the Leader has just begun to write the world */
    p.n_leads = 0;
    memset(p.n_answered, 0, sizeof(p.n_answered));
    p.shown = 0;
    open_leader(&p);
    TESTING_RUN_UNTIL(lab->event, term_of(&p));
    assert_true(term_of(&p) > term);
    train(lab, 1, 1);
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), 1);

    /* A Leader is freed while it writes that it leaves, and while it revokes its lease. */
    leader_leave(p.leader);
    p.leader = leader_free(p.leader);
    open_leader(&p);
    TESTING_RUN_UNTIL(lab->event, p.n_loaded == 3 && leader_view(p.leader).has_lease);
    leader_leave(p.leader);
    p.leader = leader_free(p.leader);
    Error err = ERROR_INIT;
    char key[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_get_wait(p.etcd, key_of("lab", KEY_WORLDS, "a", key), false, &answer,
                                   &err),
                     0);
    assert_int_equal(p.n_ended, 0);
    end(&p);
}

static int on_report(const ReplayReport *r, void *userdata)
{
    int *n_decisions = userdata;
    *n_decisions += r->kind == REPLAY_DECISION;
    assert_false(r->differs);
    return 0;
}

/* Decisions follow the new settings, the election shows them, and a replay of the journal uses them. */
static void it_is_configured_anew(void **state)
{
    Lab *lab = *state;
    Program p;
    char path[512];
    Error err = ERROR_INIT;
    start(&p, lab, "lab", "first");
    p.leader = leader_free(p.leader);
    (void)snprintf(path, sizeof(path), "%s/journal", testing_etcd_folder(lab->server));
    const JournalHead head = {.cluster = "lab",
                              .config = p.settings.core,
                              .limits = p.settings.limits};
    assert_int_equal(journal_new(path, 1 << 26, &head, &p.journal, &err), 0);
    p.settings.core.max_strikes = 9;
    open_leader(&p);
    bring_to_running(lab);
    p.settings.core.max_strikes = 1;
    (void)snprintf(p.settings.introduction.admit, sizeof(p.settings.introduction.admit), "n1,n2");
    leader_configure(p.leader, &p.settings);
    rank_dies(lab, 1);
    assert_non_null(strstr(text_at(lab, KEY_CORDONS, "n2"), "quarantine"));
    TESTING_RUN_UNTIL(lab->event, leads(lab, "n1,n2"));
    end(&p);
    int n_decisions = 0;
    assert_int_equal(journal_replay(path, on_report, &n_decisions, &err), 0);
    assert_true(n_decisions >= 4); /* decisions: starting, go, running, recovering */
}

/* A secret is made of the bytes that the program draws: without them no world is placed, and with them a
 * world is placed. */
static void a_world_waits_for_random_bytes(void **state)
{
    Lab *lab = *state;
    Program p;
    char key[KEY_MAX];
    start(&p, lab, "lab", "first");
    drawn = 0;
    for (int i = 1; i <= 2; i++) {
        NodeRecord node = {.machine_id = "m",
                           .incarnation = 1,
                           .n_slots = 1,
                           .features = FEATURE_SECRETS};
        (void)snprintf(node.name, sizeof(node.name), "n%d", i);
        PUT(lab, node_record, &node, key_of("lab", KEY_NODES, node.name, key));
    }
    put_job(lab, "a", lab_job, 2, 2);
    TESTING_RUN_UNTIL(lab->event, term_of(&p) && count_jobs(&p) == 1);
    for (int i = 0; i < 20; i++)
        (void)sd_event_run(lab->event, 10 * USEC_PER_MSEC);
    assert_null(text_at(lab, KEY_WORLDS, "a"));
    drawn = 0xa5;
    wait_for(lab, "a", PHASE_STARTING, 1, false);
    char *secret = testing_etcd_ask(lab->server, 0, "get", "--prefix", "/sdtrain-secrets/", NULL);
    assert_non_null(strstr(secret, "a5a5a5a5"));
    free(secret);
    end(&p);
}

#define WITH_LAB(test) cmocka_unit_test_setup_teardown(test, lab_begin, lab_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_LAB(results_are_passed_on),
        WITH_LAB(one_leads_after_the_other_in_one_process),
        WITH_LAB(the_next_one_may_have_the_same_client),
        WITH_LAB(it_is_configured_anew),
        WITH_LAB(a_world_waits_for_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

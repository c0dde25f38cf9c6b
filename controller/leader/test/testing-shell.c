/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shell.c - see testing-shell.h. */
#include "controller/leader/test/testing-shell.h"

#include "base/clock.h"
#include "controller/core/step/survey.h"

#include <string.h>

/* CLOCK_REALTIME is this many seconds ahead of the other clocks. */
#define REAL_SEC UINT64_C(1700000000)

Etcd etcd;
Leader *leader;
LeaderSettings settings;
Journal *journal;
struct ShellTold told;

/* ---- records of other clients ---- */

void put_node(const char *name)
{
    NodeRecord node = {.machine_id = "m", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    PUT(node_record, &node, KEY_NODES, name);
}

void put_job(const char *name)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "{\"name\":\"%s\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
                   "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
                   "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],"
                   "\"empty_text\":\"file:///d/empty.npy\"},"
                   "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
                   "\"checkpoint\":{\"uri\":\"file:///c/\"}}",
                   name);
    SpecRecord spec = {.spec = text, .submitted_usec = 1};
    DesiredRecord desired = {.min = 1, .max = 2};
    PUT(spec_record, &spec, KEY_SPECS, name);
    PUT(desired_record, &desired, KEY_DESIRED, name);
}

void cordon(const char *node)
{
    CordonRecord record = {.n_causes = 1, .causes = {{.mode = CORDON_CORDON, .since_usec = 1}}};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    PUT(cordon_record, &record, KEY_CORDONS, node);
}

void put_leader(const char *key, const LeaderRecord *record)
{
    char *text = leader_record_encode(record, NULL);
    (void)put(key, text, 0);
    free(text);
}

/* ---- the election ---- */

struct Election election;

int etcd_election_new(_unused_ Etcd *client, _unused_ const char *prefix, const char *value,
                      _unused_ EtcdLease *lease, EtcdElectionHandler handler, void *userdata,
                      EtcdElection **ret)
{
    election =
        (struct Election){.introduced = strdup(value), .on_elected = handler, .userdata = userdata};
    *ret = (EtcdElection *)&election;
    return 0;
}

/* Returns the candidate's key. */
static const char *own_key(void)
{
    static char key[KEY_MAX];
    (void)snprintf(key, sizeof(key), "/sdtrain/lab/leader/%llx", (long long)lease_of(&etcd));
    return key;
}

void etcd_election_change(_unused_ EtcdElection *candidate, const char *value)
{
    free(election.introduced);
    election.introduced = strdup(value);
    if (find(own_key()))
        (void)put(own_key(), value, lease_of(&etcd));
}

void etcd_election_lease_changed(_unused_ EtcdElection *candidate, EtcdLeaseState state,
                                 _unused_ int64_t lease)
{
    election.has_candidate = state != ETCD_LEASE_LOST;
    if (state == ETCD_LEASE_LOST)
        lose_election();
}

EtcdElection *etcd_election_free(_unused_ EtcdElection *candidate)
{
    free(election.introduced);
    election.introduced = NULL;
    return NULL;
}

int64_t enter_election(void)
{
    if (!lease_of(&etcd))
        grant(&etcd);
    return put(own_key(), election.introduced, lease_of(&etcd));
}

void win_election(int64_t term) { election.on_elected(true, own_key(), term, election.userdata); }
void lose_election(void) { election.on_elected(false, LEADER_KEY, 0, election.userdata); }

void elect(void)
{
    const int64_t term = enter_election();
    win_election(term);
    show(&etcd);
    assert_int_equal(leader_view(leader).term, term);
}

/* ---- the Leader ---- */

static void on_loaded(_unused_ void *userdata) { told.n_loaded++; }
static void on_view_changed(_unused_ void *userdata)
{
    told.n_views++;
    told.view = leader ? leader_view(leader) : (LeaderView){0};
}
static void on_leads(_unused_ void *userdata) { told.n_leads++; }
static void on_record_read(_unused_ void *userdata, const Event *event)
{
    NodeSurvey node;
    told.n_read++;
    assert_int_equal(event->now_usec, clock_boottime_usec());
    if (event->kind != EVENT_NODE || !event->record)
        return;
    for (int i = 0; cluster_survey_node(leader_view(leader).cluster, i, &node); i++)
        assert_false(strcmp(node.name, "new") == 0); /* the core has not received it yet */
}
static void on_results_read(_unused_ void *userdata, _unused_ const char *rest,
                            _unused_ const char *value, _unused_ size_t n)
{
    told.n_results++;
}
static void on_observed(_unused_ void *userdata, const Event *event)
{
    told.n_observed++;
    told.n_leading += event->kind == EVENT_LEADING;
    assert_true(told.n_leads >= told.n_leading); /* leads() is called before anything is decided */
    told.n_stalled += event->stalled;
    told.n_unreadable += event->health != RECORD_READABLE;
    assert_int_equal(event->now_usec, clock_boottime_usec());
    assert_int_equal(event->real_usec, clock_realtime_usec());
    told.n_ticks += event->kind == EVENT_TICK;
}
static void on_answered(_unused_ void *userdata, const Decision *decision, Outcome outcome,
                        uint64_t begun_usec, int64_t at)
{
    told.n_answers[outcome]++;
    told.begun_usec = begun_usec;
    assert_null(decision->world.runs); /* the core lends the runs for one step */
    assert_int_equal(at, outcome == OUTCOME_UNKNOWN ? 0 : newest_revision);
}
static void on_shown(_unused_ void *userdata, int64_t at) { told.shown = at; }
static void on_ended(_unused_ void *userdata, int r)
{
    told.n_ended++;
    told.ended = r;
}

void expect_view_is_told(void)
{
    const LeaderView view = leader_view(leader);
    assert_int_equal(told.view.term, view.term);
    assert_int_equal(told.view.is_still, view.is_still);
    assert_int_equal(told.view.has_lease, view.has_lease);
    assert_int_equal(told.view.loaded, view.loaded);
}

static bool draw(void *ret, size_t n)
{
    memset(ret, 7, n);
    return true;
}

static int set_up_jobs(size_t n_jobs)
{
    Error err = ERROR_INIT;
    memory_begin();
    ahead_usec = REAL_SEC * USEC_PER_SEC;
    gather_usec = 5 * USEC_PER_MSEC;
    etcd = (Etcd){.range = "/sdtrain/lab/"};
    told = (struct ShellTold){0};
    settings = (LeaderSettings){
        .cluster = "lab",
        .lease_sec = 10,
        .core = cluster_config_default,
        .limits = {.nodes = 8, .jobs = n_jobs, .reports = 32, .incidents = 201, .requests = 8},
        .introduction = {.name = "c", .max_nodes = 8, .max_jobs = (int)n_jobs}};
    const LeaderNeeds needs = {.event = memory_loop,
                               .etcd = &etcd,
                               .draw = draw,
                               .journal = journal};
    const LeaderEvents events = {.loaded = on_loaded,
                                 .view_changed = on_view_changed,
                                 .leads = on_leads,
                                 .record_read = on_record_read,
                                 .results_read = on_results_read,
                                 .observed = on_observed,
                                 .answered = on_answered,
                                 .shown = on_shown,
                                 .ended = on_ended};
    assert_int_equal(leader_new(&needs, &settings, &events, &leader, &err), 0);
    assert_int_equal(etcd_lease_ttl_sec(etcd.lease), 10);
    answer_all(); /* the requests about rights */
    return 0;
}

int set_up(_unused_ void **state) { return set_up_jobs(1); }
int set_up_two(_unused_ void **state) { return set_up_jobs(2); }

int tear_down(_unused_ void **state)
{
    leader = leader_free(leader);
    assert_null(etcd.on_history);
    memory_end();
    return 0;
}

bool is_cordoned(const char *name)
{
    NodeSurvey node;
    for (int i = 0; cluster_survey_node(leader_view(leader).cluster, i, &node); i++)
        if (strcmp(node.name, name) == 0)
            return node.cordoned;
    fail_msg("the core does not know %s", name);
    return false;
}

/* Begins to lead, with two nodes and a job whose first world is about to be written. */
void begin(void)
{
    list_again(&etcd);
    elect();
    put_node("n1");
    put_node("n2");
    put_job("a");
    show(&etcd);
    pass(5 * USEC_PER_MSEC);
    (void)oldest_call(&etcd, CALL_TXN);
}

int64_t generation(void)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    WorldRecord world;
    const StoredKey *k = find(key_of("lab", KEY_WORLDS, "a", key));
    if (!k)
        return 0;
    assert_int_equal(world_record_decode(key, k->value, strlen(k->value), &world, &err), 0);
    const int64_t ret = world.generation;
    world_record_clear(&world);
    return ret;
}

/* Gives two jobs a world each, then requests both jobs to stop. */
void begin_two(void)
{
    const DesiredRecord stop = {.state = DESIRED_STOPPED, .min = 1, .max = 2};
    list_again(&etcd);
    elect();
    for (int i = 1; i < 5; i++)
        put_node((char[]){'n', (char)('0' + i), '\0'});
    put_job("a");
    put_job("b");
    settle();
    pass(USEC_PER_SEC);
    settle();
    PUT(desired_record, &stop, KEY_DESIRED, "a");
    PUT(desired_record, &stop, KEY_DESIRED, "b");
}

int64_t follow_two_deaths(const LeaderRecord *first, const LeaderRecord *second)
{
    put_leader("/sdtrain/lab/leader/1", first);
    list_again(&etcd);
    (void)delete_key("/sdtrain/lab/leader/1");
    show(&etcd);
    put_leader("/sdtrain/lab/leader/2", second);
    const int64_t term = enter_election();
    show(&etcd);
    (void)delete_key("/sdtrain/lab/leader/2");
    show(&etcd);
    win_election(term);
    return term;
}

int64_t stand_still(void)
{
    const LeaderRecord first = {.name = "d", .version = "1", .state = LEADER_UP};
    const LeaderRecord second = {.name = "e", .version = "1", .state = LEADER_UP, .deaths = 1};
    const int64_t term = follow_two_deaths(&first, &second);
    settle();
    assert_int_equal(leader_view(leader).term, 0);
    assert_true(leader_view(leader).is_still);
    return term;
}

/* Shows one revision at each turn of the loop. */
static int on_turn(sd_event_source *source, _unused_ uint64_t usec, _unused_ void *userdata)
{
    return show_one(&etcd, NULL) ? sd_event_source_set_enabled(source, SD_EVENT_ONESHOT) : 0;
}

void resume(void)
{
    sd_event_source *turn;
    (void)sd_event_add_time(memory_loop, &turn, CLOCK_BOOTTIME, clock_boottime_usec(), 0, on_turn,
                            NULL);
    pass(0);
    (void)sd_event_source_disable_unref(turn);
}

LeaderRecord own_record(void)
{
    Error err = ERROR_INIT;
    LeaderRecord record;
    const size_t n = strlen(election.introduced);
    assert_int_equal(leader_record_decode("it", election.introduced, n, &record, &err), 0);
    return record;
}

int deaths_told(void)
{
    LeaderRecord record = own_record();
    const int ret = record.deaths;
    leader_record_clear(&record);
    return ret;
}

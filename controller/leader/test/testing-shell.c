/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shell.c - see testing-shell.h. */
#include "controller/leader/test/testing-shell.h"

#include "base/clock.h"
#include "controller/core/step/survey.h"

#include <string.h>

Leader *leader;
LeaderSettings settings;
Journal *journal;
struct ShellTold told;

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
    assert_int_equal(at, outcome == OUTCOME_UNKNOWN ? 0 : seen.revision);
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
    store_begin();
    told = (struct ShellTold){0};
    settings = (LeaderSettings){
        .cluster = "lab",
        .lease_sec = 10,
        .core = cluster_config_default,
        .limits = {.nodes = 8, .jobs = n_jobs, .reports = 32, .incidents = 201, .requests = 8},
        .introduction = {.name = "c", .max_nodes = 8, .max_jobs = (int)n_jobs}};
    const LeaderNeeds needs = {.draw = draw, .journal = journal};
    const LeaderEvents events = {.loaded = on_loaded,
                                 .view_changed = on_view_changed,
                                 .leads = on_leads,
                                 .record_read = on_record_read,
                                 .observed = on_observed,
                                 .answered = on_answered,
                                 .shown = on_shown,
                                 .ended = on_ended};
    assert_int_equal(leader_new(&needs, &settings, &events, &leader, &err), 0);
    answer_all(); /* the requests about rights */
    return 0;
}

int set_up(_unused_ void **state) { return set_up_jobs(1); }
int set_up_two(_unused_ void **state) { return set_up_jobs(2); }

int tear_down(_unused_ void **state)
{
    leader = leader_free(leader);
    store_end();
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

/* Makes the Leader the first in the election. */
void elect(void)
{
    seen.on_lease(ETCD_LEASE_GRANTED, 1, leader);
    put_text(LEADER_KEY, seen.introduced);
    const int64_t term = seen.revision;
    seen.on_elected(true, LEADER_KEY, term, seen.userdata);
    show_all();
    assert_int_equal(leader_view(leader).term, term);
}

/* Begins to lead, with two nodes and a job whose first world is about to be written. */
void begin(void)
{
    list_all();
    elect();
    put_node("n1");
    put_node("n2");
    put_job("a");
    show_all();
    pass(5 * USEC_PER_MSEC);
    (void)under_way(false);
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
    list_all();
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

/* Lets two leaders die on the same records, so that this one stands still. Returns its term. */
int64_t stand_still(void)
{
    LeaderRecord dead = {.name = "d", .version = "1", .state = LEADER_UP};
    char *text = leader_record_encode(&dead, NULL);
    put_text("/sdtrain/lab/leader/1", text);
    free(text);
    list_all();
    delete_key("/sdtrain/lab/leader/1");
    show_all();
    dead = (LeaderRecord){.name = "e", .version = "1", .state = LEADER_UP, .deaths = 1};
    text = leader_record_encode(&dead, NULL);
    put_text("/sdtrain/lab/leader/2", text);
    free(text);
    put_text(LEADER_KEY, seen.introduced);
    const int64_t term = seen.revision;
    show_all();
    delete_key("/sdtrain/lab/leader/2");
    show_all();
    seen.on_elected(true, LEADER_KEY, term, seen.userdata);
    settle();
    assert_int_equal(leader_view(leader).term, 0);
    assert_true(leader_view(leader).is_still);
    return term;
}

int deaths_told(void)
{
    Error err = ERROR_INIT;
    LeaderRecord record;
    assert_int_equal(leader_record_decode("it", seen.introduced, strlen(seen.introduced), &record,
                                          &err),
                     0);
    const int ret = record.deaths;
    leader_record_clear(&record);
    return ret;
}

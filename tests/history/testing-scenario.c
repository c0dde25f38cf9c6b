/* SPDX-License-Identifier: Apache-2.0 */
/* testing-scenario.c - see testing-scenario.h. */
#include "tests/history/testing-scenario.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void scenario_hear(int64_t revision, const char *key, const Breach *breach, void *userdata)
{
    Scenario *s = userdata;
    if (s->n_said++ == 0) {
        (void)snprintf(s->invariant, sizeof(s->invariant), "%s", breach->invariant);
        (void)snprintf(s->said, sizeof(s->said), "%lld %s %s", (long long)revision, key,
                       breach->text);
    }
}

/* ---- transactions ---- */

int64_t *scenario_version_of(Scenario *s, const char *key)
{
    for (size_t i = 0; i < s->n_keys; i++)
        if (strcmp(s->keys[i], key) == 0)
            return &s->versions[i];
    assert_true(s->n_keys < SCENARIO_KEYS_MAX);
    s->keys[s->n_keys] = memory_text(key);
    return &s->versions[s->n_keys++];
}

void scenario_change(Scenario *s, KeyKind kind, const char *name, char *text, int64_t lease)
{
    char key[KEY_MAX];
    assert_true(s->n_changes < SCENARIO_CHANGES_MAX);
    int64_t *version = scenario_version_of(s, key_of(CLUSTER, kind, name, key));
    *version = text ? *version + 1 : 0;
    s->changes[s->n_changes++] = (HistoryChange){.key = memory_text(key),
                                                 .value = text,
                                                 .n_value = text ? strlen(text) : 0,
                                                 .lease = lease,
                                                 .version = *version};
}

void scenario_removes(Scenario *s, KeyKind kind, const char *name)
{
    scenario_change(s, kind, name, NULL, 0);
}

void scenario_commit(Scenario *s)
{
    Error err = ERROR_INIT;
    s->revision++;
    assert_int_equal(history_checker_apply(s->checker, s->revision, s->changes, s->n_changes, &err),
                     0);
    for (size_t i = 0; i < s->n_changes; i++) {
        free((char *)s->changes[i].key);
        free((char *)s->changes[i].value);
    }
    s->n_changes = 0;
}

void scenario_put_spec(Scenario *s)
{
    scenario_change(s, KEY_SPECS, JOB, spec_record_encode(&s->spec, NULL), 0);
}

void scenario_put_desired(Scenario *s)
{
    scenario_change(s, KEY_DESIRED, JOB, desired_record_encode(&s->desired, NULL), 0);
}

void scenario_put_phase(Scenario *s)
{
    s->phase.serial++;
    scenario_change(s, KEY_PHASES, JOB, phase_record_encode(&s->phase, NULL), 0);
}

void scenario_put_world(Scenario *s)
{
    scenario_change(s, KEY_WORLDS, JOB, world_record_encode(&s->world, NULL), 0);
}

void scenario_put_node(Scenario *s, int i)
{
    scenario_change(s, KEY_NODES, s->nodes[i].name, node_record_encode(&s->nodes[i], NULL), LEASE);
}

void scenario_put_ranks(Scenario *s, int i)
{
    char name[KEY_MAX];
    (void)snprintf(name, sizeof(name), JOB "/%lld/%s", (long long)s->ranks[i].generation,
                   s->ranks[i].node);
    scenario_change(s, KEY_RANKS, name, ranks_record_encode(&s->ranks[i], NULL), LEASE);
}

void scenario_put_checkpoints(Scenario *s)
{
    scenario_change(s, KEY_CHECKPOINTS, JOB, checkpoints_record_encode(&s->checkpoints, NULL), 0);
}

void scenario_put_progress(Scenario *s)
{
    scenario_change(s, KEY_PROGRESS, JOB, progress_record_encode(&s->progress, NULL), 0);
}

void scenario_put_incident(Scenario *s)
{
    scenario_change(s, KEY_INCIDENTS, s->incident.id, incident_record_encode(&s->incident, NULL),
                    0);
}

void scenario_put_cordon(Scenario *s)
{
    scenario_change(s, KEY_CORDONS, s->cordon.node, cordon_record_encode(&s->cordon, NULL), 0);
}

void scenario_put_alert(Scenario *s)
{
    scenario_change(s, KEY_ALERTS, s->alert.id, alert_record_encode(&s->alert, NULL), 0);
}

/* ---- the scenario ---- */

void scenario_submit(Scenario *s)
{
    scenario_put_spec(s);
    scenario_put_desired(s);
    scenario_commit(s);
}

void scenario_phase_is(Scenario *s, JobPhase phase)
{
    s->phase.phase = phase;
    scenario_put_phase(s);
}

/* Writes the next world, and its phase in the same revision. */
void scenario_next_world(Scenario *s, JobPhase phase)
{
    s->world.generation++;
    s->phase.generation = s->world.generation;
    s->phase.go = s->phase.leave = false;
    s->phase.tried_revision = s->revision;
    s->world.committed = s->phase.committed = checkpoints_mark(&s->checkpoints);
    const CheckpointCommit *latest = checkpoints_latest(&s->checkpoints);
    s->world.resume.step = latest ? latest->step : 0;
    (void)snprintf(s->world.resume.uri, sizeof(s->world.resume.uri), "%s",
                   latest ? latest->uri : "");
    scenario_put_world(s);
    scenario_phase_is(s, phase);
}

/* Writes each node's report on its one rank in the present world. */
static void ranks_are(Scenario *s, RankState state, int64_t step)
{
    for (int i = 0; i < 2; i++) {
        s->ranks[i].generation = s->world.generation;
        s->reports[i].state = state;
        s->reports[i].step = step;
        s->reports[i].pid = 100 * (int)s->world.generation + i;
        scenario_put_ranks(s, i);
        scenario_commit(s);
    }
}

static void world_is_there(Scenario *s)
{
    for (int i = 0; i < 2; i++)
        s->ranks[i].world_revision = s->revision;
}

void scenario_goes(Scenario *s)
{
    s->phase.go = true;
    scenario_put_phase(s);
    scenario_commit(s);
}

void scenario_add_commit(Scenario *s, int64_t step)
{
    CheckpointCommit made = {.step = step, .generation = s->world.generation, .at_usec = 1};
    (void)snprintf(made.uri, sizeof(made.uri), "file:///a/step-%lld/manifest.json",
                   (long long)step);
    checkpoints_append(&s->checkpoints, &made);
    s->progress.committed = checkpoints_mark(&s->checkpoints);
    scenario_put_checkpoints(s);
    scenario_put_progress(s);
}

static void begin_records(Scenario *s)
{
    s->spec =
        (SpecRecord){.spec = (char *)"{\"train\": {\"steps\": 40}}", .submission = SUBMISSION};
    s->desired = (DesiredRecord){.min = 1, .max = 2};
    s->world = (WorldRecord){.size = 2, .runs = s->runs, .n_runs = 2, .decided_usec = 1000};
    s->phase = (PhaseRecord){.since_usec = 1};
    memcpy(s->world.submission, SUBMISSION, SUBMISSION_BYTES);
    memcpy(s->phase.submission, SUBMISSION, SUBMISSION_BYTES);
    memcpy(s->checkpoints.submission, SUBMISSION, SUBMISSION_BYTES);
    s->progress = (ProgressRecord){.generation = 1, .step = 5, .steps = 40, .at_usec = 1};
    s->incident = (IncidentRecord){.id = JOB "-1",
                                   .job = JOB,
                                   .submission = SUBMISSION,
                                   .cause = "node-lost",
                                   .node = "n1",
                                   .rank = 1,
                                   .generation = 1,
                                   .at_usec = 1};
    s->cordon = (CordonRecord){.node = "n1", .n_causes = 1};
    s->cordon.causes[0] = (CordonCause){.owner = CORDON_MACHINE,
                                        .machine_id = "11111111111111111111111111111111",
                                        .mode = CORDON_QUARANTINE,
                                        .reason = "Xid 79",
                                        .since_usec = 1,
                                        .strikes = 1};
    s->alert = (AlertRecord){.id = JOB "-1", .incident_usec = 1, .term = 1, .n_deliveries = 1};
    s->alert.deliveries[0] = (Delivery){.sink = "page", .state = DELIVERY_TRIGGERED, .at_usec = 1};
    s->request = (RequestRecord){.id = "r1", .kind = "recover", .target = JOB, .at_usec = 1};
}

static void begin_node(Scenario *s, int i)
{
    NodeRecord *node = &s->nodes[i];
    *node = (NodeRecord){.incarnation = 10, .address = "here", .n_slots = 2};
    (void)snprintf(node->name, sizeof(node->name), "n%d", i);
    memset(node->machine_id, '0' + i, 32);
    memset(node->boot_id, '0' + i, 32);
    s->runs[i] = (WorldRun){.incarnation = 10, .slots = 1};
    (void)snprintf(s->runs[i].node, sizeof(s->runs[i].node), "n%d", i);
    s->reports[i] = (RankReport){.rank = i, .at_usec = 1};
    s->ranks[i] = (RanksRecord){.incarnation = 10, .ranks = &s->reports[i], .n_ranks = 1};
    (void)snprintf(s->ranks[i].node, sizeof(s->ranks[i].node), "n%d", i);
    scenario_put_node(s, i);
    scenario_commit(s);
}

/* Sets up the scenario: two nodes train world 1 of a job, which has committed step 5. */
int scenario_begin(void **state)
{
    Scenario *s = memory_new(Scenario);
    s->checker = history_checker_new(CLUSTER, scenario_hear, s);
    begin_records(s);
    begin_node(s, 0);
    begin_node(s, 1);
    scenario_submit(s);
    scenario_phase_is(s, PHASE_PENDING);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
    world_is_there(s);
    ranks_are(s, RANK_STARTING, 0);
    ranks_are(s, RANK_READY, 0);
    scenario_goes(s);
    ranks_are(s, RANK_RUNNING, 1);
    scenario_phase_is(s, PHASE_RUNNING);
    scenario_commit(s);
    scenario_add_commit(s, 5);
    scenario_commit(s);
    assert_string_equal(s->said, "");
    *state = s;
    return 0;
}

int scenario_end(void **state)
{
    Scenario *s = *state;
    (void)history_checker_free(s->checker); /* always returns NULL */
    for (size_t i = 0; i < s->n_keys; i++)
        free(s->keys[i]);
    free(s);
    return 0;
}

/* ---- valid continuations of the first world ---- */

static void node_is_lost(Scenario *s)
{
    scenario_removes(s, KEY_NODES, "n1");
    scenario_removes(s, KEY_RANKS, JOB "/1/n1");
    scenario_commit(s);
}

/* After the loss of n1, world 2 begins only on n0. */
void scenario_recovers(Scenario *s)
{
    node_is_lost(s);
    scenario_put_incident(s);
    (void)snprintf(s->world.incident, sizeof(s->world.incident), "%s", s->incident.id);
    s->world.size = 1;
    s->world.n_runs = 1;
    scenario_next_world(s, PHASE_RECOVERING);
    scenario_commit(s);
}

/* n0 ends its rank of world 1, and reports the end while world 2 exists. */
void scenario_old_rank_ends(Scenario *s)
{
    s->reports[0].state = RANK_EXITED;
    s->reports[0].exit_code = -9;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
    s->ranks[0].generation = 2;
    s->ranks[0].world_revision = s->revision - 1;
    s->ranks[0].killed_usec = 5;
    s->reports[0] = (RankReport){.state = RANK_READY, .pid = 200, .at_usec = 1};
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

void scenario_stops(Scenario *s)
{
    s->phase.go = false;
    s->phase.tried_revision = s->revision;
    scenario_phase_is(s, PHASE_STOPPED);
    scenario_commit(s);
}

void scenario_deletes_job(Scenario *s)
{
    static const KeyKind kinds[] = {KEY_SPECS,  KEY_DESIRED,     KEY_WORLDS,
                                    KEY_PHASES, KEY_CHECKPOINTS, KEY_PROGRESS};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        scenario_removes(s, kinds[i], JOB);
    scenario_removes(s, KEY_RANKS, JOB "/1/n0");
    scenario_removes(s, KEY_RANKS, JOB "/1/n1");
    scenario_commit(s);
}

void scenario_starts_anew(Scenario *s)
{
    memcpy(s->spec.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    memcpy(s->phase.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    memcpy(s->world.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    s->phase = (PhaseRecord){.since_usec = 1};
    memcpy(s->phase.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    s->checkpoints = (CheckpointsRecord){0};
    s->world.generation = 0;
    scenario_submit(s);
    scenario_phase_is(s, PHASE_PENDING);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

void scenario_recovery(Scenario *s)
{
    scenario_recovers(s);
    scenario_old_rank_ends(s);
    scenario_goes(s);
    s->reports[0].state = RANK_RUNNING;
    s->reports[0].step = 6;
    s->ranks[0].first_step = 6;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
    s->incident.state = INCIDENT_RESOLVED;
    s->incident.resolved_usec = 9;
    scenario_put_incident(s);
    scenario_phase_is(s, PHASE_RUNNING);
    scenario_commit(s);
    s->progress = (ProgressRecord){.generation = 2, .step = 6, .at_usec = 1};
    scenario_add_commit(s, 10);
    scenario_commit(s);
}

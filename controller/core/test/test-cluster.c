/* SPDX-License-Identifier: Apache-2.0 */
/* test-cluster.c - golden traces: every file in traces/ is a scenario. It lists events ("TIME COMMAND ...") and, in
 * lines that begin with ">", the core's answers. The test runs the events and compares the answers.
 *
 * Commands (times in seconds; key=value pairs may be left out; text in quotes):
 *   config ttl= grace= start= leave= hang= strikes= window= quarantine= incidents= escalate= queue= admit= prices=
 *          room-nodes= room-jobs= room-reports= room-incidents= room-requests=     sizes of the core's
 *          tables
 *   reload ttl= ...                  as config, while the core runs: SIGHUP
 *   lead TERM | deposed
 *   takeover TERM                    a leader that has seen nothing yet takes over; keys of config change settings
 *   node NAME slots= inc= [left] verdict= evidence= lost= bad= machine= job= gen= startup= ran=JOB:GEN:STEP price=
 *                                    the node's record is put
 *   lease NAME                       the node's lease ends: the node's and its ranks' keys vanish at once
 *   job NAME grains= steps= fails= grow= patience= submitted= submission= resume= refused= keep= keep-every=
 *       priority= [stop-if-diverging]
 *   want NAME STATE min= max= target= priority= by=                     the job's desired record is put
 *   cordon NODE mode= reason= by= job= until= machine= strikes= | uncordon NODE [operator]
 *   ranks JOB GEN NODE STATE slot= code= unmet= step= stage= text= first= [hung] [killed] [left]
 *         [finished] [old-killed]     one slot's rank, or all of them, changes state
 *   unrank JOB GEN NODE              the key vanishes
 *   rendezvous JOB GEN
 *   commit JOB STEP GEN submission=
 *   progress JOB GEN STEP unsaved= error= waits= rank= diverging=STEP is= saving= (since when)
 *   request ID KIND TARGET answer= submission=
 *   alert ID [settled]               the incident's alert record is put
 *   history JOB | survey             prints the worlds in the job's phase record; prints what metrics would show
 *   show                             prints fields of records that the lines of decisions do not show
 *   lose|spoil|newer|backup|restore|again KIND NAME    as trace_harm() does
 *   refuse | unknown | unknown-done  the outcome of the next decision
 *   hold | release                   the next decision stays under way until it is released
 *   outrun | see                     the next decision's outcome arrives before its records; shows those records
 *   tick | stall | clock SECONDS     only time passes; the leader was stalled before; sets the wall clock SECONDS
 *                                    ahead of the core's clock
 *
 * SDTRAIN_TRACES=write writes the answers into the files; read the difference before you keep it. */
#include "base/file.h"
#include "base/slots.h"
#include "base/test/testing.h"
#include "cluster/cordon.h"
#include "controller/core/test/testing-scenario.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>

void say(Scenario *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(s->answers + s->used, sizeof(s->answers) - s->used, format, ap);
    va_end(ap);
    s->used += (size_t)n;
    assert_true(s->used < sizeof(s->answers));
}

void begin_line(Scenario *s)
{
    say(s, "> %.3f ", (double)(trace_now(s->runner) - TRACE_EPOCH_USEC) / 1e6);
}

/* ---- words of a command ---- */

static void broken(const Scenario *s, const char *what)
{
    fail_msg("%s:%d: %s", s->file, s->line, what);
}

static void split(Scenario *s, char *line)
{
    s->n_words = 0;
    for (char *p = line; *p;) {
        while (*p == ' ')
            p++;
        if (!*p)
            break;
        if (s->n_words == WORDS_MAX)
            broken(s, "too many words");
        char *to = p;
        s->words[s->n_words++] = p;
        bool quoted = false;
        for (; *p && (quoted || *p != ' '); p++)
            if (*p == '"')
                quoted = !quoted;
            else
                *to++ = *p;
        if (*p)
            p++;
        *to = '\0';
    }
}

static const char *word(const Scenario *s, int i)
{
    if (i >= s->n_words)
        broken(s, "a word is missing");
    return s->words[i];
}

static const char *find_text(const Scenario *s, const char *key, const char *otherwise)
{
    size_t n = strlen(key);
    for (int i = 2; i < s->n_words; i++)
        if (strncmp(s->words[i], key, n) == 0 && s->words[i][n] == '=')
            return s->words[i] + n + 1;
    return otherwise;
}

static double find_number(const Scenario *s, const char *key, double otherwise)
{
    const char *text = find_text(s, key, NULL);
    return text ? strtod(text, NULL) : otherwise;
}

static bool has_flag(const Scenario *s, const char *flag)
{
    for (int i = 2; i < s->n_words; i++)
        if (strcmp(s->words[i], flag) == 0)
            return true;
    return false;
}

static int choice(const Scenario *s, const char *text, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    broken(s, text);
    return -1;
}

#define COPY(field, text) (void)snprintf(field, sizeof(field), "%s", text)
#define USEC(seconds) ((uint64_t)((seconds)*1e6 + 0.5))

/* ---- commands ---- */

static void read_config(Scenario *s)
{
    ClusterConfig *c = &s->config;
    c->ttl_usec = USEC(find_number(s, "ttl", (double)c->ttl_usec / 1e6));
    c->grace_usec = USEC(find_number(s, "grace", (double)c->grace_usec / 1e6));
    c->start_deadline_usec = USEC(find_number(s, "start", (double)c->start_deadline_usec / 1e6));
    c->leave_deadline_usec = USEC(find_number(s, "leave", (double)c->leave_deadline_usec / 1e6));
    c->hang_wait_usec = USEC(find_number(s, "hang", (double)c->hang_wait_usec / 1e6));
    c->strike_window_usec = USEC(find_number(s, "window", (double)c->strike_window_usec / 1e6));
    c->quarantine_usec = USEC(find_number(s, "quarantine", (double)c->quarantine_usec / 1e6));
    c->max_strikes = (int)find_number(s, "strikes", c->max_strikes);
    c->escalate_usec = USEC(find_number(s, "escalate", (double)c->escalate_usec / 1e6));
    c->queue_patience_usec = USEC(find_number(s, "queue", (double)c->queue_patience_usec / 1e6));
    c->incidents_kept = (int)find_number(s, "incidents", c->incidents_kept);
    if (find_text(s, "admit", NULL))
        COPY(c->admit, find_text(s, "admit", ""));
    if (find_text(s, "prices", NULL))
        COPY(c->prices, find_text(s, "prices", ""));
}

static void read_limits(Scenario *s)
{
    ClusterLimits *l = &s->limits;
    l->nodes = (int)find_number(s, "room-nodes", l->nodes);
    l->jobs = (int)find_number(s, "room-jobs", l->jobs);
    l->reports = (int)find_number(s, "room-reports", l->reports);
    l->incidents = (int)find_number(s, "room-incidents", l->incidents);
    l->requests = (int)find_number(s, "room-requests", l->requests);
}

static void set_config(Scenario *s)
{
    read_config(s);
    read_limits(s);
    trace_free(s->runner);
    assert_int_equal(trace_new(&s->config, &s->limits, say_decision, s, &s->runner), 0);
}

static void reload(Scenario *s)
{
    read_config(s);
    trace_configure(s->runner, &s->config);
}

/* Gives the next record the lease that the line names. If the line names no lease, the record gets the lease of the
 * entry `before`, or of the entry `other` if `before` is NULL. */
static void hang(Scenario *s, const TraceEntry *before, const TraceEntry *other)
{
    const TraceEntry *as = before ? before : other;
    trace_hang_on(s->runner, (int64_t)find_number(s, "lease", as ? (double)as->lease : 0));
}

static void put_node(Scenario *s)
{
    NodeRecord n = {.incarnation = (uint64_t)find_number(s, "inc", 1),
                    .n_slots = (int)find_number(s, "slots", 1),
                    .state = has_flag(s, "left") ? NODE_LEFT : NODE_UP,
                    .generation = (int64_t)find_number(s, "gen", 0),
                    .startup_usec = USEC(find_number(s, "startup", 0)),
                    .n_gpus = (int)find_number(s, "gpus", 0)};
    COPY(n.features, find_text(s, "knows", ""));
    n.verdict = (NodeVerdict)choice(s, find_text(s, "verdict", "healthy"), node_verdict_names, 4);
    JobRun *run = &n.runs[0];
    n.n_runs = sscanf(find_text(s, "ran", ""), "%63[^:]:%" SCNd64 ":%" SCNd64, run->job,
                      &run->generation, &run->committed.step) == 3;
    run->committed.generation = run->generation;
    COPY(n.name, word(s, 2));
    COPY(n.evidence, find_text(s, "evidence", ""));
    COPY(n.price_class, find_text(s, "price", ""));
    COPY(n.job, find_text(s, "job", ""));
    COPY(n.machine_id, find_text(s, "machine", "m"));
    const TraceEntry *world = trace_find(s->runner, EVENT_WORLD, n.job, 0, NULL);
    const WorldRecord *runs = world ? world->record : NULL;
    n.world_revision = runs && runs->generation == n.generation ? world->mod : 0;
    assert_int_equal(slots_parse(find_text(s, "lost", ""), &n.lost_slots), 0);
    assert_int_equal(slots_parse(find_text(s, "bad", ""), &n.bad_slots), 0);
    n.stranger_lease = (int64_t)find_number(s, "stranger", 0);
    n.stranger_revision = (int64_t)find_number(s, "at", 0);
    hang(s, trace_find(s->runner, EVENT_NODE, n.name, 0, NULL), NULL);
    trace_put(s->runner, EVENT_NODE, n.name, 0, NULL, &n, false);
}

/* Ends a node's lease, so that its keys vanish. With of=N only the keys that hang on lease N vanish. */
static void end_lease(Scenario *s)
{
    const int64_t lease = (int64_t)find_number(s, "of", -1);
    const TraceEntry *node = trace_find(s->runner, EVENT_NODE, word(s, 2), 0, NULL);
    const bool goes = lease < 0 || (node && node->lease == lease);
    TraceEntry *entries;
    size_t n = trace_entries(s->runner, &entries);
    for (size_t i = 0; i < n; i++)
        if (entries[i].record && entries[i].kind == EVENT_RANKS &&
            (lease < 0 || entries[i].lease == lease) && strcmp(entries[i].node, word(s, 2)) == 0) {
            TraceEntry e = entries[i];
            trace_put(s->runner, EVENT_RANKS, e.name, e.generation, e.node, NULL, true);
        }
    if (goes)
        trace_put(s->runner, EVENT_NODE, word(s, 2), 0, NULL, NULL, false);
    else
        trace_tick(s->runner);
}

static void put_job(Scenario *s)
{
    JobFacts f = {.n_grains = (int64_t)find_number(s, "grains", 8),
                  .is_program = has_flag(s, "program") ||
                                (find_text(s, "evaluates", NULL) && !has_flag(s, "loss")),
                  .is_eval = find_text(s, "evaluates", NULL) != NULL,
                  .every_steps = (int64_t)find_number(s, "every", 1),
                  .per_node = (int)find_number(s, "per-node", 0),
                  .progress_usec = USEC(find_number(s, "progress", 0)),
                  .steps = (int64_t)find_number(s, "steps", 100),
                  .max_failures = (int)find_number(s, "fails", 3),
                  .grow_interval_usec = USEC(find_number(s, "grow", 600)),
                  .store_patience_usec = USEC(find_number(s, "patience", 3600)),
                  .min = 1,
                  .max = 2,
                  .needs_gpu = has_flag(s, "gpu"),
                  .stop_if_diverging = has_flag(s, "stop-if-diverging"),
                  .keep_last = (int64_t)find_number(s, "keep", 3),
                  .keep_every = (int64_t)find_number(s, "keep-every", 0),
                  .priority = (int)find_number(s, "priority", 0),
                  .arrival = (int64_t)find_number(s, "submitted", 1)};
    COPY(f.resume_uri, find_text(s, "resume", ""));
    COPY(f.submission, find_text(s, "submission", ""));
    COPY(f.of_job, find_text(s, "evaluates", ""));
    COPY(f.refused, find_text(s, "refused", ""));
    trace_put(s->runner, EVENT_SPEC, word(s, 2), 0, NULL, &f, false);
}

static void put_desired(Scenario *s)
{
    static const char *const states[] = {"running", "stopped", "deleted"};
    DesiredRecord d = {.state = (DesiredState)choice(s, word(s, 3), states, 3),
                       .min = (int)find_number(s, "min", 1),
                       .max = (int)find_number(s, "max", 8),
                       .priority = (int)find_number(s, "priority", 0),
                       .target = (int)find_number(s, "target", 0)};
    COPY(d.by, find_text(s, "by", ""));
    trace_put(s->runner, EVENT_DESIRED, word(s, 2), 0, NULL, &d, false);
}

static CordonRecord cordon_of(const Scenario *s, const char *node)
{
    const TraceEntry *entry = trace_find(s->runner, EVENT_CORDON, node, 0, NULL);
    CordonRecord record = entry ? *(const CordonRecord *)entry->record : (CordonRecord){0};
    COPY(record.node, node);
    return record;
}

/* Puts a cordon record. A quarantine and strikes are owned by the machine or a job, anything else by the operator. */
static void put_cordon_record(Scenario *s)
{
    static const char *const modes[] = {"none", "cordon", "drain", "quarantine"};
    double until = find_number(s, "until", 0);
    CordonRecord record = cordon_of(s, word(s, 2));
    CordonCause c = {.mode = (CordonMode)choice(s, find_text(s, "mode", "cordon"), modes, 4),
                     .since_usec = trace_now(s->runner),
                     .until_usec = until > 0 ? TRACE_EPOCH_USEC + USEC(until) : 0};
    COPY(c.reason, find_text(s, "reason", ""));
    COPY(c.by, find_text(s, "by", ""));
    COPY(c.job, find_text(s, "job", ""));
    c.strikes = (int)find_number(s, "strikes", 0);
    if (c.mode == CORDON_QUARANTINE || c.strikes > 0) {
        c.owner = c.job[0] ? CORDON_JOB : CORDON_MACHINE;
        COPY(c.machine_id, find_text(s, "machine", "m"));
    }
    assert_true(cordon_set(&record, &c) >= 0);
    trace_put(s->runner, EVENT_CORDON, record.node, 0, NULL, &record, false);
}

static void uncordon(Scenario *s)
{
    CordonRecord record = cordon_of(s, word(s, 2));
    for (size_t i = record.n_causes; i-- > 0;)
        if (!has_flag(s, "operator") || record.causes[i].owner == CORDON_OPERATOR)
            cordon_drop(&record, i);
    trace_put(s->runner, EVENT_CORDON, record.node, 0, NULL, record.n_causes ? &record : NULL,
              false);
}

/* Makes a ranks record of the node as its daemon would first write it. */
static void begin_ranks(Scenario *s, const char *job, int64_t generation, const char *node,
                        RanksRecord *ret, RankReport reports[RECORD_SLOTS_MAX])
{
    const TraceEntry *world = trace_find(s->runner, EVENT_WORLD, job, 0, NULL);
    const TraceEntry *self = trace_find(s->runner, EVENT_NODE, node, 0, NULL);
    if (!world || !self)
        broken(s, "ranks without world or node");
    *ret = (RanksRecord){.generation = generation, .world_revision = world->mod};
    ret->incarnation = ((NodeRecord *)self->record)->incarnation;
    COPY(ret->node, node);
    const WorldRecord *w = world->record;
    for (int rank = 0; rank < w->size; rank++) {
        size_t run;
        int slot;
        assert_int_equal(world_rank_place(w, rank, &run, &slot), 0);
        if (strcmp(w->runs[run].node, node) == 0)
            reports[ret->n_ranks++] = (RankReport){.slot = slot, .rank = rank};
    }
    ret->ranks = reports;
}

static void change_rank(Scenario *s, RankReport *r)
{
    static const char *const states[] = {"starting", "ready", "running", "exited"};
    uint64_t now = trace_now(s->runner);
    r->state = (RankState)choice(s, word(s, 5), states, 4);
    r->at_usec = now;
    if (r->state >= RANK_STARTING && r->started_usec == 0)
        r->started_usec = now;
    if (r->state == RANK_READY)
        r->ready_usec = now;
    r->exit_code = (int)find_number(s, "code", 0);
    r->unmet = (int)find_number(s, "unmet", 0);
    r->step = (int64_t)find_number(s, "step", (double)r->step);
    r->stage = (int)find_number(s, "stage", r->stage);
    r->unnamed = has_flag(s, "unnamed");
    r->hung = has_flag(s, "hung");
    r->killed = has_flag(s, "killed");
    r->stuck = has_flag(s, "stuck");
    COPY(r->text, find_text(s, "text", ""));
}

static void put_ranks(Scenario *s)
{
    const char *job = word(s, 2), *node = word(s, 4);
    int64_t generation = strtoll(word(s, 3), NULL, 10);
    TraceEntry *entry = trace_find(s->runner, EVENT_RANKS, job, generation, node);
    RankReport reports[RECORD_SLOTS_MAX];
    RanksRecord record;
    if (entry) {
        record = *(RanksRecord *)entry->record;
        memcpy(reports, record.ranks, record.n_ranks * sizeof(RankReport));
        record.ranks = reports;
    } else {
        begin_ranks(s, job, generation, node, &record, reports);
    }
    int slot = (int)find_number(s, "slot", -1);
    for (size_t i = 0; i < record.n_ranks; i++)
        if (slot < 0 || reports[i].slot == slot)
            change_rank(s, &reports[i]);
    record.left |= has_flag(s, "left");
    record.finished |= has_flag(s, "finished");
    if (has_flag(s, "old-killed"))
        record.killed_usec = trace_now(s->runner);
    if (find_text(s, "first", NULL)) {
        record.first_step = (int64_t)find_number(s, "first", 0);
        record.first_step_usec = trace_now(s->runner);
    }
    hang(s, entry, trace_find(s->runner, EVENT_NODE, node, 0, NULL));
    trace_put(s->runner, EVENT_RANKS, job, generation, node, &record, false);
}

static void put_commit(Scenario *s)
{
    CheckpointsRecord record = {0};
    TraceEntry *entry = trace_find(s->runner, EVENT_CHECKPOINTS, word(s, 2), 0, NULL);
    if (entry)
        record = *(CheckpointsRecord *)entry->record;
    CheckpointCommit commit = {.step = strtoll(word(s, 3), NULL, 10),
                               .generation = strtoll(word(s, 4), NULL, 10),
                               .at_usec = trace_now(s->runner)};
    (void)snprintf(commit.uri, sizeof(commit.uri), "file:///c/%lld/manifest.json",
                   (long long)commit.step);
    checkpoints_append(&record, &commit);
    if (find_text(s, "submission", NULL))
        COPY(record.submission, find_text(s, "submission", ""));
    trace_put(s->runner, EVENT_CHECKPOINTS, word(s, 2), 0, NULL, &record, false);
}

static void put_progress(Scenario *s)
{
    ProgressRecord record = {.generation = strtoll(word(s, 3), NULL, 10),
                             .step = strtoll(word(s, 4), NULL, 10),
                             .step_sec = 0.1,
                             .samples_seen = 8 * strtoll(word(s, 4), NULL, 10),
                             .samples_per_sec = 80,
                             .loss = 1.25,
                             .saving_sec = find_number(s, "saving", 0),
                             .at_usec = trace_now(s->runner),
                             .waits_rank = (int)find_number(s, "rank", 0),
                             .diverging_since = (int64_t)find_number(s, "diverging", 0)};
    COPY(record.diverging, find_text(s, "is", ""));
    if (find_text(s, "unsaved", NULL))
        record.unsaved_since_usec = TRACE_EPOCH_USEC + USEC(find_number(s, "unsaved", 0));
    if (find_text(s, "waits", NULL))
        record.waits_since_usec = TRACE_EPOCH_USEC + USEC(find_number(s, "waits", 0));
    COPY(record.save_error, find_text(s, "error", ""));
    trace_put(s->runner, EVENT_PROGRESS, word(s, 2), 0, NULL, &record, false);
}

static void put_request(Scenario *s)
{
    RequestRecord record = {.at_usec = trace_now(s->runner)};
    const TraceEntry *asked = trace_find(s->runner, EVENT_REQUEST, word(s, 2), 0, NULL);
    if (asked)
        record = *(const RequestRecord *)asked->record;
    COPY(record.id, word(s, 2));
    COPY(record.kind, word(s, 3));
    COPY(record.target, word(s, 4));
    COPY(record.answer, find_text(s, "answer", ""));
    COPY(record.submission, find_text(s, "submission", ""));
    COPY(record.commit.uri, find_text(s, "uri", ""));
    record.commit.step = (int64_t)find_number(s, "step", 0);
    record.commit.generation = (int64_t)find_number(s, "generation", 0);
    trace_put(s->runner, EVENT_REQUEST, record.id, 0, NULL, &record, false);
}

static void put_alert(Scenario *s)
{
    const TraceEntry *incident = trace_find(s->runner, EVENT_INCIDENT, word(s, 2), 0, NULL);
    AlertRecord record = {.settled = has_flag(s, "settled")};
    if (!incident)
        broken(s, "no such incident");
    record.incident_usec = ((const IncidentRecord *)incident->record)->at_usec;
    COPY(record.id, word(s, 2));
    trace_put(s->runner, EVENT_ALERT, record.id, 0, NULL, &record, false);
}

static void put_rendezvous(Scenario *s)
{
    RendezvousRecord record = {.address = "127.0.0.1:1"};
    trace_put(s->runner, EVENT_RENDEZVOUS, word(s, 2), strtoll(word(s, 3), NULL, 10), NULL, &record,
              false);
}

static void lead(Scenario *s) { trace_lead(s->runner, strtoll(word(s, 2), NULL, 10)); }
static void take_over(Scenario *s)
{
    read_config(s);
    read_limits(s);
    trace_take_over(s->runner, &s->config, &s->limits, strtoll(word(s, 2), NULL, 10));
}
static void depose(Scenario *s) { trace_lead(s->runner, 0); }
static void refuse(Scenario *s) { trace_set_outcome(s->runner, OUTCOME_REFUSED, false); }
static void unknown(Scenario *s) { trace_set_outcome(s->runner, OUTCOME_UNKNOWN, false); }
static void unknown_done(Scenario *s) { trace_set_outcome(s->runner, OUTCOME_UNKNOWN, true); }
static void history(Scenario *s)
{
    const TraceEntry *entry = trace_find(s->runner, EVENT_PHASE, word(s, 2), 0, NULL);
    if (!entry || !entry->record)
        broken(s, "the job has no phase");
    const PhaseRecord *phase = entry->record;
    for (size_t i = 0; i < phase->n_worlds; i++) {
        const PastWorld *w = &phase->worlds[i];
        begin_line(s);
        say(s, "%s had world %lld: %d ranks from step %lld at %.3f \"%s\"\n", word(s, 2),
            (long long)w->generation, w->size, (long long)w->step,
            (double)(w->decided_usec - TRACE_EPOCH_USEC) / 1e6, w->reason);
    }
}

/* Puts the job's phase with so many verdicts: "done", about steps 1, 2, 3 and so on. */
static void put_verdicts(Scenario *s)
{
    const TraceEntry *entry = trace_find(s->runner, EVENT_PHASE, word(s, 2), 0, NULL);
    if (!entry || !entry->record)
        broken(s, "the job has no phase");
    PhaseRecord phase = *(const PhaseRecord *)entry->record;
    phase.eval.n_results = (size_t)strtoll(word(s, 3), NULL, 10);
    assert_in_range(phase.eval.n_results, 1, RECORD_EVALS_MAX);
    for (size_t i = 0; i < phase.eval.n_results; i++)
        phase.eval.results[i] = (EvalResult){.step = 1 + (int64_t)i, .generation = 1};
    phase.eval.step = (int64_t)phase.eval.n_results;
    trace_put(s->runner, EVENT_PHASE, word(s, 2), 0, NULL, &phase, false);
}

static void harm(Scenario *s)
{
    if (!trace_harm(s->runner, word(s, 1), word(s, 2), word(s, 3)))
        broken(s, word(s, 2));
}

static void tick(Scenario *s) { trace_tick(s->runner); }
static void stall(Scenario *s) { trace_stall(s->runner); }
static void hold(Scenario *s) { trace_hold(s->runner); }
static void outrun(Scenario *s) { trace_outrun(s->runner); }
static void see(Scenario *s) { trace_see(s->runner); }
static void release(Scenario *s)
{
    if (!trace_release(s->runner))
        broken(s, "nothing was decided that is held");
}

static void set_clock(Scenario *s)
{
    trace_set_clock(s->runner, (int64_t)(strtod(word(s, 2), NULL) * 1e6));
}

static void unrank(Scenario *s)
{
    trace_put(s->runner, EVENT_RANKS, word(s, 2), strtoll(word(s, 3), NULL, 10), word(s, 4), NULL,
              false);
}

static const struct {
    const char *name;
    void (*run)(Scenario *s);
} commands[] = {
    {"config", set_config},
    {"reload", reload},
    {"lead", lead},
    {"deposed", depose},
    {"takeover", take_over},
    {"node", put_node},
    {"lease", end_lease},
    {"job", put_job},
    {"want", put_desired},
    {"cordon", put_cordon_record},
    {"uncordon", uncordon},
    {"ranks", put_ranks},
    {"unrank", unrank},
    {"rendezvous", put_rendezvous},
    {"commit", put_commit},
    {"progress", put_progress},
    {"request", put_request},
    {"alert", put_alert},
    {"refuse", refuse},
    {"unknown", unknown},
    {"unknown-done", unknown_done},
    {"history", history},
    {"verdicts", put_verdicts},
    {"lose", harm},
    {"spoil", harm},
    {"newer", harm},
    {"backup", harm},
    {"restore", harm},
    {"again", harm},
    {"survey", survey},
    {"show", show},
    {"tick", tick},
    {"stall", stall},
    {"hold", hold},
    {"release", release},
    {"outrun", outrun},
    {"see", see},
    {"clock", set_clock},
};

static void run_command(Scenario *s, char *line)
{
    split(s, line);
    trace_advance(s->runner, TRACE_EPOCH_USEC + USEC(strtod(word(s, 0), NULL)));
    for (size_t i = 0; i < ELEMENTSOF(commands); i++)
        if (strcmp(commands[i].name, word(s, 1)) == 0) {
            commands[i].run(s);
            return;
        }
    broken(s, "no such command");
}

/* ---- scenarios ---- */

static void append(char **text, size_t *used, const char *more)
{
    size_t n = strlen(more);
    char *grown = realloc(*text, *used + n + 1);
    assert_non_null(grown);
    memcpy(grown + *used, more, n + 1);
    *text = grown;
    *used += n;
}

/* Returns the scenario with the core's present answers in place of the lines that begin with ">". */
static char *retell(Scenario *s, char *text)
{
    char *told = NULL;
    size_t used = 0;
    append(&told, &used, "");
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        s->line++;
        if (line[0] == '>')
            continue;
        append(&told, &used, line);
        append(&told, &used, "\n");
        if (line[0] == '#' || line[0] == '\0')
            continue;
        s->used = 0;
        s->answers[0] = '\0';
        run_command(s, line);
        append(&told, &used, s->answers);
    }
    return told;
}

static void tell_scenario(void **state)
{
    const char *path = *state;
    _cleanup_free_ char *text = NULL, *told = NULL, *original = NULL;
    Error err = ERROR_INIT;
    if (file_read(path, 1 << 20, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    original = strdup(text);

    Scenario *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->file = path;
    s->config = cluster_config_default;
    s->config.incidents_kept = 40;
    s->limits = trace_limits_default;
    assert_int_equal(trace_new(&s->config, &s->limits, say_decision, s, &s->runner), 0);
    told = retell(s, text);
    trace_free(s->runner);
    free(s);

    const char *mode = getenv("SDTRAIN_TRACES");
    if (mode && strcmp(mode, "write") == 0) {
        assert_int_equal(file_write(path, told, strlen(told), 0, &err), 0);
        return;
    }
    if (strcmp(told, original) != 0) {
        size_t same = 0;
        while (told[same] == original[same])
            same++;
        while (same > 0 && told[same - 1] != '\n')
            same--;
        fail_msg("%s\nexpected: %.300s\nthe core: %.300s", path, original + same, told + same);
    }
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(void)
{
    enum { SCENARIOS_MAX = 600, SCENARIOS_MIN = 30 };
    static const char folder[] = "controller/core/test/traces";
    static char *paths[SCENARIOS_MAX];
    static struct CMUnitTest tests[SCENARIOS_MAX];
    size_t n = 0;
    const char *source = getenv("SDTRAIN_SOURCE");
    if (source && chdir(source) < 0)
        return 1;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".txt") && n < SCENARIOS_MAX &&
            asprintf(&paths[n], "%s/%s", folder, e->d_name) > 0)
            n++;
    if (d)
        closedir(d);
    if (n < SCENARIOS_MIN) {
        (void)fprintf(stderr, "%zu traces in %s, expected at least %d\n", n, folder, SCENARIOS_MIN);
        return 1;
    }
    qsort(paths, n, sizeof(paths[0]), compare_paths);
    for (size_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){.name = strrchr(paths[i], '/') + 1,
                                       .test_func = tell_scenario,
                                       .initial_state = paths[i]};
    int failed = _cmocka_run_group_tests("traces", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* trace-runner.c - see trace-runner.h. */
#include "controller/core/test/trace-runner.h"

#include <string.h>

enum { ENTRIES_MAX = 512, STEPS_MAX = 256 };

/* The machine has been up for an hour when a scenario begins, so a time by one clock is far off by the other clock. */
#define BOOTED_USEC (TRACE_EPOCH_USEC - 3600 * USEC_PER_SEC)

struct TraceRunner {
    Cluster *cluster;
    ClusterConfig config;
    ClusterLimits limits;
    TraceWatcher watcher;
    void *userdata;
    uint64_t now_usec, wake_usec;
    int64_t clock_usec; /* how far realtime is ahead of boottime */
    int64_t revision, term;
    int64_t lease; /* the lease of the next record */
    Outcome outcome;
    bool applied;
    bool holds;     /* the next decision is held back */
    bool outruns;   /* the next decision's outcome arrives before its records are shown */
    bool blind;     /* stored records are not shown to the core */
    Decision *held; /* the decision held back; owned; NULL: none */
    TraceEntry kept;
    JobFacts spec; /* the last spec that was put, as the shell keeps it */
    TraceEntry entries[ENTRIES_MAX];
};

const ClusterLimits trace_limits_default = {
    .nodes = 24, .jobs = 8, .reports = 128, .incidents = 64, .requests = 8};

static const size_t record_bytes[EVENT_KINDS] = {
    [EVENT_NODE] = sizeof(NodeRecord),
    [EVENT_CORDON] = sizeof(CordonRecord),
    [EVENT_SPEC] = sizeof(JobFacts),
    [EVENT_DESIRED] = sizeof(DesiredRecord),
    [EVENT_WORLD] = sizeof(WorldRecord),
    [EVENT_PHASE] = sizeof(PhaseRecord),
    [EVENT_RANKS] = sizeof(RanksRecord),
    [EVENT_RENDEZVOUS] = sizeof(RendezvousRecord),
    [EVENT_CHECKPOINTS] = sizeof(CheckpointsRecord),
    [EVENT_PROGRESS] = sizeof(ProgressRecord),
    [EVENT_INCIDENT] = sizeof(IncidentRecord),
    [EVENT_ALERT] = sizeof(AlertRecord),
    [EVENT_REQUEST] = sizeof(RequestRecord),
};

static void *copy_bytes(const void *from, size_t n)
{
    void *copy = malloc(MAX(n, (size_t)1));
    assert(copy);
    memcpy(copy, from, n);
    return copy;
}

static void *copy_record(EventKind kind, const void *record)
{
    void *copy = copy_bytes(record, record_bytes[kind]);
    if (kind == EVENT_WORLD) {
        WorldRecord *world = copy;
        world->runs = copy_bytes(world->runs, world->n_runs * sizeof(WorldRun));
    } else if (kind == EVENT_RANKS) {
        RanksRecord *ranks = copy;
        ranks->ranks = copy_bytes(ranks->ranks, ranks->n_ranks * sizeof(RankReport));
    }
    return copy;
}

static void clear_entry(TraceEntry *entry)
{
    if (entry->record && entry->kind == EVENT_WORLD)
        free(((WorldRecord *)entry->record)->runs);
    if (entry->record && entry->kind == EVENT_RANKS)
        free(((RanksRecord *)entry->record)->ranks);
    free(entry->record);
    memset(entry, 0, sizeof(*entry));
}

static Decision *copy_decision(const Decision *d)
{
    Decision *copy = copy_bytes(d, sizeof(*d));
    if (copy->put_world)
        copy->world.runs = copy_bytes(copy->world.runs, copy->world.n_runs * sizeof(WorldRun));
    return copy;
}

static void free_decision(Decision *d)
{
    if (d && d->put_world)
        free(d->world.runs);
    free(d);
}

static Cluster *new_cluster(const TraceRunner *runner)
{
    void *memory = malloc(cluster_bytes(&runner->limits));
    assert(memory);
    return cluster_init(memory, &runner->limits, &runner->config);
}

int trace_new(const ClusterConfig *config, const ClusterLimits *limits, TraceWatcher watcher,
              void *userdata, TraceRunner **ret)
{
    TraceRunner *runner = calloc(1, sizeof(*runner));
    if (!runner)
        return -ENOMEM;
    runner->config = *config;
    runner->limits = *limits;
    runner->cluster = new_cluster(runner);
    runner->watcher = watcher;
    runner->userdata = userdata;
    runner->now_usec = TRACE_EPOCH_USEC;
    runner->wake_usec = USEC_INFINITY;
    *ret = runner;
    return 0;
}

TraceRunner *trace_free(TraceRunner *runner)
{
    if (!runner)
        return NULL;
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        clear_entry(&runner->entries[i]);
    clear_entry(&runner->kept);
    free_decision(runner->held);
    free(runner->cluster);
    free(runner);
    return NULL;
}

void trace_set_clock(TraceRunner *runner, int64_t ahead_usec) { runner->clock_usec = ahead_usec; }

uint64_t trace_now(const TraceRunner *runner) { return runner->now_usec; }
const Cluster *trace_cluster(const TraceRunner *runner) { return runner->cluster; }
Cluster *trace_cluster_for_survey(TraceRunner *runner) { return runner->cluster; }

size_t trace_entries(TraceRunner *runner, TraceEntry **ret)
{
    *ret = runner->entries;
    return ENTRIES_MAX;
}

TraceEntry *trace_find(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
                       const char *node)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        TraceEntry *e = &runner->entries[i];
        if (e->record && e->kind == kind && strcmp(e->name, name) == 0 &&
            e->generation == generation && strcmp(e->node, node ? node : "") == 0)
            return e;
    }
    return NULL;
}

/* ---- steps ---- */

static void apply(TraceRunner *runner, const Decision *d);
static void step(TraceRunner *runner, const Event *event);

static Event event_now(const TraceRunner *runner, EventKind kind)
{
    return (Event){.kind = kind,
                   .now_usec = runner->now_usec - BOOTED_USEC,
                   .real_usec = runner->now_usec + (uint64_t)runner->clock_usec};
}

static Event event_of(const TraceRunner *runner, const TraceEntry *entry)
{
    Event event = event_now(runner, entry->kind);
    memcpy(event.name, entry->name, sizeof(event.name));
    memcpy(event.node, entry->node, sizeof(event.node));
    event.generation = entry->generation;
    event.revision = entry->mod;
    event.lease = entry->lease;
    event.health = entry->health;
    event.record = entry->health ? NULL : entry->record;
    return event;
}

static int64_t mod_of(TraceRunner *runner, EventKind kind, const char *name)
{
    const TraceEntry *entry = trace_find(runner, kind, name, 0, NULL);
    return entry ? entry->mod : 0;
}

static bool guard_holds(TraceRunner *runner, EventKind kind, const char *name, int64_t revision)
{
    return revision == REVISION_ANY || revision == mod_of(runner, kind, name);
}

static bool guards_hold(TraceRunner *runner, const Decision *d)
{
    bool hold = d->term == runner->term &&
                guard_holds(runner, EVENT_WORLD, d->job, d->world_revision) &&
                guard_holds(runner, EVENT_PHASE, d->job, d->phase_revision) &&
                guard_holds(runner, EVENT_CHECKPOINTS, d->job, d->checkpoints_revision) &&
                guard_holds(runner, EVENT_DESIRED, d->job, d->desired_revision) &&
                (!d->put_spec || guard_holds(runner, EVENT_SPEC, d->job, d->spec_revision));
    if (d->followed[0])
        hold &= guard_holds(runner, EVENT_CHECKPOINTS, d->followed, d->followed_revision);
    if (d->put_incident)
        hold &= guard_holds(runner, EVENT_INCIDENT, d->incident.id, d->incident_revision);
    for (int i = 0; i < d->n_cordons; i++)
        hold &= guard_holds(runner, EVENT_CORDON, d->cordons[i].node, d->cordon_revisions[i]);
    return hold;
}

/* Reads everything and feeds it again, as the shell does after a refusal. */
static void read_again(TraceRunner *runner)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        if (runner->entries[i].record || runner->entries[i].health) {
            Event event = event_of(runner, &runner->entries[i]);
            event.more = true;
            step(runner, &event);
        }
}

static void carry_out(TraceRunner *runner, const Decision *d)
{
    Outcome outcome = runner->outcome;
    bool applied = outcome == OUTCOME_DONE || (outcome == OUTCOME_UNKNOWN && runner->applied);
    runner->outcome = OUTCOME_DONE;
    if (outcome == OUTCOME_DONE && !guards_hold(runner, d)) {
        outcome = OUTCOME_REFUSED;
        applied = false;
    }
    if (applied) {
        runner->revision++;
        runner->blind = runner->outruns;
        apply(runner, d);
        runner->blind = runner->outruns = false;
    }
    if (outcome != OUTCOME_DONE)
        read_again(runner);
    Event event = event_now(runner, EVENT_OUTCOME);
    event.id = d->id;
    event.outcome = outcome;
    event.revision = outcome == OUTCOME_DONE ? runner->revision : 0;
    event.more = true;
    step(runner, &event);
}

static void step(TraceRunner *runner, const Event *first)
{
    static Actions actions; /* static, because it is large */
    Event event = *first;
    for (int i = 0; i < STEPS_MAX; i++) {
        cluster_step(runner->cluster, &event, &actions);
        cluster_check(runner->cluster);
        runner->wake_usec =
            actions.wake_usec == USEC_INFINITY ? USEC_INFINITY : actions.wake_usec + BOOTED_USEC;
        if (event.more)
            return;
        bool read = actions.read;
        if (actions.decision.id) {
            Decision *decision = copy_decision(&actions.decision);
            runner->watcher(runner, decision, runner->userdata);
            if (runner->holds)
                runner->held = TAKE_PTR(decision);
            else
                carry_out(runner, decision);
            runner->holds = false;
            free_decision(decision);
        } else if (!actions.again && !read) {
            return;
        }
        if (read)
            read_again(runner);
        event = event_now(runner, EVENT_TICK);
    }
    assert(false && "the core does not come to rest");
}

void trace_tick(TraceRunner *runner)
{
    Event event = event_now(runner, EVENT_TICK);
    step(runner, &event);
}

void trace_hold(TraceRunner *runner)
{
    assert(!runner->held);
    runner->holds = true;
}

void trace_outrun(TraceRunner *runner) { runner->outruns = true; }

void trace_see(TraceRunner *runner)
{
    read_again(runner);
    trace_tick(runner);
}

bool trace_release(TraceRunner *runner)
{
    Decision *decision = TAKE_PTR(runner->held);
    if (!decision)
        return false;
    carry_out(runner, decision);
    free_decision(decision);
    trace_tick(runner);
    return true;
}

void trace_stall(TraceRunner *runner)
{
    Event event = event_now(runner, EVENT_TICK);
    event.stalled = true;
    step(runner, &event);
}

void trace_advance(TraceRunner *runner, uint64_t until_usec)
{
    for (int i = 0; i < STEPS_MAX && runner->wake_usec <= until_usec; i++) {
        runner->now_usec = MAX(runner->now_usec, runner->wake_usec);
        trace_tick(runner);
    }
    runner->now_usec = MAX(runner->now_usec, until_usec);
}

/* ---- the store ---- */

static TraceEntry *place(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
                         const char *node)
{
    TraceEntry *entry = trace_find(runner, kind, name, generation, node);
    for (size_t i = 0; !entry && i < ENTRIES_MAX; i++)
        if (!runner->entries[i].record)
            entry = &runner->entries[i];
    assert(entry);
    return entry;
}

/* Stores the record at the present revision and shows it to the core. */
static void store(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
                  const char *node, const void *record, bool more)
{
    TraceEntry *entry = place(runner, kind, name, generation, node);
    void *copy = record ? copy_record(kind, record) : NULL; /* record may be the entry's own */
    clear_entry(entry);
    entry->kind = kind;
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    (void)snprintf(entry->node, sizeof(entry->node), "%s", node ? node : "");
    entry->generation = generation;
    entry->mod = runner->revision;
    entry->lease = record ? runner->lease : 0;
    entry->record = copy;
    runner->lease = 0;
    if (kind == EVENT_SPEC && record)
        runner->spec = *(const JobFacts *)entry->record;
    Event event = event_of(runner, entry);
    event.more = more;
    if (!runner->blind)
        step(runner, &event);
}

void trace_hang_on(TraceRunner *runner, int64_t lease) { runner->lease = lease; }

void trace_put(TraceRunner *runner, EventKind kind, const char *name, int64_t generation,
               const char *node, const void *record, bool more)
{
    runner->revision++;
    store(runner, kind, name, generation, node, record, more);
}

static void keep(TraceRunner *runner, EventKind kind, const char *name)
{
    const TraceEntry *entry = trace_find(runner, kind, name, 0, NULL);
    assert(entry);
    clear_entry(&runner->kept);
    runner->kept = *entry;
    runner->kept.record = copy_record(kind, entry->record);
}

/* Finds an entry by its name in a trace. A report's name is <job>/<generation>/<node>. */
static TraceEntry *find_named(TraceRunner *runner, EventKind kind, const char *name)
{
    char job[64], node[64];
    long long generation;
    if (kind != EVENT_RANKS)
        return trace_find(runner, kind, name, 0, NULL);
    assert(sscanf(name, "%63[^/]/%lld/%63s", job, &generation, node) == 3);
    return trace_find(runner, kind, job, generation, node);
}

static void show_again(TraceRunner *runner, TraceEntry *entry)
{
    assert(entry);
    Event event = event_of(runner, entry);
    step(runner, &event);
}

static void spoil(TraceRunner *runner, TraceEntry *entry, RecordHealth health)
{
    assert(entry);
    entry->mod = ++runner->revision;
    entry->health = health;
    show_again(runner, entry);
}

bool trace_harm(TraceRunner *runner, const char *verb, const char *kind, const char *name)
{
    static const struct {
        const char *name;
        EventKind kind;
    } kinds[] = {{"specs", EVENT_SPEC},
                 {"desired", EVENT_DESIRED},
                 {"worlds", EVENT_WORLD},
                 {"phases", EVENT_PHASE},
                 {"checkpoints", EVENT_CHECKPOINTS},
                 {"progress", EVENT_PROGRESS},
                 {"cordons", EVENT_CORDON},
                 {"nodes", EVENT_NODE},
                 {"incidents", EVENT_INCIDENT},
                 {"ranks", EVENT_RANKS},
                 {"alerts", EVENT_ALERT},
                 {"requests", EVENT_REQUEST}};
    size_t i = 0;
    while (i < ELEMENTSOF(kinds) && strcmp(kinds[i].name, kind) != 0)
        i++;
    if (i == ELEMENTSOF(kinds))
        return false;
    if (strcmp(verb, "lose") == 0)
        trace_put(runner, kinds[i].kind, name, 0, NULL, NULL, false);
    else if (strcmp(verb, "backup") == 0)
        keep(runner, kinds[i].kind, name);
    else if (strcmp(verb, "restore") == 0)
        trace_put(runner, kinds[i].kind, name, 0, NULL, runner->kept.record, false);
    else if (strcmp(verb, "again") == 0)
        show_again(runner, find_named(runner, kinds[i].kind, name));
    else
        spoil(runner, find_named(runner, kinds[i].kind, name),
              strcmp(verb, "newer") == 0 ? RECORD_FOREIGN : RECORD_DAMAGED);
    return true;
}

static void put(TraceRunner *runner, EventKind kind, const char *name, const void *record)
{
    store(runner, kind, name, 0, NULL, record, true);
}

static void remove_where(TraceRunner *runner, const char *job, int64_t generation)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        const TraceEntry *e = &runner->entries[i];
        bool of_generation = e->kind == EVENT_RANKS || e->kind == EVENT_RENDEZVOUS;
        bool of_job = of_generation || (e->kind >= EVENT_SPEC && e->kind <= EVENT_PROGRESS);
        if (!e->record || strcmp(e->name, job) != 0 ||
            (generation ? !of_generation || e->generation != generation : !of_job))
            continue;
        TraceEntry copy = *e;
        store(runner, copy.kind, copy.name, copy.generation, copy.node, NULL, true);
    }
}

static void apply(TraceRunner *runner, const Decision *d)
{
    if (d->put_world)
        put(runner, EVENT_WORLD, d->job, &d->world);
    if (d->put_checkpoints)
        put(runner, EVENT_CHECKPOINTS, d->job, &d->checkpoints);
    if (d->put_desired)
        put(runner, EVENT_DESIRED, d->job, &d->desired);
    if (d->put_spec)
        put(runner, EVENT_SPEC, d->job, &runner->spec);
    if (d->put_phase)
        put(runner, EVENT_PHASE, d->job, &d->phase);
    if (d->put_incident)
        put(runner, EVENT_INCIDENT, d->incident.id, &d->incident);
    for (int i = 0; i < d->n_cordons; i++)
        put(runner, EVENT_CORDON, d->cordons[i].node,
            d->cordons[i].n_causes > 0 ? &d->cordons[i] : NULL);
    if (d->remove_incident[0]) {
        put(runner, EVENT_INCIDENT, d->remove_incident, NULL);
        put(runner, EVENT_ALERT, d->remove_incident, NULL);
    }
    if (d->put_request || d->remove_request)
        put(runner, EVENT_REQUEST, d->request.id, d->put_request ? &d->request : NULL);
    if (d->remove_generation || d->remove_job)
        remove_where(runner, d->job, d->remove_job ? 0 : d->remove_generation);
}

/* ---- leadership ---- */

void trace_set_outcome(TraceRunner *runner, Outcome outcome, bool applied)
{
    runner->outcome = outcome;
    runner->applied = applied;
}

void trace_lead(TraceRunner *runner, int64_t term)
{
    runner->term = term;
    Event event = event_now(runner, term ? EVENT_LEADING : EVENT_DEPOSED);
    event.term = term;
    step(runner, &event);
}

void trace_configure(TraceRunner *runner, const ClusterConfig *config)
{
    runner->config = *config;
    cluster_configure(runner->cluster, config);
    trace_tick(runner);
}

void trace_take_over(TraceRunner *runner, const ClusterConfig *config, const ClusterLimits *limits,
                     int64_t term)
{
    free(runner->cluster);
    runner->config = *config;
    runner->limits = *limits;
    runner->cluster = new_cluster(runner);
    read_again(runner);
    trace_lead(runner, term);
}

/* trace-runner.c - see trace-runner.h. */
#include "controller/core/test/trace-runner.h"

#include <string.h>

enum { ENTRIES_MAX = 512, STEPS_MAX = 256 };

struct Replay {
    Cluster *cluster;
    ClusterConfig config;
    ReplayWatcher watcher;
    void *userdata;
    uint64_t now_usec, wake_usec;
    int64_t clock_usec; /* by which realtime is ahead */
    int64_t revision, term;
    Outcome outcome;
    bool applied;
    ReplayEntry kept;
    JobFacts spec; /* the last one that was put, as the shell keeps it */
    ReplayEntry entries[ENTRIES_MAX];
};

static const ClusterLimits limits = {
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

static void clear_entry(ReplayEntry *entry)
{
    if (entry->record && entry->kind == EVENT_WORLD)
        free(((WorldRecord *)entry->record)->runs);
    if (entry->record && entry->kind == EVENT_RANKS)
        free(((RanksRecord *)entry->record)->ranks);
    free(entry->record);
    memset(entry, 0, sizeof(*entry));
}

static Cluster *new_cluster(const ClusterConfig *config)
{
    void *memory = malloc(cluster_bytes(&limits));
    assert(memory);
    return cluster_init(memory, &limits, config);
}

int replay_new(const ClusterConfig *config, ReplayWatcher watcher, void *userdata, Replay **ret)
{
    Replay *replay = calloc(1, sizeof(*replay));
    if (!replay)
        return -ENOMEM;
    replay->config = *config;
    replay->cluster = new_cluster(config);
    replay->watcher = watcher;
    replay->userdata = userdata;
    replay->now_usec = REPLAY_EPOCH_USEC;
    replay->wake_usec = USEC_INFINITY;
    *ret = replay;
    return 0;
}

Replay *replay_free(Replay *replay)
{
    if (!replay)
        return NULL;
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        clear_entry(&replay->entries[i]);
    clear_entry(&replay->kept);
    free(replay->cluster);
    free(replay);
    return NULL;
}

void replay_set_clock(Replay *replay, int64_t ahead_usec) { replay->clock_usec = ahead_usec; }

uint64_t replay_now(const Replay *replay) { return replay->now_usec; }
const Cluster *replay_cluster(const Replay *replay) { return replay->cluster; }
Cluster *replay_cluster_for_survey(Replay *replay) { return replay->cluster; }

size_t replay_entries(Replay *replay, ReplayEntry **ret)
{
    *ret = replay->entries;
    return ENTRIES_MAX;
}

ReplayEntry *replay_find(Replay *replay, EventKind kind, const char *name, int64_t generation,
                         const char *node)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        ReplayEntry *e = &replay->entries[i];
        if (e->record && e->kind == kind && strcmp(e->name, name) == 0 &&
            e->generation == generation && strcmp(e->node, node ? node : "") == 0)
            return e;
    }
    return NULL;
}

/* ---- steps ---- */

static void apply(Replay *replay, const Decision *d);
static void step(Replay *replay, const Event *event);

static Event event_now(const Replay *replay, EventKind kind)
{
    return (Event){.kind = kind,
                   .now_usec = replay->now_usec,
                   .real_usec = replay->now_usec + (uint64_t)replay->clock_usec};
}

static Event event_of(const Replay *replay, const ReplayEntry *entry)
{
    Event event = event_now(replay, entry->kind);
    memcpy(event.name, entry->name, sizeof(event.name));
    memcpy(event.node, entry->node, sizeof(event.node));
    event.generation = entry->generation;
    event.revision = entry->mod;
    event.health = entry->health;
    event.record = entry->health ? NULL : entry->record;
    return event;
}

static int64_t mod_of(Replay *replay, EventKind kind, const char *name)
{
    const ReplayEntry *entry = replay_find(replay, kind, name, 0, NULL);
    return entry ? entry->mod : 0;
}

static bool guard_holds(Replay *replay, EventKind kind, const char *name, int64_t revision)
{
    return revision == REVISION_ANY || revision == mod_of(replay, kind, name);
}

static bool guards_hold(Replay *replay, const Decision *d)
{
    bool hold = d->term == replay->term &&
                guard_holds(replay, EVENT_WORLD, d->job, d->world_revision) &&
                guard_holds(replay, EVENT_PHASE, d->job, d->phase_revision) &&
                guard_holds(replay, EVENT_CHECKPOINTS, d->job, d->checkpoints_revision) &&
                guard_holds(replay, EVENT_DESIRED, d->job, d->desired_revision) &&
                (!d->put_spec || guard_holds(replay, EVENT_SPEC, d->job, d->spec_revision));
    if (d->put_incident)
        hold &= guard_holds(replay, EVENT_INCIDENT, d->incident.id, d->incident_revision);
    for (int i = 0; i < d->n_cordons; i++)
        hold &= guard_holds(replay, EVENT_CORDON, d->cordons[i].node, d->cordon_revisions[i]);
    return hold;
}

/* What the shell does after a refusal: everything is read and fed again. */
static void read_again(Replay *replay)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        if (replay->entries[i].record || replay->entries[i].health) {
            Event event = event_of(replay, &replay->entries[i]);
            event.more = true;
            step(replay, &event);
        }
}

static void carry_out(Replay *replay, const Decision *d)
{
    Outcome outcome = replay->outcome;
    bool applied = outcome == OUTCOME_DONE || (outcome == OUTCOME_UNKNOWN && replay->applied);
    replay->outcome = OUTCOME_DONE;
    if (outcome == OUTCOME_DONE && !guards_hold(replay, d)) {
        outcome = OUTCOME_REFUSED;
        applied = false;
    }
    if (applied) {
        replay->revision++;
        apply(replay, d);
    }
    if (outcome != OUTCOME_DONE)
        read_again(replay);
    Event event = event_now(replay, EVENT_OUTCOME);
    event.id = d->id;
    event.outcome = outcome;
    event.revision = outcome == OUTCOME_DONE ? replay->revision : 0;
    event.more = true;
    step(replay, &event);
}

static void step(Replay *replay, const Event *first)
{
    static Actions actions; /* large */
    Event event = *first;
    for (int i = 0; i < STEPS_MAX; i++) {
        cluster_step(replay->cluster, &event, &actions);
        cluster_check(replay->cluster);
        replay->wake_usec = actions.wake_usec;
        if (event.more)
            return;
        bool read = actions.read;
        if (actions.decision.id) {
            Decision *decision = copy_bytes(&actions.decision, sizeof(Decision));
            if (decision->put_world)
                decision->world.runs =
                    copy_bytes(decision->world.runs, decision->world.n_runs * sizeof(WorldRun));
            replay->watcher(replay, decision, replay->userdata);
            carry_out(replay, decision);
            if (decision->put_world)
                free(decision->world.runs);
            free(decision);
        } else if (!actions.again && !read) {
            return;
        }
        if (read)
            read_again(replay);
        event = event_now(replay, EVENT_TICK);
    }
    assert(false && "the core does not come to rest");
}

void replay_tick(Replay *replay)
{
    Event event = event_now(replay, EVENT_TICK);
    step(replay, &event);
}

void replay_advance(Replay *replay, uint64_t until_usec)
{
    for (int i = 0; i < STEPS_MAX && replay->wake_usec <= until_usec; i++) {
        replay->now_usec = MAX(replay->now_usec, replay->wake_usec);
        replay_tick(replay);
    }
    replay->now_usec = MAX(replay->now_usec, until_usec);
}

/* ---- the store ---- */

static ReplayEntry *place(Replay *replay, EventKind kind, const char *name, int64_t generation,
                          const char *node)
{
    ReplayEntry *entry = replay_find(replay, kind, name, generation, node);
    for (size_t i = 0; !entry && i < ENTRIES_MAX; i++)
        if (!replay->entries[i].record)
            entry = &replay->entries[i];
    assert(entry);
    return entry;
}

/* At the present revision. */
static void store(Replay *replay, EventKind kind, const char *name, int64_t generation,
                  const char *node, const void *record, bool more)
{
    ReplayEntry *entry = place(replay, kind, name, generation, node);
    void *copy = record ? copy_record(kind, record) : NULL; /* record may be the entry's own */
    clear_entry(entry);
    entry->kind = kind;
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    (void)snprintf(entry->node, sizeof(entry->node), "%s", node ? node : "");
    entry->generation = generation;
    entry->mod = replay->revision;
    entry->record = copy;
    if (kind == EVENT_SPEC && record)
        replay->spec = *(const JobFacts *)entry->record;
    Event event = event_of(replay, entry);
    event.more = more;
    step(replay, &event);
}

void replay_put(Replay *replay, EventKind kind, const char *name, int64_t generation,
                const char *node, const void *record, bool more)
{
    replay->revision++;
    store(replay, kind, name, generation, node, record, more);
}

static void keep(Replay *replay, EventKind kind, const char *name)
{
    const ReplayEntry *entry = replay_find(replay, kind, name, 0, NULL);
    assert(entry);
    clear_entry(&replay->kept);
    replay->kept = *entry;
    replay->kept.record = copy_record(kind, entry->record);
}

static void spoil(Replay *replay, EventKind kind, const char *name, RecordHealth health)
{
    ReplayEntry *entry = replay_find(replay, kind, name, 0, NULL);
    assert(entry);
    entry->mod = ++replay->revision;
    entry->health = health;
    Event event = event_of(replay, entry);
    step(replay, &event);
}

bool replay_harm(Replay *replay, const char *verb, const char *kind, const char *name)
{
    static const struct {
        const char *name;
        EventKind kind;
    } kinds[] = {
        {"specs", EVENT_SPEC},    {"desired", EVENT_DESIRED},         {"worlds", EVENT_WORLD},
        {"phases", EVENT_PHASE},  {"checkpoints", EVENT_CHECKPOINTS}, {"progress", EVENT_PROGRESS},
        {"cordons", EVENT_CORDON}};
    size_t i = 0;
    while (i < ELEMENTSOF(kinds) && strcmp(kinds[i].name, kind) != 0)
        i++;
    if (i == ELEMENTSOF(kinds))
        return false;
    if (strcmp(verb, "lose") == 0)
        replay_put(replay, kinds[i].kind, name, 0, NULL, NULL, false);
    else if (strcmp(verb, "backup") == 0)
        keep(replay, kinds[i].kind, name);
    else if (strcmp(verb, "restore") == 0)
        replay_put(replay, kinds[i].kind, name, 0, NULL, replay->kept.record, false);
    else
        spoil(replay, kinds[i].kind, name,
              strcmp(verb, "newer") == 0 ? RECORD_FOREIGN : RECORD_DAMAGED);
    return true;
}

static void put(Replay *replay, EventKind kind, const char *name, const void *record)
{
    store(replay, kind, name, 0, NULL, record, true);
}

static void remove_where(Replay *replay, const char *job, int64_t generation)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        const ReplayEntry *e = &replay->entries[i];
        bool of_generation = e->kind == EVENT_RANKS || e->kind == EVENT_RENDEZVOUS;
        bool of_job = of_generation || (e->kind >= EVENT_SPEC && e->kind <= EVENT_PROGRESS);
        if (!e->record || strcmp(e->name, job) != 0 ||
            (generation ? !of_generation || e->generation != generation : !of_job))
            continue;
        ReplayEntry copy = *e;
        store(replay, copy.kind, copy.name, copy.generation, copy.node, NULL, true);
    }
}

static void apply(Replay *replay, const Decision *d)
{
    if (d->put_world)
        put(replay, EVENT_WORLD, d->job, &d->world);
    if (d->put_checkpoints)
        put(replay, EVENT_CHECKPOINTS, d->job, &d->checkpoints);
    if (d->put_desired)
        put(replay, EVENT_DESIRED, d->job, &d->desired);
    if (d->put_spec)
        put(replay, EVENT_SPEC, d->job, &replay->spec);
    if (d->put_phase)
        put(replay, EVENT_PHASE, d->job, &d->phase);
    if (d->put_incident)
        put(replay, EVENT_INCIDENT, d->incident.id, &d->incident);
    for (int i = 0; i < d->n_cordons; i++)
        put(replay, EVENT_CORDON, d->cordons[i].node,
            d->cordons[i].n_causes > 0 ? &d->cordons[i] : NULL);
    if (d->remove_incident[0]) {
        put(replay, EVENT_INCIDENT, d->remove_incident, NULL);
        put(replay, EVENT_ALERT, d->remove_incident, NULL);
    }
    if (d->put_request || d->remove_request)
        put(replay, EVENT_REQUEST, d->request.id, d->put_request ? &d->request : NULL);
    if (d->remove_generation || d->remove_job)
        remove_where(replay, d->job, d->remove_job ? 0 : d->remove_generation);
}

/* ---- leadership ---- */

void replay_set_outcome(Replay *replay, Outcome outcome, bool applied)
{
    replay->outcome = outcome;
    replay->applied = applied;
}

void replay_lead(Replay *replay, int64_t term)
{
    replay->term = term;
    Event event = event_now(replay, term ? EVENT_LEADING : EVENT_DEPOSED);
    event.term = term;
    step(replay, &event);
}

void replay_configure(Replay *replay, const ClusterConfig *config)
{
    replay->config = *config;
    cluster_configure(replay->cluster, config);
    replay_tick(replay);
}

void replay_take_over(Replay *replay, int64_t term)
{
    free(replay->cluster);
    replay->cluster = new_cluster(&replay->config);
    read_again(replay);
    replay_lead(replay, term);
}

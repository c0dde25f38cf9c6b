/* SPDX-License-Identifier: Apache-2.0 */
/* local-world.c - see local-world.h. */
#include "daemon/world/local-world.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

enum { SPEC_RETRY_MSEC = 500, SECRET_RETRY_MSEC = 100, PROGRAM_LOST_SEC = 10 };

static void read_spec(LocalWorld *local);
static void read_secret(LocalWorld *local);

/* ---- records of a local world ---- */

/* Returns the newest world with the same key of reports. A world whose record was put once more, or the world of a
 * job that was submitted again, has the same key as the world before. So the newest world reports for both worlds.
 * The killed_usec of the newest world shows that the earlier ranks have ended. */
static const LocalWorld *reporter_of(const LocalWorld *local)
{
    const LocalJob *job = local->job;
    if (job->local && job->local->generation == local->generation)
        return job->local;
    const LocalWorld *t = job->over; /* the list begins with the newest */
    while (t && t->generation != local->generation)
        t = t->next;
    assert(t); /* local itself is in the list */
    return t;
}

static char *encode_ranks(LocalWorld *reported)
{
    const Workload *w = reported->job->workload;
    const LocalWorld *local = reporter_of(reported);
    RankReport reports[RECORD_SLOTS_MAX];
    size_t n_done = 0, n_left = 0;
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        const LocalRank *local_rank = &local->local_ranks[i];
        assert(local_rank->slot == local_rank->report.slot);
        assert(local_rank->report.rank >= 0 && local_rank->report.rank < local->world_size);
        assert(!local_rank->pending || local_rank->report.state == RANK_STARTING);
        reports[i] = local_rank->report;
        exit_repair_text(reports[i].text);
        bool ended_well = reports[i].state == RANK_EXITED && reports[i].exit_code == EXIT_DONE;
        n_done += ended_well && strcmp(reports[i].text, "finished") == 0;
        n_left += ended_well && strcmp(reports[i].text, "left") == 0;
    }
    assert(!local->over || !local->killed_usec || local_world_is_dead(local));
    RanksRecord record = {.incarnation = w->needs.incarnation,
                          .generation = local->generation,
                          .world_revision = local->world_revision,
                          .ranks = reports,
                          .n_ranks = local->n_local_ranks,
                          .killed_usec = local->killed_usec,
                          .first_step = local->first_step,
                          .first_step_usec = local->first_step_usec,
                          .left = local->is_program
                                      ? n_left > 0 && n_left + n_done == local->n_local_ranks
                                      : n_left == local->n_local_ranks,
                          .finished = n_done == local->n_local_ranks};
    (void)snprintf(record.node, sizeof(record.node), "%s", w->needs.config->node);
    return ranks_record_encode(&record, NULL);
}

static char *encode_rendezvous(LocalWorld *local)
{
    RendezvousRecord record;
    (void)snprintf(record.address, sizeof(record.address), "%s", local->address);
    return rendezvous_record_encode(&record, NULL);
}

static void on_rendezvous_written(LocalWorld *local)
{
    RendezvousRecord record;
    (void)snprintf(record.address, sizeof(record.address), "%s", local->address);
    /* The job gets the address at once, before the watch shows it. */
    job_set_rendezvous(local->job, local->generation, local->rendezvous.revision, &record);
}

static void forget(LocalWorld *local)
{
    LocalWorld **at = &local->job->over;
    while (*at && *at != local)
        at = &(*at)->next;
    assert(*at && local_world_is_dead(local));
    *at = local->next;
    (void)local_world_free(local); /* always returns NULL */
}

/* Frees a local world that is over once etcd knows that it is dead, and how each of its ranks ended. A rank in a
 * lost slot is reported when etcd knows of that slot, which may be later. */
static void on_reported(LocalWorld *local)
{
    LocalJob *job = local->job;
    if (!local->over || !local->killed_usec || job->local == local || local_world_is_live(local))
        return;
    forget(local);
    if (job->local)
        job_advance(job); /* the job may have waited for this write */
    else
        job_forget_if_idle(job);
}

void local_worlds_forget_reported(LocalJob *job)
{
    for (LocalWorld *t = job->over, *next; t; t = next) {
        next = t->next;
        if (t->report.told && !local_world_is_live(t))
            forget(t);
    }
}

void local_world_report(LocalWorld *local) { record_writer_send(&local->report); }

int64_t local_world_guard_revision(const LocalWorld *local)
{
    assert(local->over || local->world_revision == local->job->world_revision);
    return local->job->world_revision;
}

/* ---- start and end ---- */

LocalWorld *local_world_new(LocalJob *job, const WorldRecord *world, int64_t revision,
                            const PlannedRank *local_ranks, size_t n_local_ranks)
{
    const char *cluster = job->workload->needs.config->cluster;
    assert(!job->local && n_local_ranks > 0 && n_local_ranks <= RECORD_SLOTS_MAX);
    LocalWorld *local = memory_new(LocalWorld);
    *local = (LocalWorld){.job = job,
                          .generation = world->generation,
                          .world_revision = revision,
                          .world_size = world->size,
                          .resume = world->resume,
                          .is_program = !hash_equal(world->program, (Hash){0}),
                          .program = world->program,
                          .n_local_ranks = n_local_ranks};
    memcpy(local->submission, world->submission, sizeof(local->submission));
    for (size_t i = 0; i < n_local_ranks; i++)
        local->local_ranks[i] = (LocalRank){.slot = local_ranks[i].slot,
                                            .pending = true,
                                            .report = {.slot = local_ranks[i].slot,
                                                       .rank = local_ranks[i].rank,
                                                       .state = RANK_STARTING,
                                                       .step = world->resume.step,
                                                       .at_usec = clock_realtime_usec()}};
    record_writer_init(&local->report, local, true, encode_ranks, on_reported);
    (void)key_ranks(cluster, job->name, local->generation, job->workload->needs.config->node,
                    local->report.key);
    record_writer_init(&local->rendezvous, local, false, encode_rendezvous, on_rendezvous_written);
    (void)key_rendezvous(cluster, job->name, local->generation, local->rendezvous.key);
    progress_init(&local->progress, local);
    local->progress.record.committed = world->committed;
    commit_init(&local->commit, local);
    evaluation_init(&local->evaluation, local);
    read_spec(local);
    read_secret(local);
    return local;
}

static void cancel_work(LocalWorld *local)
{
    local->spec_call = etcd_call_free(local->spec_call);
    timer_stop(&local->spec_retry);
    local->secret_call = etcd_call_free(local->secret_call);
    timer_stop(&local->secret_retry);
    explicit_bzero(local->secret, sizeof(local->secret));
    record_writer_clear(&local->rendezvous);
    progress_clear(&local->progress);
    commit_clear(&local->commit);
    evaluation_clear(&local->evaluation);
}

LocalWorld *local_world_free(LocalWorld *local)
{
    if (!local)
        return NULL;
    Workload *w = local->job->workload;
    for (size_t slot = 0; slot < RECORD_SLOTS_MAX; slot++)
        if (w->slots.of[slot] && w->slots.of[slot]->local == local)
            w->slots.of[slot]->local = NULL;
    cancel_work(local);
    record_writer_clear(&local->report);
    free(local->spec);
    free(local);
    return NULL;
}

void local_world_kill(LocalWorld *local, const char *why)
{
    bool changed = false;
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        LocalRank *local_rank = &local->local_ranks[i];
        Rank *rank = slots_rank_of(local, local_rank);
        if (rank)
            rank_kill(rank, "%s", why);
        if (!local_rank->pending)
            continue;
        assert(!rank && local_rank->report.state == RANK_STARTING);
        changed = true;
        local_rank->pending = false;
        local_rank->report.state = RANK_EXITED;
        local_rank->report.exit_code = -SIGKILL;
        local_rank->report.killed = true;
        local_rank->report.at_usec = clock_realtime_usec();
        (void)snprintf(local_rank->report.text, sizeof(local_rank->report.text),
                       "never started: %s", why);
    }
    if (changed && !local->over)
        local_world_report(local);
}

void local_world_end(LocalWorld *local, const char *why)
{
    assert(!local->over && local->job->local != local);
    local->over = true;
    cancel_work(local);
    local->killed_usec = 0;
    log_info("world is over: %s JOB=%s GENERATION=%lld", why, local->job->name,
             (long long)local->generation);
    local_world_kill(local, why);
}

void local_world_refused(LocalWorld *local, const char *key)
{
    if (local->over)
        return; /* the next change of the world's record sends the report again */
    log_warning("%s: refused, the world has moved; killing its ranks JOB=%s GENERATION=%lld", key,
                local->job->name, (long long)local->generation);
    local_world_kill(local, "etcd refused a write: the world has moved");
}

bool local_world_is_dead(const LocalWorld *local)
{
    for (size_t slot = 0; slot < RECORD_SLOTS_MAX; slot++) {
        const Rank *rank = local->job->workload->slots.of[slot];
        if (rank && rank->local == local && !rank->lost)
            return false;
    }
    return true;
}

bool local_world_is_live(const LocalWorld *local)
{
    for (size_t i = 0; i < local->n_local_ranks; i++)
        if (local->local_ranks[i].pending || local->local_ranks[i].report.state != RANK_EXITED)
            return true;
    return false;
}

/* ---- ranks ---- */

LocalRank *local_world_rank_of(LocalWorld *local, const Rank *rank)
{
    assert(rank->local == local && rank->generation == local->generation);
    for (size_t i = 0; i < local->n_local_ranks; i++)
        if (local->local_ranks[i].slot == rank->slot)
            return &local->local_ranks[i];
    return NULL;
}

LocalRank *local_world_rank0(LocalWorld *local)
{
    for (size_t i = 0; i < local->n_local_ranks; i++)
        if (local->local_ranks[i].report.rank == 0)
            return &local->local_ranks[i];
    return NULL;
}

void local_world_rank_failed(LocalWorld *local, LocalRank *local_rank, const char *text)
{
    assert(!local_rank->pending && local_rank->report.state == RANK_STARTING);
    log_error("%s JOB=%s GENERATION=%lld RANK=%d", text, local->job->name,
              (long long)local->generation, local_rank->report.rank);
    local_rank->report.state = RANK_EXITED;
    local_rank->report.exit_code = EXIT_RETRY;
    local_rank->report.at_usec = clock_realtime_usec();
    (void)snprintf(local_rank->report.text, sizeof(local_rank->report.text), "%.255s", text);
}

void local_world_note_exit(LocalWorld *local, const Rank *rank, const ExitVerdict *verdict)
{
    LocalRank *local_rank = local_world_rank_of(local, rank);
    assert(local_rank && !local_rank->pending && local_rank->report.rank == rank->rank);
    assert(rank->process.exited || rank->lost);
    RankReport *report = &local_rank->report;
    if (report->state == RANK_EXITED)
        return; /* the exit was reported when the slot was lost */
    report->state = RANK_EXITED;
    report->exit_code = verdict->code;
    report->hung = report->hung || verdict->hung;
    report->killed = rank->killing && !report->hung && !rank->words.error;
    report->at_usec = clock_realtime_usec();
    (void)snprintf(report->text, sizeof(report->text), "%.255s", verdict->text);
    const WorkloadEvents *events = &local->job->workload->events;
    events->rank_ended(events->userdata, rank, verdict);
    if (!local->over || local->killed_usec)
        local_world_report(local);
}

/* ---- the job file ---- */

static void on_spec_retry(void *userdata)
{
    LocalWorld *local = userdata;
    read_spec(local);
}

static KeyKind kind_of_spec(const LocalWorld *local)
{
    return local->is_program ? KEY_PROGRAMS : KEY_SPECS;
}

static int check_submission(const LocalWorld *local, const char *submission, Error *err)
{
    if (strcmp(submission, local->submission) == 0)
        return 0;
    return error_set(err, -ESTALE, "%s/%s: of another submission than the world",
                     key_kind_name(kind_of_spec(local)), local->job->name);
}

static int take_spec(LocalWorld *local, const EtcdKeyValue *kv, Error *err)
{
    SpecRecord record = {0};
    int r = spec_record_decode(kv->key, kv->value, kv->n_value, &record, err);
    if (r == 0)
        r = check_submission(local, record.submission, err);
    if (r == 0) {
        local->spec = TAKE_PTR(record.spec);
        memcpy(local->sources, record.sources, sizeof(local->sources));
    }
    spec_record_clear(&record);
    return r;
}

/* The job file of a program comes from programs/<job> alone, and must be the one that the leader has seen: specs/<job>
 * may be written by those who may not run programs. */
static int take_program(LocalWorld *local, const EtcdKeyValue *kv, Error *err)
{
    ProgramRecord record = {0};
    int r = program_record_decode(kv->key, kv->value, kv->n_value, &record, err);
    if (r == 0)
        r = check_submission(local, record.submission, err);
    if (r == 0 && !hash_equal(hash_bytes(record.file, strlen(record.file)), local->program))
        r = error_set(err, -ESTALE, "%s: file: not the one that the world was made for", kv->key);
    if (r == 0)
        local->spec = TAKE_PTR(record.file);
    program_record_clear(&record);
    return r;
}

/* Ends the ranks of a world whose program is not in etcd, and stays away. Each node finds that: no node is to blame. */
static void note_lost_program(LocalWorld *local, const Error *problem)
{
    const uint64_t now_usec = clock_boottime_usec();
    if (local->program_lost_usec == 0)
        local->program_lost_usec = now_usec;
    if (now_usec < local->program_lost_usec + PROGRAM_LOST_SEC * USEC_PER_SEC)
        return;
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        Rank *rank = slots_rank_of(local, &local->local_ranks[i]);
        if (!rank || rank->killing)
            continue;
        rank->words.error = true;
        rank->words.exit_code = EXIT_NEVER_RETRY;
        (void)snprintf(rank->words.text, sizeof(rank->words.text), "%.200s", problem->text);
        rank_kill(rank, "its program is not in etcd");
    }
}

static void on_spec(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    LocalWorld *local = userdata;
    LocalJob *job = local->job;
    Error problem = ERROR_INIT;
    local->spec_call = NULL; /* the call frees itself */
    assert(!local->over && !local->spec);

    if (r < 0)
        problem = *err;
    else if (range->n_kvs == 0)
        r = error_set(&problem, -ENOENT, "%s/%s: there is none", key_kind_name(kind_of_spec(local)),
                      job->name);
    else
        r = local->is_program ? take_program(local, &range->kvs[0], &problem)
                              : take_spec(local, &range->kvs[0], &problem);
    if (r < 0) {
        log_warning("%s; reading again JOB=%s", problem.text, job->name);
        if (local->is_program && (r == -ENOENT || r == -ESTALE))
            note_lost_program(local, &problem);
        timer_start(job->workload->needs.timers, &local->spec_retry,
                    SPEC_RETRY_MSEC * USEC_PER_MSEC, on_spec_retry, local);
        return;
    }
    job_advance(job);
}

static void read_spec(LocalWorld *local)
{
    Workload *w = local->job->workload;
    char key[KEY_MAX];
    int r = etcd_get(w->needs.etcd,
                     key_of(w->needs.config->cluster, kind_of_spec(local), local->job->name, key),
                     false, on_spec, local, &local->spec_call);
    if (r < 0)
        timer_start(w->needs.timers, &local->spec_retry, SPEC_RETRY_MSEC * USEC_PER_MSEC,
                    on_spec_retry, local);
}

/* ---- the world's secret ---- */

static void on_secret_retry(void *userdata)
{
    LocalWorld *local = userdata;
    read_secret(local);
}

static void read_secret_again(LocalWorld *local)
{
    timer_start(local->job->workload->needs.timers, &local->secret_retry,
                SECRET_RETRY_MSEC * USEC_PER_MSEC, on_secret_retry, local);
}

/* Takes the secret if it was written together with the world. A newer secret is of a later world, which no watch has
 * shown yet; if only an older secret is there, this world has none. */
static int take_secret(LocalWorld *local, const EtcdRange *range, Error *err)
{
    if (range->n_kvs == 0 || range->kvs[0].mod_revision < local->world_revision) {
        local->has_read_secret = true;
        return 0;
    }
    const EtcdKeyValue *kv = &range->kvs[0];
    if (kv->mod_revision > local->world_revision)
        return error_set(err, -EAGAIN, "%s: of a later world", kv->key);
    SecretRecord record;
    int r = secret_record_decode(kv->key, kv->value, kv->n_value, &record, err);
    if (r < 0)
        return r;
    memcpy(local->secret, record.secret, sizeof(local->secret));
    local->has_read_secret = true;
    secret_record_clear(&record);
    return 0;
}

/* Handles the answer to the read of the secret. A node that may not read secrets has not reported that right, so the
 * leader has made no secret. */
static void on_secret(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    LocalWorld *local = userdata;
    Error problem = ERROR_INIT;
    local->secret_call = NULL; /* the call frees itself */
    assert(!local->over && !local->has_read_secret);
    if (r == -EACCES && !*local->job->workload->needs.knows_secrets) {
        local->has_read_secret = true;
        r = 0;
    } else if (r < 0) {
        problem = *err;
    } else {
        r = take_secret(local, range, &problem);
    }
    if (r < 0) {
        log_warning("%s; reading again JOB=%s", problem.text, local->job->name);
        read_secret_again(local);
        return;
    }
    job_advance(local->job);
}

static void read_secret(LocalWorld *local)
{
    Workload *w = local->job->workload;
    char key[KEY_MAX];
    if (local->world_size == 1) { /* a single rank joins no other rank */
        local->has_read_secret = true;
        return;
    }
    int r = etcd_get(w->needs.etcd,
                     key_of(w->needs.config->cluster, KEY_SECRETS, local->job->name, key), false,
                     on_secret, local, &local->secret_call);
    if (r < 0)
        read_secret_again(local);
}

static void forget_secret(LocalWorld *local)
{
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        const Rank *rank = slots_rank_of(local, &local->local_ranks[i]);
        if (local->local_ranks[i].pending || (rank && !rank->was_assigned))
            return;
    }
    explicit_bzero(local->secret, sizeof(local->secret));
}

static void fill_assign(const LocalWorld *local, const Rank *rank, ChannelAssign *ret)
{
    const WorkloadNeeds *needs = &local->job->workload->needs;
    *ret = (ChannelAssign){.rank = rank->rank,
                           .world_size = local->world_size,
                           .spec = local->spec,
                           .resume_hash = local->resume.hash,
                           .startup_usec = (uint64_t)(needs->config->startup_sec * 1e6),
                           .find = (int)local->resume.find,
                           .resume_step = local->resume.step,
                           .adopt = local->resume.adopt};
    (void)snprintf(ret->job, sizeof(ret->job), "%s", local->job->name);
    (void)snprintf(ret->node, sizeof(ret->node), "%s", needs->config->node);
    (void)snprintf(ret->resume_uri, sizeof(ret->resume_uri), "%s", local->resume.uri);
    (void)snprintf(ret->takes_over, sizeof(ret->takes_over), "%s", local->resume.takes_over);
    (void)snprintf(ret->bind_address, sizeof(ret->bind_address), "%s", needs->config->address);
    (void)snprintf(ret->submission, sizeof(ret->submission), "%s", local->submission);
    (void)snprintf(ret->sources, sizeof(ret->sources), "%s", local->sources);
    (void)snprintf(ret->gpu, sizeof(ret->gpu), "%s", needs->gpus->pci[rank->slot]);
    memcpy(ret->secret, local->secret, sizeof(ret->secret));
}

/* Writes the PCI addresses of the GPUs of this world's slots here, in the order of ranks. A program finds its own in
 * that list by LOCAL_RANK. */
static void write_gpus(const LocalWorld *local, char *ret, size_t size)
{
    const SlotGpus *gpus = local->job->workload->needs.gpus;
    size_t used = 0;
    *ret = '\0';
    for (size_t i = 0; i < local->n_local_ranks && used < size; i++) {
        const char *pci = gpus->pci[local->local_ranks[i].slot];
        if (!*pci) {
            *ret = '\0';
            return;
        }
        used += (size_t)snprintf(ret + used, size - used, "%s%s", i > 0 ? "," : "", pci);
    }
}

void local_world_assign(LocalWorld *local)
{
    if (!local->spec || !local->has_read_secret)
        return;
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        Rank *rank = slots_rank_of(local, &local->local_ranks[i]);
        if (!rank || !rank->said_hello || rank->was_assigned)
            continue;
        ChannelMessage m = {.type = CHANNEL_ASSIGN,
                            .generation = local->generation,
                            .step = local->resume.step};
        fill_assign(local, rank, &m.assign);
        if (local->is_program)
            write_gpus(local, m.assign.gpus, sizeof(m.assign.gpus));
        assert(rank->local == local && rank->rank < local->world_size);
        rank->was_assigned = true;
        rank_send(rank, &m);
        explicit_bzero(&m, sizeof(m)); /* m holds the secret */
    }
    forget_secret(local);
}

/* local-world.c - see local-world.h. */
#include "daemon/world/local-world.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/manager.h"
#include "daemon/world/rank.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

enum { SPEC_RETRY_MSEC = 500, SECRET_RETRY_MSEC = 100 };

static void read_spec(Team *team);
static void read_secret(Team *team);

/* ---- the records it writes ---- */

static int encode_ranks(Team *team, char **ret)
{
    const Manager *m = team->job->manager;
    RankReport reports[RECORD_SLOTS_MAX];
    size_t n_done = 0, n_left = 0;
    for (size_t i = 0; i < team->n_seats; i++) {
        reports[i] = team->seats[i].report;
        exit_repair_text(reports[i].text);
        bool ended_well = reports[i].state == RANK_EXITED && reports[i].exit_code == EXIT_DONE;
        n_done += ended_well && strcmp(reports[i].text, "finished") == 0;
        n_left += ended_well && strcmp(reports[i].text, "left") == 0;
    }
    RanksRecord record = {.incarnation = m->incarnation,
                          .generation = team->generation,
                          .world_revision = team->world_revision,
                          .ranks = reports,
                          .n_ranks = team->n_seats,
                          .killed_usec = team->killed_usec,
                          .first_step = team->first_step,
                          .first_step_usec = team->first_step_usec,
                          .left = n_left == team->n_seats,
                          .finished = n_done == team->n_seats};
    (void)snprintf(record.node, sizeof(record.node), "%s", m->config.node);
    return ranks_record_encode(&record, NULL, ret);
}

static int encode_rendezvous(Team *team, char **ret)
{
    RendezvousRecord record;
    (void)snprintf(record.address, sizeof(record.address), "%s", team->address);
    return rendezvous_record_encode(&record, NULL, ret);
}

static void on_rendezvous_written(Team *team)
{
    RendezvousRecord record;
    (void)snprintf(record.address, sizeof(record.address), "%s", team->address);
    job_set_rendezvous(team->job, team->generation, team->rendezvous.revision,
                       &record); /* no need to wait for the watch */
}

/* A team that is over goes once etcd knows that it is dead, and of each of its ranks that it ended: one
 * in a lost slot says so when etcd knows of the slot, which may be later. */
static void on_reported(Team *team)
{
    Job *job = team->job;
    if (!team->over || !team->killed_usec || job->team == team || team_is_live(team))
        return;
    for (Team **at = &job->over; *at; at = &(*at)->next)
        if (*at == team) {
            *at = team->next;
            break;
        }
    (void)team_free(team); /* NULL always */
    job_forget_if_idle(job);
}

void team_report(Team *team) { post_send(&team->report); }

int64_t team_guard_revision(const Team *team)
{
    return team->over ? team->job->world_revision : team->world_revision;
}

/* ---- made and ended ---- */

int team_new(Job *job, const WorldRecord *world, int64_t revision, const PlanSeat *seats,
             size_t n_seats, Team **ret, Error *err)
{
    const char *cluster = job->manager->config.cluster;
    Team *team = malloc(sizeof(*team));
    if (!team)
        return error_set(err, -ENOMEM, "out of memory for a world");
    *team = (Team){.job = job,
                   .generation = world->generation,
                   .world_revision = revision,
                   .world_size = world->size,
                   .resume = world->resume,
                   .n_seats = n_seats};
    memcpy(team->submission, world->submission, sizeof(team->submission));
    for (size_t i = 0; i < n_seats; i++)
        team->seats[i] = (Seat){.slot = seats[i].slot,
                                .pending = true,
                                .report = {.slot = seats[i].slot,
                                           .rank = seats[i].rank,
                                           .state = RANK_STARTING,
                                           .step = world->resume.step,
                                           .at_usec = clock_realtime_usec()}};
    post_init(&team->report, team, true, encode_ranks, on_reported);
    (void)key_ranks(cluster, job->name, team->generation, job->manager->config.node,
                    team->report.key);
    post_init(&team->rendezvous, team, false, encode_rendezvous, on_rendezvous_written);
    (void)key_rendezvous(cluster, job->name, team->generation, team->rendezvous.key);
    progress_init(&team->progress, team);
    team->progress.record.committed = world->committed;
    commit_init(&team->commit, team);
    read_spec(team);
    read_secret(team);
    rank_log_prune(job->manager->config.log_dir, job->name);
    *ret = team;
    return 0;
}

static void cancel_work(Team *team)
{
    team->spec_call = etcd_call_free(team->spec_call);
    team->spec_retry = sd_event_source_disable_unref(team->spec_retry);
    team->secret_call = etcd_call_free(team->secret_call);
    team->secret_retry = sd_event_source_disable_unref(team->secret_retry);
    explicit_bzero(team->secret, sizeof(team->secret));
    post_clear(&team->rendezvous);
    progress_clear(&team->progress);
    commit_clear(&team->commit);
}

Team *team_free(Team *team)
{
    if (!team)
        return NULL;
    Manager *m = team->job->manager;
    for (size_t slot = 0; slot < RECORD_SLOTS_MAX; slot++)
        if (m->slots[slot] && m->slots[slot]->team == team)
            m->slots[slot]->team = NULL;
    cancel_work(team);
    post_clear(&team->report);
    free(team->spec);
    free(team);
    return NULL;
}

void team_kill(Team *team, const char *why)
{
    bool changed = false;
    for (size_t i = 0; i < team->n_seats; i++) {
        Seat *seat = &team->seats[i];
        Rank *rank = manager_rank_of(team, seat);
        if (rank)
            rank_kill(rank, "%s", why);
        if (!seat->pending)
            continue;
        changed = true;
        seat->pending = false;
        seat->report.state = RANK_EXITED;
        seat->report.exit_code = -SIGKILL;
        seat->report.killed = true;
        seat->report.at_usec = clock_realtime_usec();
        (void)snprintf(seat->report.text, sizeof(seat->report.text), "never started: %s", why);
    }
    if (changed && !team->over)
        team_report(team);
}

void team_end(Team *team, const char *why)
{
    team->over = true;
    cancel_work(team);
    team->killed_usec = 0;
    log_info("world is over: %s JOB=%s GENERATION=%lld", why, team->job->name,
             (long long)team->generation);
    team_kill(team, why);
}

void team_refused(Team *team, const char *key)
{
    if (team->over)
        return; /* the next word about the world sends it again */
    log_warning("%s: refused, the world has moved; killing its ranks JOB=%s GENERATION=%lld", key,
                team->job->name, (long long)team->generation);
    team_kill(team, "etcd refused a write: the world has moved");
}

bool team_is_dead(const Team *team)
{
    for (size_t slot = 0; slot < RECORD_SLOTS_MAX; slot++) {
        const Rank *rank = team->job->manager->slots[slot];
        if (rank && rank->team == team && !rank->lost)
            return false;
    }
    return true;
}

bool team_is_live(const Team *team)
{
    for (size_t i = 0; i < team->n_seats; i++)
        if (team->seats[i].pending || team->seats[i].report.state != RANK_EXITED)
            return true;
    return false;
}

/* ---- seats ---- */

Seat *team_seat_of(Team *team, const Rank *rank)
{
    for (size_t i = 0; i < team->n_seats; i++)
        if (team->seats[i].slot == rank->slot)
            return &team->seats[i];
    return NULL;
}

Seat *team_rank0(Team *team)
{
    for (size_t i = 0; i < team->n_seats; i++)
        if (team->seats[i].report.rank == 0)
            return &team->seats[i];
    return NULL;
}

void team_seat_failed(Team *team, Seat *seat, const char *text)
{
    log_error("%s JOB=%s GENERATION=%lld RANK=%d", text, team->job->name,
              (long long)team->generation, seat->report.rank);
    seat->report.state = RANK_EXITED;
    seat->report.exit_code = EXIT_RETRY;
    seat->report.at_usec = clock_realtime_usec();
    (void)snprintf(seat->report.text, sizeof(seat->report.text), "%.255s", text);
}

void team_note_exit(Team *team, const Rank *rank, const ExitVerdict *verdict)
{
    Seat *seat = team_seat_of(team, rank);
    assert(seat);
    RankReport *report = &seat->report;
    report->state = RANK_EXITED;
    report->exit_code = verdict->code;
    report->hung = report->hung || verdict->hung;
    report->killed = rank->killing && !report->hung && !rank->words.error;
    report->at_usec = clock_realtime_usec();
    (void)snprintf(report->text, sizeof(report->text), "%.255s", verdict->text);
    daemon_metrics_note_exit(rank, verdict);
    if (!team->over || team->killed_usec)
        team_report(team);
}

/* ---- the job file ---- */

static int on_spec_retry(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Team *team = userdata;
    team->spec_retry = sd_event_source_disable_unref(team->spec_retry);
    read_spec(team);
    return 0;
}

static void on_spec(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Team *team = userdata;
    Job *job = team->job;
    Error problem = ERROR_INIT;
    SpecRecord record = {0};
    team->spec_call = NULL; /* it frees itself */

    if (r < 0)
        problem = *err;
    else if (range->n_kvs == 0)
        r = error_set(&problem, -ENOENT, "specs/%s: there is none", job->name);
    else
        r = spec_record_decode(range->kvs[0].key, range->kvs[0].value, range->kvs[0].n_value,
                               &record, &problem);
    if (r == 0 && strcmp(record.submission, team->submission) != 0) {
        r = error_set(&problem, -ESTALE, "specs/%s: of another submission than the world",
                      job->name);
        spec_record_clear(&record);
    }
    if (r < 0) {
        log_warning("%s; reading again JOB=%s", problem.text, job->name);
        manager_add_timer(job->manager, SPEC_RETRY_MSEC * USEC_PER_MSEC, on_spec_retry, team,
                          &team->spec_retry);
        return;
    }
    team->spec = TAKE_PTR(record.spec);
    memcpy(team->sources, record.sources, sizeof(team->sources));
    spec_record_clear(&record);
    job_advance(job);
}

static void read_spec(Team *team)
{
    Manager *m = team->job->manager;
    char key[KEY_MAX];
    int r = etcd_get(m->etcd, key_of(m->config.cluster, KEY_SPECS, team->job->name, key), false,
                     on_spec, team, &team->spec_call);
    if (r < 0)
        manager_add_timer(m, SPEC_RETRY_MSEC * USEC_PER_MSEC, on_spec_retry, team,
                          &team->spec_retry);
}

/* ---- the world's secret ---- */

static int on_secret_retry(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Team *team = userdata;
    team->secret_retry = sd_event_source_disable_unref(team->secret_retry);
    read_secret(team);
    return 0;
}

static void read_secret_again(Team *team)
{
    manager_add_timer(team->job->manager, SECRET_RETRY_MSEC * USEC_PER_MSEC, on_secret_retry, team,
                      &team->secret_retry);
}

/* It was written with the world or it is another world's: a later one's when this one is over and we have not heard
 * yet, and an earlier one's when this one has none. */
static int take_secret(Team *team, const EtcdRange *range, Error *err)
{
    if (range->n_kvs == 0 || range->kvs[0].mod_revision < team->world_revision) {
        team->has_read_secret = true;
        return 0;
    }
    const EtcdKeyValue *kv = &range->kvs[0];
    if (kv->mod_revision > team->world_revision)
        return error_set(err, -EAGAIN, "%s: of a later world", kv->key);
    SecretRecord record;
    int r = secret_record_decode(kv->key, kv->value, kv->n_value, &record, err);
    if (r < 0)
        return r;
    memcpy(team->secret, record.secret, sizeof(team->secret));
    team->has_read_secret = true;
    secret_record_clear(&record);
    return 0;
}

/* A node that may not read secrets has not said that it knows them, and then there is none. */
static void on_secret(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Team *team = userdata;
    Error problem = ERROR_INIT;
    team->secret_call = NULL; /* it frees itself */
    if (r == -EACCES && !team->job->manager->node.knows_secrets) {
        team->has_read_secret = true;
        r = 0;
    } else if (r < 0) {
        problem = *err;
    } else {
        r = take_secret(team, range, &problem);
    }
    if (r < 0) {
        log_warning("%s; reading again JOB=%s", problem.text, team->job->name);
        read_secret_again(team);
        return;
    }
    job_advance(team->job);
}

static void read_secret(Team *team)
{
    Manager *m = team->job->manager;
    char key[KEY_MAX];
    if (team->world_size == 1) { /* it meets nobody */
        team->has_read_secret = true;
        return;
    }
    int r = etcd_get(m->etcd, key_of(m->config.cluster, KEY_SECRETS, team->job->name, key), false,
                     on_secret, team, &team->secret_call);
    if (r < 0)
        read_secret_again(team);
}

static void forget_secret(Team *team)
{
    for (size_t i = 0; i < team->n_seats; i++) {
        const Rank *rank = manager_rank_of(team, &team->seats[i]);
        if (team->seats[i].pending || (rank && !rank->was_assigned))
            return;
    }
    explicit_bzero(team->secret, sizeof(team->secret));
}

void team_assign(Team *team)
{
    const Manager *m = team->job->manager;
    if (!team->spec || !team->has_read_secret)
        return;
    for (size_t i = 0; i < team->n_seats; i++) {
        Rank *rank = manager_rank_of(team, &team->seats[i]);
        if (!rank || !rank->said_hello || rank->was_assigned)
            continue;
        ChannelMessage assign = {.type = CHANNEL_ASSIGN,
                                 .generation = team->generation,
                                 .step = team->resume.step,
                                 .rank = rank->rank,
                                 .world_size = team->world_size,
                                 .spec = team->spec,
                                 .resume_hash = team->resume.hash,
                                 .find = (int)team->resume.find,
                                 .adopt = team->resume.adopt};
        (void)snprintf(assign.job, sizeof(assign.job), "%s", team->job->name);
        (void)snprintf(assign.node, sizeof(assign.node), "%s", m->config.node);
        (void)snprintf(assign.resume_uri, sizeof(assign.resume_uri), "%s", team->resume.uri);
        (void)snprintf(assign.takes_over, sizeof(assign.takes_over), "%s", team->resume.takes_over);
        (void)snprintf(assign.bind_address, sizeof(assign.bind_address), "%s", m->config.address);
        (void)snprintf(assign.submission, sizeof(assign.submission), "%s", team->submission);
        (void)snprintf(assign.sources, sizeof(assign.sources), "%s", team->sources);
        memcpy(assign.secret, team->secret, sizeof(assign.secret));
        rank->was_assigned = true;
        rank_send(rank, &assign);
        explicit_bzero(assign.secret, sizeof(assign.secret));
    }
    forget_secret(team);
}

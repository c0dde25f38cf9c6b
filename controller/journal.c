/* journal.c - see journal.h. */
#include "controller/journal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/message_id.h"

#include <fcntl.h>
#include <string.h>

struct Journal {
    int fd;
    bool warned;
};

int journal_new(const char *path, Journal **ret, Error *err)
{
    _cleanup_(journal_freep) Journal *journal = calloc(1, sizeof(*journal));
    if (!journal)
        return error_set(err, -ENOMEM, "out of memory");
    journal->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (journal->fd < 0)
        return error_errno(err, -errno, "record: cannot open %s", path);
    *ret = TAKE_PTR(journal);
    return 0;
}

Journal *journal_free(Journal *journal)
{
    if (!journal)
        return NULL;
    journal->fd = fd_close(journal->fd);
    free(journal);
    return NULL;
}

static void write_line(Journal *journal, const Event *event, json_t *line)
{
    _cleanup_free_ char *text = NULL;
    int r = -ENOMEM;
    if (line && json_object_set_new(line, "now", json_integer((int64_t)event->now_usec)) == 0 &&
        json_object_set_new(line, "real", json_integer((int64_t)event->real_usec)) == 0)
        text = json_dumps(line, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    if (text) {
        text[n] = '\n'; /* over the NUL */
        r = fd_write_all(journal->fd, text, n + 1);
    }
    if (r < 0 && !journal->warned) {
        journal->warned = true;
        log_warning("events are not recorded any more: %s", strerror(-r));
    }
}

void journal_record_key(Journal *journal, const Event *event, const char *key, const char *value)
{
    if (!journal)
        return;
    _cleanup_json_ json_t *line =
        value ? json_pack("{s:s, s:s, s:I}", "key", key, "value", value, "revision",
                          (json_int_t)event->revision)
              : json_pack("{s:s, s:I}", "key", key, "revision", (json_int_t)event->revision);
    write_line(journal, event, line);
}

void journal_record_event(Journal *journal, const Event *event)
{
    static const char *const outcomes[] = {"done", "refused", "unknown"};
    if (!journal)
        return;
    _cleanup_json_ json_t *line = NULL;
    if (event->kind == EVENT_OUTCOME)
        line = json_pack("{s:s, s:I, s:I}", "outcome", outcomes[event->outcome], "id",
                         (json_int_t)event->id, "revision", (json_int_t)event->revision);
    else if (event->kind == EVENT_LEADING)
        line = json_pack("{s:I}", "leading", (json_int_t)event->term);
    else if (event->kind == EVENT_DEPOSED)
        line = json_pack("{s:b}", "deposed", 1);
    else
        line = json_pack("{s:b, s:b}", "tick", 1, "stalled", event->stalled);
    write_line(journal, event, line);
}

static void say_incident(const IncidentRecord *i)
{
    if (i->state == INCIDENT_OPEN)
        log_event(LOG_LEVEL_WARNING, MESSAGE_INCIDENT,
                  "incident %s: %s: %s JOB=%s GENERATION=%lld NODE=%s RANK=%d STEP=%lld "
                  "LOST_STEPS=%lld",
                  i->id, i->cause, i->evidence, i->job, (long long)i->generation, i->node, i->rank,
                  (long long)i->step, (long long)i->lost_steps);
    else
        log_event(LOG_LEVEL_INFO, MESSAGE_RECOVERED,
                  "incident %s resolved: detect %.3f decide %.3f stop %.3f start %.3f restore %.3f "
                  "replay %.3f s JOB=%s GENERATION=%lld",
                  i->id, i->detect_sec, i->decide_sec, i->stop_sec, i->start_sec, i->restore_sec,
                  i->replay_sec, i->job, (long long)i->generation);
}

static void say_cordon(const CordonRecord *c)
{
    static const char *const words[] = {"strike against", "cordoned", "to be drained",
                                        "quarantined"};
    if (c->mode == CORDON_NONE && c->strikes == 0)
        log_event(LOG_LEVEL_INFO, MESSAGE_NODE_JUDGED, "uncordoned NODE=%s", c->node);
    else
        log_event(LOG_LEVEL_WARNING, MESSAGE_NODE_JUDGED, "%s %s: %s NODE=%s STRIKES=%d",
                  words[c->mode], c->node, c->reason, c->node, c->strikes);
}

void journal_say_decision(const Decision *d)
{
    if (d->put_incident)
        say_incident(&d->incident);
    for (int i = 0; i < d->n_cordons; i++)
        say_cordon(&d->cordons[i]);
    if (d->put_world)
        log_event(LOG_LEVEL_INFO, MESSAGE_WORLD,
                  "world %lld of %d ranks on %zu nodes from step %lld: %s JOB=%s GENERATION=%lld "
                  "STEP=%lld",
                  (long long)d->world.generation, d->world.size, d->world.n_runs,
                  (long long)d->world.resume.step, d->world.reason, d->job,
                  (long long)d->world.generation, (long long)d->world.resume.step);
    if (d->put_phase)
        log_event(LOG_LEVEL_INFO, MESSAGE_PHASE, "%s%s%s: %s JOB=%s GENERATION=%lld",
                  job_phase_name(d->phase.phase), d->phase.go ? ", go" : "",
                  d->phase.leave ? ", leave" : "", d->phase.reason, d->job,
                  (long long)d->phase.generation);
    if (d->remove_generation)
        log_debug("records of generation %lld removed JOB=%s", (long long)d->remove_generation,
                  d->job);
    if (d->remove_job)
        log_info("every record removed JOB=%s", d->job);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c - see diagnosis.h. */
#include "ctl/cluster/diagnosis.h"

#include "base/clock.h"
#include "base/slots.h"
#include "cluster/cordon.h"
#include "cluster/room.h"
#include "controller/rights/rights.h"
#include "ctl/print.h"

#include <stdarg.h>
#include <string.h>

/* Above this size, 1.5 GiB, a warning is due: etcd refuses writes at its quota, which is 2 GiB by default and cannot be
 * queried. */
static const int64_t db_bytes_large = INT64_C(3) << 29;

static void add_wrong(Judgement *j, const char *format, ...) _printf_(2, 3);
static void add_wrong(Judgement *j, const char *format, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    json_array_append_new(j->wrong, json_string(text));
    json_array_append_new(j->advice, json_string(""));
}

/* Sets the advice for the fault that was added last. */
static void advise(Judgement *j, const char *format, ...) _printf_(2, 3);
static void advise(Judgement *j, const char *format, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    json_array_set_new(j->advice, json_array_size(j->advice) - 1, json_string(text));
}

/* Tells whether this is a cluster of `sdctl dev up`, whose nodes are processes of this machine without systemd
 * units. */
static bool is_dev(const Model *m)
{
    bool local = strcmp(m->cluster, "dev") == 0;
    for (size_t i = 0; i < m->n_nodes; i++)
        local = local && strncmp(m->nodes[i].address, "127.", 4) == 0;
    return local;
}

/* ---- etcd ---- */

static void judge_member(const Members *m, const Member *one, Judgement *j)
{
    const EtcdStatus *s = &one->status;
    if (one->r < 0) {
        add_wrong(j, "etcd member %s does not answer: %s", one->endpoint, one->error.text);
        if (m->has_leader && m->n > 2)
            advise(j, "start it before another one fails: without a majority nothing is decided");
        return;
    }
    if (strstr(s->errors, "NOSPACE")) {
        add_wrong(j,
                  "etcd member %s is out of space (%.1f MiB): it takes no writes, so nothing is "
                  "decided",
                  one->endpoint, (double)s->db_bytes / (1 << 20));
        advise(j, "compact and defragment it, then etcdctl alarm disarm; auto-compaction prevents "
                  "it");
    } else if (*s->errors && s->leader != 0) {
        add_wrong(j, "etcd member %s: %s", one->endpoint, s->errors);
        advise(j, "with a CORRUPT alarm replace the member");
    } else if (s->db_bytes > db_bytes_large) {
        add_wrong(j, "etcd member %s: its database has grown to %.1f MiB, of which %.1f are used",
                  one->endpoint, (double)s->db_bytes / (1 << 20),
                  (double)s->db_used_bytes / (1 << 20));
        advise(j, "switch auto-compaction on and run etcdctl defrag: at the quota, 2 GiB by "
                  "default, it takes no writes");
    }
}

void diagnose_etcd(const Members *m, Judgement *j)
{
    if (m->n_answered > 0 && !m->has_leader) {
        add_wrong(j, "etcd has no quorum: %zu of %zu member%s answer%s, and see%s no leader",
                  m->n_answered, m->n, m->n == 1 ? "" : "s", m->n_answered == 1 ? "s" : "",
                  m->n_answered == 1 ? "s" : "");
        advise(j, "start the others: until then nothing is decided and no checkpoint counts; nodes "
                  "train on for their fence_sec");
    }
    for (size_t i = 0; i < m->n; i++)
        judge_member(m, &m->members[i], j);
}

/* ---- the leader ---- */

/* Adds a fault for each right that the leader's role in etcd lacks, as the leader reports in its record. */
static void judge_rights(const Model *m, Judgement *j)
{
    const char *lacks = m->n_candidates ? m->candidates[0].record.lacks : "";
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        const char *name = key_kind_name((KeyKind)kind), *without = rights_without((KeyKind)kind);
        if (!words_have(lacks, name))
            continue;
        if (without)
            add_wrong(j, "the leader may not write %s in etcd and leaves them out: %s", name,
                      without);
        else
            add_wrong(j, "the leader may not write %s in etcd: what it decides with them fails",
                      name);
        advise(j, "/usr/share/sdtrain/etcd-roles brings its role up to date; it looks again every "
                  "ten seconds");
    }
}

/* Adds a fault if the leader makes no decisions for a while. A leader waits like this after several earlier leaders
 * died one after another while the records stayed the same. */
static void judge_standstill(const Model *m, Judgement *j)
{
    char at[TIME_TEXT_BYTES], until[TIME_TEXT_BYTES], text[LEADER_DEATHS_MAX][300] = {"", ""};
    const LeaderRecord *leader = m->n_candidates ? &m->candidates[0].record : NULL;
    if (!leader || leader->still_until_usec == 0)
        return;
    for (size_t i = 0; i < leader->n_before; i++)
        (void)snprintf(text[i], sizeof(text[i]), "%.64s at %s (%s%.160s)", leader->before[i].name,
                       date_text(leader->before[i].at_usec, at),
                       leader->before[i].journal[0] ? "journal " : "no journal",
                       leader->before[i].journal);
    add_wrong(
        j,
        "leader %s decides nothing: %d leaders in a row died on the same records, the last ones "
        "%s%s%s",
        leader->name, leader->deaths, text[0], text[1][0] ? ", then " : "", text[1]);
    advise(j,
           "training goes on; it tries again at %s, when a record of a job or a cordon changes, or "
           "with %s; the last lines of those journals say on what they "
           "died",
           date_text(leader->still_until_usec, until),
           is_dev(m) ? "kill -HUP of it" : "systemctl reload sdcontroller");
}

/* ---- records ---- */

bool job_is_active(const ModelJob *job)
{
    return job->has_world && !model_has_ended(job) && model_phase(job) != PHASE_PENDING;
}

ClusterSlots cluster_slots(const Model *m)
{
    ClusterSlots s = {0};
    for (size_t i = 0; i < m->n_nodes; i++) {
        const NodeRecord *n = &m->nodes[i];
        bool open =
            n->state == NODE_UP && n->verdict <= NODE_SUSPECT && !model_cause(m, n->name, NULL);
        s.total += n->n_slots;
        uint64_t used = 0;
        for (size_t j = 0; j < m->n_jobs; j++)
            for (size_t k = 0; job_is_active(&m->jobs[j]) && k < m->jobs[j].world.n_runs; k++)
                if (strcmp(m->jobs[j].world.runs[k].node, n->name) == 0)
                    used |= m->jobs[j].world.runs[k].slots;
        s.used += __builtin_popcountll(used);
        s.closed += open ? 0 : n->n_slots - __builtin_popcountll(used);
    }
    return s;
}

static void judge_records(const Model *m, Judgement *j)
{
    for (size_t i = 0; i < MIN(m->n_complaints, (size_t)MODEL_COMPLAINTS_MAX); i++) {
        add_wrong(j, "record %s", m->complaints[i]);
        advise(j,
               "a newer version wrote it: update this sdctl; or it is damaged: the leader puts it "
               "back, or an incident says what to do");
    }
    if (m->n_complaints > MODEL_COMPLAINTS_MAX)
        add_wrong(j, "%zu more records cannot be read", m->n_complaints - MODEL_COMPLAINTS_MAX);
}

/* ---- nodes ---- */

static void judge_quarantine(const Model *m, const char *name, const CordonCause *c, Judgement *j)
{
    char until[TIME_TEXT_BYTES];
    const NodeRecord *node = model_node(m, name);
    if (node && !cause_is_of(c, node->machine_id)) {
        add_wrong(j, "machine %s, which was node %s, is in quarantine: %s", c->machine_id, name,
                  c->reason);
        advise(j, "another machine has the name; it stays out under any other, until sdctl node "
                  "uncordon of that name, or --force of this one");
        return;
    }
    if (c->owner == CORDON_JOB && c->until_usec) {
        add_wrong(j, "job %s avoids node %s: %s", c->job, name, c->reason);
        advise(j, "its trainers died there, others' did not; it tries again at %s",
               date_text(c->until_usec, until));
        return;
    }
    add_wrong(j, "node %s is in quarantine: %s", name, c->reason);
    if (c->owner == CORDON_JOB)
        advise(j, "only job %s avoids it; sdctl node uncordon %s lets it try again", c->job, name);
    else if (c->until_usec)
        advise(j, "it ends at %s; sooner with sdctl node uncordon %s",
               date_text(c->until_usec, until), name);
    else
        advise(j, "repair it, then sdctl node uncordon %s", name);
}

static void judge_nodes(const Model *m, Judgement *j)
{
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        for (size_t k = 0; job_is_active(job) && k < job->world.n_runs; k++) {
            const char *node = job->world.runs[k].node;
            if (model_node(m, node))
                continue;
            add_wrong(j, "node %s is missing; job %s has ranks there", node, job->name);
            if (is_dev(m))
                advise(
                    j,
                    "its ranks go elsewhere if there are slots; sdctl dev start %s brings it back",
                    node);
            else
                advise(
                    j,
                    "its ranks go elsewhere if there are slots; on %s: systemctl status sdtraind",
                    node);
        }
    }
    for (size_t i = 0; i < m->n_nodes; i++) {
        const NodeRecord *n = &m->nodes[i];
        if (n->verdict != NODE_HEALTHY) {
            add_wrong(j, "node %s is not healthy: %s", n->name, n->evidence);
            advise(j, "sdctl node status %s says more", n->name);
        }
        if (n->bad_slots) {
            char slots[SLOTS_TEXT_MAX];
            add_wrong(j, "node %s: slots not to be used: %s", n->name,
                      slots_format(n->bad_slots, slots));
            advise(j, "sdctl node status %s says why, and what clears it", n->name);
        }
        if (n->lost_slots) {
            add_wrong(j, "node %s: a process survives SIGKILL; its slot is lost", n->name);
            advise(j, "reboot it, then sdctl node uncordon %s", n->name);
        }
    }
    for (size_t i = 0; i < m->n_cordons; i++)
        for (size_t k = 0; k < m->cordons[i].n_causes; k++)
            if (m->cordons[i].causes[k].mode == CORDON_QUARANTINE)
                judge_quarantine(m, m->cordons[i].node, &m->cordons[i].causes[k], j);
}

static uint64_t lost_usec(const Model *m, const char *node)
{
    uint64_t at = 0;
    for (size_t i = 0; i < m->n_incidents; i++)
        if (strcmp(m->incidents[i].cause, "node-lost") == 0 &&
            strcmp(m->incidents[i].node, node) == 0)
            at = MAX(at, m->incidents[i].at_usec);
    return at;
}

bool judge_is_lost(const Model *m, const char *node)
{
    const HealthRecord *h = model_health(m, node);
    return h && !h->left_usec && !model_node(m, node) && !model_cause(m, node, NULL);
}

/* Adds a fault for each lost node until the node returns, is cordoned or is forgotten. */
static void judge_missing(const Model *m, Judgement *j)
{
    for (size_t i = 0; i < m->n_health; i++) {
        const HealthRecord *h = &m->health[i];
        char heard[TIME_TEXT_BYTES];
        if (!judge_is_lost(m, h->node))
            continue;
        add_wrong(j, "node %s is lost: nobody has heard of it since %s", h->node,
                  date_text(MAX(h->at_usec, lost_usec(m, h->node)), heard));
        if (is_dev(m))
            advise(j,
                   "sdctl dev start %s brings it back; sdctl node forget %s says that it does not "
                   "come back",
                   h->node, h->node);
        else
            advise(j,
                   "on %s: systemctl status sdtraind; journalctl -u sdtraind. sdctl node cordon %s "
                   "says "
                   "that it is known, sdctl node forget %s that it does not come back",
                   h->node, h->node, h->node);
    }
}

/* ---- jobs ---- */

/* Adds a fault if the job has fewer ranks than before and nobody requested fewer. */
static void judge_size(const ModelJob *job, Judgement *j)
{
    const int wanted = job->desired.target > 0 ? job->desired.target : job->desired.max;
    int had = job->world.size;
    for (size_t i = 0; i < job->phase.n_worlds; i++)
        had = MAX(had, job->phase.worlds[i].size);
    had = MIN(had, wanted);
    if (!job->has_desired || job->world.size >= had)
        return;
    add_wrong(j, "job %s runs on %d rank%s; it had %d", job->name, job->world.size,
              job->world.size == 1 ? "" : "s", had);
    advise(j,
           "it grows again by itself when there are slots: sdctl node list shows what is closed");
}

/* Tells whether an incident's text is about a lack of room in a store. Only a person can make room, because the newest
 * keep_last checkpoints are never removed. Trainers of earlier versions report only the operating system's error
 * text. */
static bool lacks_room(const char *text)
{
    static const char *const words[] = {"are missing in ", "has no room for ", "No space left",
                                        "Disk quota exceeded", "QuotaExceeded"};
    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/* Warns if the next save will lack room, before it fails. After it has failed, an incident reports the lack. */
static void judge_room(const ModelJob *job, Judgement *j)
{
    char room[ROOM_TEXT_BYTES];
    const char *advice;
    const ProgressRecord *p = model_progress(job);
    if (!p || p->unsaved_since_usec || !room_describe(p, room, &advice))
        return;
    add_wrong(j, "job %s: %s", job->name, room);
    advise(j, "%s", advice);
}

static void judge_jobs(const Model *m, Judgement *j)
{
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *job = &m->jobs[i];
        if (model_has_lost_spec(job)) {
            char why[MODEL_REASON_BYTES];
            add_wrong(j, "job %s: %s", job->name, model_reason(job, why));
            continue;
        }
        if (!job->has_spec)
            continue;
        if (model_phase(job) == PHASE_FAILED) {
            add_wrong(j, "job %s has failed: %s", job->name, job->phase.reason);
            advise(j, "sdctl job logs %s; sdctl job stop %s says that it has been seen", job->name,
                   job->name);
        } else if (model_phase(job) == PHASE_PENDING) {
            add_wrong(j, "job %s waits: %s", job->name,
                      job->has_phase ? job->phase.reason : "no controller has looked at it yet");
            advise(j, "sdctl node list shows which nodes are taken or closed");
        } else if (job_is_active(job)) {
            judge_size(job, j);
            judge_room(job, j);
        }
    }
    for (size_t i = 0; i < m->n_incidents; i++) {
        const IncidentRecord *n = &m->incidents[i];
        const ModelJob *of = model_job(m, n->job);
        of = of && model_is_incident_of(n, of) ? of : NULL;
        if (n->state != INCIDENT_OPEN || (of && model_phase(of) == PHASE_FAILED))
            continue; /* the incident is over, or its failed job was reported above */
        if (!*n->job && judge_is_lost(m, n->node))
            continue; /* judge_missing() reports the lost node */
        add_wrong(j, "incident %s is open: %s%s%s: %s", n->id, n->cause, *n->node ? " on " : "",
                  n->node, n->evidence);
        if (strcmp(n->cause, "not-admitted") == 0)
            advise(j, "sdctl node list shows them: name them in admit of every controller's "
                      "settings and reload, or stop their sdtraind");
        if (strcmp(n->cause, "node-contested") == 0)
            advise(j,
                   "find out who else writes nodes/%s: another machine of that name, or a holder "
                   "of the shared user; etcd-roles --node and --retire-shared",
                   n->node);
        if (of && lacks_room(n->evidence))
            advise(j, "training goes on unsaved: free what it names in checkpoint.uri, or start "
                      "the job again with a lower checkpoint.keep_last");
        else if (of)
            advise(j, "the job recovers by itself; sdctl job events %s tells the story", n->job);
    }
}

/* Adds a fault for each sink that does not accept its notifications. Only the sink's oldest incident is named. */
static void judge_alerts(const Model *m, Judgement *j)
{
    for (size_t i = 0; i < m->n_incidents; i++) {
        const AlertRecord *alert = model_alert(m, &m->incidents[i]);
        for (size_t k = 0; alert && !alert->settled && k < alert->n_deliveries; k++) {
            const Delivery *d = &alert->deliveries[k];
            bool said = false;
            for (size_t before = 0; before < i; before++) {
                const AlertRecord *other = model_alert(m, &m->incidents[before]);
                for (size_t n = 0; other && !other->settled && n < other->n_deliveries; n++)
                    said |= other->deliveries[n].attempts > 0 &&
                            strcmp(other->deliveries[n].sink, d->sink) == 0;
            }
            if (d->attempts == 0 || said)
                continue;
            add_wrong(j, "sink %s has not taken the page of incident %s in %d tries: %s", d->sink,
                      alert->id, d->attempts, d->text);
            advise(j, "sdctl alerts list shows what waits; sdctl alerts test tries every sink");
        }
    }
}

/* Adds a fault if there are more jobs or nodes than the leader has room for. The leader ignores the surplus, and
 * reports it only in its log. */
static void judge_crowd(const Model *m, Judgement *j)
{
    const Crowd c = model_crowd(m);
    if (c.max_jobs && c.jobs > c.max_jobs) {
        add_wrong(j, "%d jobs are there, and the leader has room for %d (max_jobs)", c.jobs,
                  c.max_jobs);
        advise(j, "sdctl job delete those that have ended (%d), or raise max_jobs", c.ended);
    }
    if (c.max_nodes && c.nodes > c.max_nodes) {
        add_wrong(j, "%d nodes are there, and the leader has room for %d (max_nodes)", c.nodes,
                  c.max_nodes);
        advise(j, "raise max_nodes on every controller and restart them");
    }
}

void diagnose_cluster(const Model *m, Judgement *j)
{
    if (m->n_candidates == 0) {
        add_wrong(j, "no controller leads: nothing is decided; training goes on");
        if (is_dev(m))
            advise(j,
                   "sdctl dev start controller1 brings it back; its log says why it does not lead: "
                   "sdctl dev status");
        else
            advise(j,
                   "systemctl start sdcontroller; journalctl -u sdcontroller says why it does not "
                   "lead");
    }
    judge_rights(m, j);
    judge_standstill(m, j);
    judge_records(m, j);
    judge_crowd(m, j);
    judge_jobs(m, j);
    judge_nodes(m, j);
    judge_missing(m, j);
    judge_alerts(m, j);
}

/* ---- notes ---- */

json_t *judge_notes(const Model *m)
{
    json_t *notes = json_array();
    const NodeRecord *shared = model_shared_user(m);
    if (shared)
        json_array_append_new(
            notes,
            json_sprintf("%s and who else holds etcd's user of all nodes may register nodes of "
                         "any name, and they get ranks: the controllers' admit is open. Give "
                         "each node a user of its own (etcd-roles --node, then "
                         "--retire-shared), or set admit",
                         shared->name));
    return notes;
}

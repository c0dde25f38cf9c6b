/* SPDX-License-Identifier: Apache-2.0 */
/* cluster-decisions.c - decisions about the cluster rather than a job: incidents about nodes, the removal
 * of old incidents, and requests. */
#include "controller/core/decide/cluster-decisions.h"

#include "controller/core/decide/admission.h"
#include "controller/core/decide/cordon-ends.h"
#include "controller/core/decide/stranger.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/machines.h"
#include "controller/core/facts/presence.h"
#include "controller/core/observe/absences.h"
#include "controller/core/observe/tables.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cluster-incident.h"

enum {
    REQUEST_KEPT_SEC = 3600,
    NAMES_BYTES = 160, /* most bytes of the list of names in one incident */
    /* at most this many lost nodes have an incident each; further lost nodes share one incident */
    ABSENCES_MAX = 10,
};

static const char distrust_cause[] = "nodes-unhealthy", many_cause[] = "nodes-lost";

/* Opens, rewrites or resolves the incident that reports a hold. If a new hold begins when another ends, the end of
 * the new hold is written into the open incident, for controllers that have not seen the new hold begin. */
static bool decide_hold_incident(const Cluster *c, Decision *d)
{
    const Incident *open = cluster_incident_find_open(c, hold_cause);
    bool holding = c->now_usec < c->hold_until_usec;
    const uint64_t until_usec = holding ? c->real_usec + (c->hold_until_usec - c->now_usec) : 0;
    if (open && open->record.hold_until_usec + c->config.ttl_usec < until_usec) {
        d->incident = open->record;
        d->incident_revision = open->stamp.mod;
        d->incident.hold_until_usec = until_usec;
        d->incident.hold_nodes = c->hold_nodes;
        d->put_incident = true;
        return true;
    }
    if (holding == (open != NULL) || (!open && !incident_has_place(c)))
        return false;
    if (open) {
        cluster_incident_resolve(c, open, d);
        return true;
    }
    cluster_incident_begin(c, "cluster", hold_cause, d);
    d->incident.hold_until_usec = until_usec;
    d->incident.hold_nodes = c->hold_nodes;
    text_copy(d->incident.evidence, sizeof(d->incident.evidence),
              "more than a quarter of the nodes vanished within one TTL: the store or the network "
              "is suspected, and nobody is replaced until it is known");
    return true;
}

static bool decide_suspected_probes(const Cluster *c, Decision *d)
{
    const Incident *open = cluster_incident_find_open(c, distrust_cause);
    if (c->probes_suspected == (open != NULL) || (!open && !incident_has_place(c)))
        return false;
    if (open) {
        cluster_incident_resolve(c, open, d);
        return true;
    }
    int unhealthy, present;
    health_count(c, &unhealthy, &present);
    cluster_incident_begin(c, "cluster", distrust_cause, d);
    Text t = text_begin(d->incident.evidence, sizeof(d->incident.evidence));
    text_add_int(&t, unhealthy);
    text_add(&t, " of ");
    text_add_int(&t, present);
    text_add(&t, " nodes call themselves unhealthy at once: the probes are suspected, and nobody "
                 "is isolated by them until fewer do");
    return true;
}

/* Whether a machine with this name is in quarantine. Causes of any machine count: another machine under the name
 * does not end the quarantine. */
static bool is_in_quarantine(const Cluster *c, const char *name)
{
    for (int i = 0; i < c->limits.nodes; i++) {
        const CordonRecord *record = &c->cordons[i].record;
        if (!c->nodes[i].cordon_stamp.mod || !text_equal(c->nodes[i].record.name, name))
            continue;
        for (size_t k = 0; k < record->n_causes; k++)
            if (record->causes[k].owner == CORDON_MACHINE &&
                record->causes[k].mode == CORDON_QUARANTINE)
                return true;
    }
    return false;
}

/* Resolves the incident of a node that was isolated while it ran nothing, once the node is let in again. */
static bool decide_unhealthy_incident(const Cluster *c, Decision *d)
{
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *record = &c->incidents[i].record;
        if (!c->incidents[i].used || record->state != INCIDENT_OPEN || record->job[0] ||
            !text_equal(record->cause, cause_name(CAUSE_NODE_UNHEALTHY)))
            continue;
        if (is_in_quarantine(c, record->node))
            continue;
        cluster_incident_resolve(c, &c->incidents[i], d);
        return true;
    }
    return false;
}

static bool is_absence(const Incident *incident)
{
    const IncidentRecord *record = &incident->record;
    return incident->used && record->state == INCIDENT_OPEN && !record->job[0] &&
           text_equal(record->cause, cause_name(CAUSE_NODE_LOST));
}

/* The range of the incident table that holds all open incidents about lost nodes. It shortens the search for the
 * incident of each node. */
typedef struct Absences {
    int first, end;
    int n; /* number of open incidents about lost nodes */
} Absences;

static Absences find_absences(const Cluster *c)
{
    Absences ret = {0};
    for (int i = 0; i < c->limits.incidents; i++) {
        if (!is_absence(&c->incidents[i]))
            continue;
        if (ret.n++ == 0)
            ret.first = i;
        ret.end = i + 1;
    }
    return ret;
}

static const Incident *find_absence(const Cluster *c, Absences open, const CoreNode *node)
{
    assert(open.end <= c->limits.incidents);
    for (int i = open.first; i < open.end; i++)
        if (is_absence(&c->incidents[i]) &&
            text_equal(c->incidents[i].record.node, node->record.name))
            return &c->incidents[i];
    return NULL;
}

/* ---- nodes that are lost ---- */

/* Notes the absence of nodes that host ranks of an active job, but vanished before this controller had seen
 * them. */
static void note_unseen(Cluster *c)
{
    for (int j = 0; j < c->limits.jobs; j++) {
        const CoreJob *job = &c->jobs[j];
        bool active = job->used && phase_is_active(job->phase.phase);
        for (int i = 0; active && i < job->n_runs; i++) {
            CoreNode *node = node_at(c, job_runs(c, job)[i].node);
            if (!node->present && !node->missed)
                node_note_absence(c, node);
        }
    }
}

static bool is_forgotten(const Cluster *c, const char *name)
{
    for (int i = 0; i < c->limits.requests; i++)
        if (c->requests[i].used && text_equal(c->requests[i].record.kind, "forget") &&
            text_equal(c->requests[i].record.target, name))
            return true;
    return false;
}

/* Reads the next name of a list that is separated by ", ". Returns false if the name is empty, cut or too long. */
static bool take_name(const char **at, size_t *left, char ret[NODE_NAME_MAX + 1])
{
    size_t n = 0;
    while (n < *left && (*at)[n] && (*at)[n] != ',')
        n++;
    bool whole = n > 0 && n <= NODE_NAME_MAX && n < *left;
    for (size_t i = 0; whole && i < n; i++)
        ret[i] = (*at)[i];
    ret[whole ? n : 0] = '\0';
    *at += MIN(n + 2, *left);
    *left -= MIN(n + 2, *left);
    return whole;
}

/* Reads the summary of lost nodes, such as "47 more nodes are lost: n13, n14, ...". This leader may never have seen
 * those nodes. The named nodes count as lost until they return; if the list was cut, only the number of further
 * nodes is known. */
static void note_summary(Cluster *c, const IncidentRecord *summary)
{
    const char *at = summary->evidence;
    char name[NODE_NAME_MAX + 1];
    int n_lost = 0, n_named = 0;
    for (; *at >= '0' && *at <= '9' && n_lost < c->limits.nodes; at++)
        n_lost = 10 * n_lost + (*at - '0');
    while (*at && *at != ':')
        at++;
    size_t left = 0;
    at += *at ? 1 + (at[1] == ' ') : 0;
    while (at[left])
        left++;
    left += left > 0 &&
            left + 1 < NAMES_BYTES; /* the list was not cut, so its last name is whole, too */
    while (left > 0) {
        if (!take_name(&at, &left, name))
            continue;
        n_named++;
        int n = node_intern(c, name);
        CoreNode *node = n >= 0 ? node_at(c, n) : NULL;
        if (!node || node->stamp.seen || node->missed || is_forgotten(c, name))
            continue;
        node->missed = true;
        node->vanished_real_usec = summary->at_usec;
    }
    const Absences open = find_absences(c);
    int n_missed = 0;
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        n_missed += node->missed && !node->present && !find_absence(c, open, node);
    }
    c->unnamed_lost = CLAMP(n_lost - MAX(n_named, n_missed), 0, c->limits.nodes);
}

/* True when the node's absence need not be reported: the node is back, or an operator or the leader has cordoned it. */
static bool is_known(const Cluster *c, const CoreNode *node)
{
    return node->present || node_find_cordon(c, node, NULL);
}

static void open_absence(const Cluster *c, const CoreNode *node, Decision *d)
{
    char evidence[RECORD_TEXT_MAX + 1];
    assert(!node->present && node->missed);
    Text t = text_begin(evidence, sizeof(evidence));
    text_add(&t, "its lease ran out");
    text_add(&t, node->ran[0] ? "; it ran " : " while it ran nothing");
    text_add(&t, node->ran);
    node_incident_begin(c, node, CAUSE_NODE_LOST, evidence, d);
    d->incident.severity = node->ran[0] ? SEVERITY_CRITICAL : SEVERITY_WARNING;
    d->incident.at_usec = node->vanished_real_usec;
}

/* Opens, rewrites or resolves the one incident for all lost nodes beyond the first ABSENCES_MAX. */
static bool decide_summary(const Cluster *c, const Incident *summary, int beyond, const char *names,
                           Decision *d)
{
    char evidence[RECORD_TEXT_MAX + 1];
    if (beyond == 0) {
        if (summary)
            cluster_incident_resolve(c, summary, d);
        return summary != NULL;
    }
    Text t = text_begin(evidence, sizeof(evidence));
    text_add_int(&t, beyond);
    text_add(&t, beyond == 1 ? " more node is lost: " : " more nodes are lost: ");
    text_add(&t, names);
    if (!summary && !incident_has_place(c))
        return false;
    if (!summary) {
        cluster_incident_begin(c, "cluster", many_cause, d);
    } else if (text_equal(summary->record.evidence, evidence)) {
        return false;
    } else {
        d->incident = summary->record;
        d->incident_revision = summary->stamp.mod;
        d->put_incident = true;
    }
    text_copy(d->incident.evidence, sizeof(d->incident.evidence), evidence);
    return true;
}

/* Opens an incident for each lost node, whatever the node ran; the recovery of its job is another incident. The
 * incident is resolved when the node is back, is cordoned (so a person has seen it), or is forgotten
 * (decide_forget()). */
static bool decide_absence_incident(Cluster *c, Scratch *s, Decision *d)
{
    char names[NAMES_BYTES];
    const Incident *summary = cluster_incident_find_open(c, many_cause);
    int beyond = 0;
    bool is_unsure = false;
    Text t = text_begin(names, sizeof(names));
    note_unseen(c);
    if (summary && !c->knows_summary)
        note_summary(c, &summary->record);
    c->knows_summary = true;
    const Absences open = find_absences(c);
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        bool known = is_known(c, node);
        if (known ? open.n == 0 : !node->missed)
            continue;
        const Incident *incident = find_absence(c, open, node);
        if (known && incident) {
            cluster_incident_resolve(c, incident, d);
            return true;
        }
        if (known || incident)
            continue;
        if (!node_is_lost(c, s, node)) {
            is_unsure = true;
            continue;
        }
        if (!summary && open.n < ABSENCES_MAX) {
            if (!incident_has_place(c))
                continue;
            open_absence(c, node, d);
            return true;
        }
        text_add(&t, beyond++ ? ", " : "");
        text_add(&t, node->record.name);
    }
    /* While a missing node does not count as lost yet, the incident stays: a new leader must not resolve an incident
     * that it would open again. */
    if (summary && is_unsure)
        return false;
    if (beyond == 0)
        c->unnamed_lost = 0; /* all named nodes are back, so the unnamed nodes count as back */
    return decide_summary(c, summary, beyond + c->unnamed_lost, names, d);
}

static bool has_job(const Cluster *c, const IncidentRecord *record)
{
    for (int i = 0; i < c->limits.jobs; i++)
        /* a job whose spec was not read yet may be any submission */
        if (c->jobs[i].used && (c->jobs[i].spec_stamp.mod && c->jobs[i].facts.submission[0]
                                    ? incident_is_of(record, &c->jobs[i])
                                    : text_equal(c->jobs[i].name, record->job)))
            return true;
    return false;
}

/* True when the job of the record already has a critical incident: failures during a recovery are one outage of the
 * job, for which one critical incident is enough. */
static bool outage_is_critical(const Cluster *c, const IncidentRecord *record)
{
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *other = &c->incidents[i].record;
        if (c->incidents[i].used && other->state == INCIDENT_OPEN &&
            other->severity == SEVERITY_CRITICAL && text_equal(other->job, record->job) &&
            text_equal(other->submission, record->submission))
            return true;
    }
    return false;
}

/* Makes an incident critical after it has been open for escalate_usec. */
static bool decide_escalation(const Cluster *c, Scratch *s, Decision *d)
{
    for (int i = 0; i < c->limits.incidents && c->config.escalate_usec; i++) {
        const Incident *incident = &c->incidents[i];
        const IncidentRecord *record = &incident->record;
        /* Stuck growth and nodes that are not admitted take nothing out of service. */
        if (!incident->used || record->state != INCIDENT_OPEN || outage_is_critical(c, record) ||
            text_equal(record->cause, cause_name(CAUSE_GROWTH_STUCK)) ||
            text_equal(record->cause, admission_cause))
            continue;
        uint64_t at = record->at_usec + c->config.escalate_usec;
        if (at > c->real_usec) {
            (void)cluster_due(c, s, c->now_usec + (at - c->real_usec));
            continue;
        }
        d->incident = *record;
        d->incident.severity = SEVERITY_CRITICAL;
        d->incident_revision = incident->stamp.mod;
        d->put_incident = true;
        return true;
    }
    return false;
}

/* True when an open incident would be opened again at once if it were removed, because its reason lasts. Such an
 * incident is never removed, and is opened only if incident_has_place(). */
static bool lasts(const IncidentRecord *record)
{
    const char *cause = record->cause;
    if (record->state != INCIDENT_OPEN)
        return false;
    if (!record->job[0])
        return !text_equal(cause, cause_name(CAUSE_NODE_UNHEALTHY));
    return cause_ends_no_world(cause);
}

/* Returns the order of removal: first the resolved incidents of which every sink was notified, then other resolved
 * incidents, then open incidents; within each group the oldest incident comes first. */
static int removal_rank(const Cluster *c, const IncidentRecord *record)
{
    if (record->state == INCIDENT_OPEN)
        return lasts(record) ? 3 : 2;
    return !incident_is_notified(c, record);
}

static bool goes_before(const Cluster *c, const IncidentRecord *a, const IncidentRecord *b)
{
    int rank_a = removal_rank(c, a), rank_b = removal_rank(c, b);
    if (rank_a != rank_b)
        return rank_a < rank_b;
    return a->at_usec < b->at_usec;
}

/* Resolves and removes incidents of jobs that no longer exist, and removes the oldest incidents beyond
 * incidents_kept. An incident of which a sink was not yet notified stays as long as there is room. */
static bool decide_incident_cap(const Cluster *c, Decision *d)
{
    const IncidentRecord *first = NULL;
    int n = 0;
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *record = &c->incidents[i].record;
        if (!c->incidents[i].used)
            continue;
        bool orphan = record->job[0] && !has_job(c, record);
        if (orphan && record->state == INCIDENT_OPEN) {
            cluster_incident_resolve(c, &c->incidents[i], d);
            return true;
        }
        if (orphan && incident_is_notified(c, record)) {
            text_copy(d->remove_incident, sizeof(d->remove_incident), record->id);
            return true;
        }
        n++;
        if (!first || goes_before(c, record, first))
            first = record;
    }
    assert((n > 0) == (first != NULL));
    if (n <= c->config.incidents_kept || lasts(first))
        return false;
    if (!(first->state == INCIDENT_RESOLVED && incident_is_notified(c, first)) &&
        n < c->limits.incidents)
        return false;
    text_copy(d->remove_incident, sizeof(d->remove_incident), first->id);
    return true;
}

static const char *refusal_of_request(const Cluster *c, const RequestRecord *request)
{
    const bool job_answers = /* by a decision of its own */
        text_equal(request->kind, "recover") || text_equal(request->kind, "evaluate");
    if (!job_answers && !text_equal(request->kind, "checkpoint"))
        return NULL; /* the node that is asked answers, not the leader */
    for (int i = 0; i < c->limits.jobs; i++) {
        const CoreJob *job = &c->jobs[i];
        if (!job->used || !text_equal(job->name, request->target))
            continue;
        if (request->submission[0] && !text_equal(request->submission, job->facts.submission))
            return "refused: the job was deleted, and submitted again";
        return job_answers || job->phase.go ? NULL : "refused: the job does not train now";
    }
    return "refused: there is no such job";
}

/* Answers the request of an operator who says that a lost node does not come back. sdctl has already removed the
 * node's records. */
static bool decide_forget(const Cluster *c, const Request *request, Decision *d)
{
    const char *answer = "forgotten";
    RequestOutcome outcome = REQUEST_DONE;
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        if (!text_equal(node->record.name, request->record.target))
            continue;
        if (node->present) {
            answer = "refused: the node is here";
            outcome = REQUEST_REFUSED;
        } else if (node_hosts_ranks(c, node))
            return false; /* the node's job is about to go on without the node */
    }
    for (int i = 0; i < c->limits.incidents && outcome == REQUEST_DONE; i++)
        if (is_absence(&c->incidents[i]) &&
            text_equal(c->incidents[i].record.node, request->record.target))
            cluster_incident_resolve(c, &c->incidents[i], d);
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->request.outcome = outcome;
    text_copy(d->request.answer, sizeof(d->request.answer), answer);
    d->put_request = true;
    return true;
}

static bool decide_requests(const Cluster *c, Scratch *s, Decision *d)
{
    for (int i = 0; i < c->limits.requests; i++) {
        const Request *request = &c->requests[i];
        if (!request->used)
            continue;
        if (text_equal(request->record.kind, "forget") && !request->record.answer[0] &&
            decide_forget(c, request, d))
            return true;
        d->request = request->record;
        d->request_revision = request->stamp.mod;
        if (text_equal(request->record.kind,
                       "uncordon")) { /* an uncordon request is only for the log */
            d->remove_request = true;
            return true;
        }
        if (cluster_due(c, s, request->seen_usec + REQUEST_KEPT_SEC * USEC_PER_SEC)) {
            d->remove_request = true;
            return true;
        }
        const char *refusal = refusal_of_request(c, &request->record);
        if (refusal && !request->record.answer[0]) {
            d->request.outcome = REQUEST_REFUSED;
            text_copy(d->request.answer, sizeof(d->request.answer), refusal);
            d->put_request = true;
            return true;
        }
    }
    return false;
}

bool decide_cluster(Cluster *c, Scratch *s, Decision *d)
{
    return decide_hold_incident(c, d) || decide_suspected_probes(c, d) || decide_cordons(c, s, d) ||
           decide_unhealthy_incident(c, d) || decide_absence_incident(c, s, d) ||
           decide_admission(c, s, d) || decide_stranger(c, s, d) || decide_escalation(c, s, d) ||
           decide_incident_cap(c, d) || decide_requests(c, s, d);
}

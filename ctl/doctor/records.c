/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - the checks of `sdctl doctor` that read the records of controllers and nodes. */
#include "ctl/doctor/checks.h"

#include "cluster/room.h"

#include <string.h>

static const char controller_check[] = "controllers", node_check_name[] = "nodes",
                  version_check[] = "versions", lease_check[] = "lease_sec",
                  record_check[] = "records";

static const char one_lease[] =
    "give all controllers and nodes the same lease_sec, and restart those that change";

static void check_version(const char *place, const char *version, Findings *f)
{
    if (strcmp(version, SDTRAIN_VERSION) == 0)
        findings_add(f, FINDING_OK, version_check, place, NULL, "%s, as sdctl", version);
    else
        findings_add(f, FINDING_NOTE, version_check, place, "an upgrade is to be finished some day",
                     "%s; sdctl is of version %s", *version ? version : "not told",
                     SDTRAIN_VERSION);
}

/* Returns the leader's lease_sec, or if it is unknown, the lease_sec of most nodes. */
static int common_lease(const Model *m)
{
    int best = 0;
    size_t most = 0;
    if (m->n_candidates > 0 && m->candidates[0].record.lease_sec > 0)
        return m->candidates[0].record.lease_sec;
    for (size_t i = 0; i < m->n_nodes && most <= m->n_nodes / 2; i++) {
        size_t n = 0;
        for (size_t k = 0; k < m->n_nodes; k++)
            n += m->nodes[k].lease_sec == m->nodes[i].lease_sec;
        if (m->nodes[i].lease_sec > 0 && n > most) {
            most = n;
            best = m->nodes[i].lease_sec;
        }
    }
    return best;
}

static void check_lease(const char *place, int lease_sec, int common, Findings *f)
{
    if (lease_sec == 0)
        findings_add(f, FINDING_NOTE, lease_check, place, NULL, "its version does not tell");
    else if (lease_sec == common)
        findings_add(f, FINDING_OK, lease_check, place, NULL, "%d s", lease_sec);
    else
        findings_add(f, FINDING_WRONG, lease_check, place, one_lease, "%d s; %s %d s", lease_sec,
                     "the others have", common);
}

void check_controllers(const Model *m, Findings *f)
{
    const int common = common_lease(m);
    if (m->n_candidates == 0)
        findings_add(
            f, FINDING_WRONG, controller_check, NULL,
            "systemctl start sdcontroller; journalctl -u sdcontroller says why it does not "
            "lead",
            "nobody leads: nothing is decided");
    for (size_t i = 0; i < m->n_candidates; i++) {
        const LeaderRecord *r = &m->candidates[i].record;
        findings_add(f, FINDING_OK, controller_check, r->name, NULL,
                     i == 0 ? "leads" : "is ready to follow");
        if (*r->lacks)
            findings_add(f, FINDING_WRONG, controller_check, r->name,
                         "/usr/share/sdtrain/etcd-roles brings its role up to date",
                         "may not write in etcd: %s", r->lacks);
        if (i == 0 && r->still_until_usec)
            findings_add(f, FINDING_WRONG, controller_check, r->name,
                         "sdctl cluster status says why", "decides nothing for a while");
    }
    if (m->n_candidates == 1)
        findings_add(f, FINDING_NOTE, controller_check, NULL,
                     "start sdcontroller on a second machine", "no other one is ready to follow");
    const NodeRecord *shared = model_shared_user(m);
    if (shared)
        findings_add(
            f, FINDING_NOTE, controller_check, "admit",
            "/usr/share/sdtrain/etcd-roles --node for each node, then --retire-shared; or set "
            "the controllers' admit",
            "admit is open, and %s has etcd's user of all nodes: who holds it may register "
            "nodes of any name, which get ranks",
            shared->name);
    for (size_t i = 0; i < m->n_candidates; i++) {
        check_version(m->candidates[i].record.name, m->candidates[i].record.version, f);
        check_lease(m->candidates[i].record.name, m->candidates[i].record.lease_sec, common, f);
    }
}

static void check_node(const Model *m, const NodeRecord *n, Findings *f)
{
    if (n->state == NODE_LEFT)
        findings_add(f, FINDING_NOTE, node_check_name, n->name, NULL, "is leaving");
    else if (n->verdict >= NODE_DRAIN)
        findings_add(f, FINDING_WRONG, node_check_name, n->name, "sdctl node check NODE says more",
                     "is not fit: %.300s", n->evidence);
    else if (!model_is_admitted(m, n))
        findings_add(f, FINDING_WRONG, node_check_name, n->name,
                     "name it in the controllers' admit",
                     "gets no ranks: the leader does not take it in");
    else if (model_cause(m, n->name, NULL))
        findings_add(f, FINDING_NOTE, node_check_name, n->name, "sdctl node uncordon NODE",
                     "gets no ranks: %.300s", model_cause(m, n->name, NULL)->reason);
    else
        findings_add(f, FINDING_OK, node_check_name, n->name, NULL, "up");
}

/* Reports a node that has only a record health/<node>, which remains after the node has left. */
static void check_absent(const HealthRecord *h, Findings *f)
{
    if (h->left_usec)
        findings_add(
            f, FINDING_NOTE, node_check_name, h->node,
            "systemctl start sdtraind there; sdctl node forget NODE if it does not come back",
            "has left: its sdtraind was stopped");
    else
        findings_add(
            f, FINDING_WRONG, node_check_name, h->node,
            "is the machine up? systemctl status sdtraind there; sdctl node forget NODE if "
            "it does not come back",
            "is lost: its lease ran out");
}

void check_room(const Model *m, Findings *f)
{
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ProgressRecord *p = model_progress(&m->jobs[i]);
        char room[ROOM_TEXT_BYTES];
        const char *advice;
        if (!p)
            continue;
        const bool is_short = room_describe(p, room, &advice);
        if (*room)
            findings_add(f, is_short ? FINDING_WRONG : FINDING_OK, "room", m->jobs[i].name, advice,
                         "%s", room);
    }
}

void check_node_records(const Model *m, Findings *f)
{
    const int common = common_lease(m);
    if (m->n_nodes == 0)
        findings_add(f, FINDING_WRONG, node_check_name, NULL,
                     "start sdtraind on the nodes; is --cluster (SDTRAIN_CLUSTER) right?",
                     "there is none in cluster %s", m->cluster);
    for (size_t i = 0; i < m->n_nodes; i++)
        check_node(m, &m->nodes[i], f);
    for (size_t i = 0; i < m->n_health; i++)
        if (!model_node(m, m->health[i].node))
            check_absent(&m->health[i], f);
    for (size_t i = 0; i < m->n_nodes; i++)
        check_version(m->nodes[i].name, m->nodes[i].version, f);
    for (size_t i = 0; i < m->n_nodes; i++)
        check_lease(m->nodes[i].name, m->nodes[i].lease_sec, common, f);
    for (size_t i = 0; i < MIN(m->n_complaints, (size_t)MODEL_COMPLAINTS_MAX); i++)
        findings_add(f, FINDING_WRONG, record_check, NULL,
                     "another version wrote it, or it is damaged", "%s", m->complaints[i]);
}

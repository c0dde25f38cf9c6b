/* SPDX-License-Identifier: Apache-2.0 */
/* cluster-incident.c - see cluster-incident.h. */
#include "controller/core/write/cluster-incident.h"

#include "controller/core/state/text-buffer.h"

#include <string.h>

void cluster_incident_resolve(const Cluster *c, const Incident *incident, Decision *d)
{
    assert(incident->used && incident->record.state == INCIDENT_OPEN);
    d->incident = incident->record;
    d->incident.state = INCIDENT_RESOLVED;
    d->incident.resolved_usec = c->real_usec;
    d->incident_revision = incident->stamp.mod;
    d->put_incident = true;
}

void cluster_incident_begin(const Cluster *c, const char *about, const char *cause, Decision *d)
{
    assert(!d->put_incident && cause[0]);
    memset(&d->incident, 0, sizeof(d->incident));
    Text id = text_begin(d->incident.id, sizeof(d->incident.id));
    text_add(&id, about);
    text_add(&id, "-");
    text_add_int(&id, c->seen_revision);
    text_copy(d->incident.cause, sizeof(d->incident.cause), cause);
    d->incident.severity = SEVERITY_CRITICAL;
    d->incident.rank = -1;
    d->incident.at_usec = c->real_usec;
    d->incident.detect_sec = d->incident.decide_sec = d->incident.stop_sec = -1;
    d->incident.start_sec = d->incident.restore_sec = d->incident.replay_sec = -1;
    d->put_incident = true;
}

void node_incident_begin(const Cluster *c, const CoreNode *node, Cause cause, const char *evidence,
                         Decision *d)
{
    char about[NODE_NAME_MAX + 8];
    Text t = text_begin(about, sizeof(about));
    text_add(&t, "node-");
    text_add(&t, node->record.name);
    cluster_incident_begin(c, about, cause_name(cause), d);
    text_copy(d->incident.node, sizeof(d->incident.node), node->record.name);
    text_copy(d->incident.evidence, sizeof(d->incident.evidence), evidence);
}

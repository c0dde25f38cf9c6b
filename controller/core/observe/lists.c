/* SPDX-License-Identifier: Apache-2.0 */
/* lists.c - see lists.h. */
#include "controller/core/observe/lists.h"

#include "cluster/admission.h"
#include "cluster/cost.h"
#include "controller/core/observe/records.h"

void node_admit(const Cluster *c, CoreNode *node)
{
    node->admitted = admission_allows(c->config.admit, node->record.name, node->record.machine_id);
}

/* A node that a new list admits counts from now on. After such a change the incident of admission.c needs no quiet
 * time. */
void admission_update(Cluster *c)
{
    c->uninvited_usec = 0;
    for (int i = 0; i < c->limits.nodes; i++) {
        CoreNode *node = node_at(c, i);
        if (!node->used || node->stamp.seen == 0)
            continue;
        node_admit(c, node);
        for (int j = 0;
             node->present && node->admitted && node->record.n_runs > 0 && j < c->limits.jobs; j++)
            if (c->jobs[j].used)
                lost_observe_runs(job_at(c, j), &node->record);
    }
}

void node_price(const Cluster *c, CoreNode *node)
{
    node->price =
        c->config.prices[0] ? cost_find_price(c->config.prices, node->record.price_class) : 0;
}

void cost_update(Cluster *c)
{
    for (int i = 0; i < c->limits.nodes; i++)
        if (c->nodes[i].used)
            node_price(c, node_at(c, i));
}

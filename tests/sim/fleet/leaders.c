/* SPDX-License-Identifier: Apache-2.0 */
/* leaders.c - see fleet.h: how a test reads the state of one controller, and configures it. */
#include "tests/sim/fleet/fleet-internal.h"
#include "tests/sim/seams/loop.h"

#include <stdio.h>

const Cluster *fleet_core(int controller)
{
    sd_event *loop;
    const Leader *leader = fleet_leader_of(controller, &loop);
    assert(leader);
    return leader_view(leader).cluster;
}

bool fleet_stands_still(int controller)
{
    sd_event *loop;
    const Leader *leader = fleet_leader_of(controller, &loop);
    return leader && leader_view(leader).is_still;
}

void fleet_configure(int controller, const ClusterConfig *core)
{
    sd_event *loop;
    Leader *leader = fleet_leader_of(controller, &loop);
    LeaderSettings settings = {.core = *core};
    LeaderRecord *introduction = &settings.introduction;
    (void)snprintf(introduction->name, sizeof(introduction->name), "c%d", controller);
    fleet_say("c%d: reads its settings again", controller);
    sd_event *previous = loop_enter(loop);
    leader_configure(leader, &settings);
    (void)loop_enter(previous);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* testing-cordon.c - see testing-scenario.h: prints what a decision does to a cordon. */
#include "controller/core/test/testing-scenario.h"

#include <string.h>

void log_cordon(Scenario *s, const CordonRecord *record, int changed)
{
    static const char *const mode[] = {"strike", "cordon", "drain", "quarantine"};
    begin_line(s);
    if (changed < 0) {
        say(s, "uncordon %s", record->node);
        for (size_t i = 0; i < record->n_causes; i++)
            say(s, "%s%s %s", i ? ", " : ", left: ", mode[record->causes[i].mode],
                record->causes[i].reason);
        say(s, "\n");
        return;
    }
    const CordonCause *c = &record->causes[changed];
    say(s, "%s %s", mode[c->mode], record->node);
    if (c->job[0] && c->mode != CORDON_NONE)
        say(s, " for job %s", c->job);
    if (strlen(c->machine_id) == 32)
        say(s, " machine %.4s", c->machine_id);
    if (c->strikes)
        say(s, " strikes=%d", c->strikes);
    if (c->until_usec)
        say(s, " until=%.0f", (double)(c->until_usec - TRACE_EPOCH_USEC) / 1e6);
    say(s, " \"%s\"", c->reason);
    if (record->n_causes > 1)
        say(s, " beside %zu", record->n_causes - 1);
    say(s, "\n");
}

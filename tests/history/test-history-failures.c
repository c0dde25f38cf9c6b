/* SPDX-License-Identifier: Apache-2.0 */
/* test-history-failures.c - what a failure may cost a job, in the history of test-history.c. */
#include "tests/history/testing-story.h"

#include <string.h>

/* ---- what uses a failure up: I7 ---- */

/* The newest commit does not verify: world 2 goes on from the one before, or tries it again. */
static void fails_for_a_commit(Story *s, bool strikes_out, int failures)
{
    story_add_commit(s, 10);
    s->phase.failures_without_progress = 1;
    story_put_phase(s);
    story_commit(s);
    (void)snprintf(s->incident.cause, sizeof(s->incident.cause), "checkpoint-corrupt");
    (void)snprintf(s->world.incident, sizeof(s->world.incident), "%s", s->incident.id);
    s->checkpoints.commits[1].struck_out = strikes_out;
    s->phase.failures_without_progress = failures;
    story_put_incident(s);
    story_put_checkpoints(s);
    story_next_world(s, PHASE_RECOVERING);
    story_commit(s);
}

static void commit_is_struck_out(Story *s) { fails_for_a_commit(s, true, 1); }

static void struck_out_is_a_failure(Story *s) { fails_for_a_commit(s, true, 2); }

static void failures_skip_one(Story *s)
{
    s->phase.failures_without_progress = 2;
    story_recovers(s);
}

static void failure_is_not_counted(Story *s) { fails_for_a_commit(s, false, 1); }

static const struct {
    void (*tell)(Story *s);
    const char *invariant, *says; /* NULL: it is well */
} stories[] = {
    {commit_is_struck_out, NULL, NULL},
    {struck_out_is_a_failure, "I7", "for a commit that is struck out"},
    {failures_skip_one, "I7", "had 0 failures, and has 2"},
    {failure_is_not_counted, "I7", "checkpoint-corrupt of a is no failure"},
};

static void test_failures(void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(stories); i++) {
        assert_int_equal(story_begin(state), 0);
        Story *s = *state;
        stories[i].tell(s);
        const bool well = !stories[i].says;
        if (well ? s->n_said > 0
                 : s->n_said == 0 || strcmp(s->invariant, stories[i].invariant) != 0 ||
                       !strstr(s->said, stories[i].says))
            fail_msg("story %zu: %s: %s", i, s->invariant, s->said);
        (void)story_end(state); /* 0 always */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

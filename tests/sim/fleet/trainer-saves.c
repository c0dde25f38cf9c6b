/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-saves.c - see trainer.h: checkpoints of a world, and the daemon's verdicts on them. */
#include "tests/sim/fleet/trainer-internal.h"

#include "protocol/exit-code.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"

#include <stdio.h>
#include <string.h>

enum { SAVE_TRIES = 3 }; /* attempts to save a job's or a world's last checkpoint */

static void on_save(void *userdata);

void ring_begin_save(Ring *ring)
{
    ring->saves = true;
    ring->of[0]->must_save = false;
    ring->saving = ring->step;
    trainer_after(&ring->save_timer, trainer_plan(ring->job)->plan.save_usec, on_save, ring);
}

static void save_fails(Ring *ring)
{
    ring->n_failed_saves++;
    checks_save_fails(ring->job, ring->submission);
    if (ring->unsaved_usec == 0)
        ring->unsaved_usec = loops_now_usec();
    ring->saves = false;
    if (!ring->ends)
        return; /* training continues, and the next save may succeed */
    if (++ring->n_tries == SAVE_TRIES)
        trainer_fail(ring->of[0], EXIT_STORE_UNREACHABLE, "the last checkpoint could not be saved");
    else
        ring_begin_save(ring);
}

/* Reports the saved checkpoint to the daemon. Tries again until the daemon, which may be frozen, reads the message. */
static void tell_saved(void *userdata)
{
    Ring *ring = userdata;
    char uri[MANIFEST_URI_BYTES];
    ChannelMessage m = {.type = CHANNEL_SAVED, .step = ring->saving};
    (void)snprintf(m.uri, sizeof(m.uri), "%s", manifest_uri(ring->written, uri));
    m.hash = m.digest = hash_bytes(&ring->written, sizeof(ring->written));
    if (trainer_lives(ring->of[0]) &&
        (trainer_is_halted(ring->of[0]) || !trainer_say(ring->of[0], &m)))
        trainer_after_msec(&ring->save_timer, AGAIN_MSEC, tell_saved, ring);
}

static void on_save(void *userdata)
{
    Ring *ring = userdata;
    Trainer *rank0 = ring->of[0];
    if (!trainer_lives(rank0))
        return;
    if (trainer_is_halted(rank0)) {
        trainer_after_msec(&ring->save_timer, AGAIN_MSEC, on_save, ring);
        return;
    }
    if (trainer_is_out(rank0)) {
        if (trainer_has_patience(&ring->asking_usec))
            trainer_after_msec(&ring->save_timer, STORE_AGAIN_MSEC, on_save, ring);
        else
            save_fails(ring);
        return;
    }
    ring->asking_usec = 0;
    if (trainer_plan(ring->job)->taken_over) { /* the owner is checked before a manifest is put */
        trainer_fail(rank0, EXIT_NOT_OWNER, TRAINERS_OTHER_OWNER);
        return;
    }
    Manifest manifest = {.generation = ring->generation,
                         .parent = ring->parent,
                         .first = ring->committed + 1,
                         .last = ring->saving};
    memcpy(manifest.job, ring->job, sizeof(manifest.job));
    memcpy(manifest.submission, ring->submission, sizeof(manifest.submission));
    ring->written = manifests_put(&manifest);
    tell_saved(ring);
}

void trainer_hear_verdict(Trainer *t, const ChannelMessage *m)
{
    Ring *ring = t->ring;
    if (t->has_found) {
        trainer_fail(t, EXIT_RETRY, "a checkpoint was found: the next world goes on from it");
        return;
    }
    if (!ring || ring->over || ring->written < 0 || m->step != ring->saving)
        return;
    if (m->type == CHANNEL_REFUSED) {
        trainer_fail(t, EXIT_RETRY, "the checkpoint was refused: this world is over");
        return;
    }
    ring->parent = ring->written;
    manifests_retire(ring->parent, KEEP_LAST, &m->held);
    ring->committed = ring->saving;
    ring->written = -1;
    ring->saves = false;
    ring->unsaved_usec = 0;
    if (ring->ends && ring->committed == ring->step)
        ring_finish(ring);
    else if (ring->ends)
        ring_begin_save(ring); /* the committed checkpoint is not of the last step */
}

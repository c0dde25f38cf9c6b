/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c - see sim.h. */
#include "tests/sim/sim.h"

#include "tests/sim/universe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMER_ORDER (UINT64_C(1) << 63)

void *sim_new(size_t bytes)
{
    void *memory = calloc(1, MAX(bytes, (size_t)1));
    if (!memory)
        abort();
    return memory;
}

void *sim_more(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);
    if (!memory)
        abort();
    return memory;
}

void sim_init(Sim *sim, uint64_t seed, bool talk)
{
    *sim = (Sim){.seed = seed, .now_usec = SIM_EPOCH_USEC, .talk = talk};
}

void sim_free(Sim *sim) { free(sim->heap); }

uint64_t sim_serial(Sim *sim) { return ++sim->serial; }

/* ---- the heap ---- */

static bool is_before(const SimEvent *a, const SimEvent *b)
{
    return a->at_usec != b->at_usec ? a->at_usec < b->at_usec : a->order < b->order;
}

static void push(Sim *sim, const SimEvent *event)
{
    if (sim->n_heap == sim->heap_size) {
        sim->heap_size = MAX(2 * sim->heap_size, (size_t)1024);
        sim->heap = sim_more(sim->heap, sim->heap_size * sizeof(*sim->heap));
    }
    size_t at = sim->n_heap++;
    for (size_t up; at > 0 && is_before(event, &sim->heap[up = (at - 1) / 2]); at = up)
        sim->heap[at] = sim->heap[up];
    sim->heap[at] = *event;
}

static SimEvent pop(Sim *sim)
{
    SimEvent first = sim->heap[0], last = sim->heap[--sim->n_heap];
    size_t at = 0;
    for (size_t down; (down = 2 * at + 1) < sim->n_heap; at = down) {
        if (down + 1 < sim->n_heap && is_before(&sim->heap[down + 1], &sim->heap[down]))
            down++;
        if (!is_before(&sim->heap[down], &last))
            break;
        sim->heap[at] = sim->heap[down];
    }
    sim->heap[at] = last;
    return first;
}

static void schedule(Sim *sim, Actor *actor, uint64_t delay_usec, uint64_t order,
                     SimHandler handler, void *who, uint64_t token)
{
    SimEvent event = {.at_usec = sim->now_usec + delay_usec,
                      .order = order | sim_serial(sim),
                      .handler = handler,
                      .who = who,
                      .token = token,
                      .actor = actor,
                      .life = actor ? actor->life : 0};
    push(sim, &event);
}

void sim_after(Sim *sim, Actor *actor, uint64_t delay_usec, SimHandler handler, void *who,
               uint64_t token)
{
    schedule(sim, actor, delay_usec, 0, handler, who, token);
}

void sim_timer(Sim *sim, Actor *actor, uint64_t delay_usec, SimHandler handler, void *who,
               uint64_t token)
{
    schedule(sim, actor, delay_usec, TIMER_ORDER, handler, who, token);
}

static void mix(Sim *sim, uint64_t value)
{
    sim->digest = (sim->digest ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    sim->digest ^= sim->digest >> 29;
}

void sim_run(Universe *u, uint64_t until_usec)
{
    Sim *sim = &u->sim;
    while (!sim->failed && sim->n_heap > 0 && sim->heap[0].at_usec <= until_usec) {
        SimEvent event = pop(sim);
        sim->now_usec = event.at_usec;
        if (event.actor && event.actor->life != event.life)
            continue;
        if (event.actor && event.actor->frozen_until_usec > sim->now_usec) {
            event.at_usec = event.actor->frozen_until_usec;
            push(sim, &event);
            continue;
        }
        mix(sim, event.at_usec);
        mix(sim, event.order);
        sim->n_events++;
        event.handler(u, event.who, event.token);
    }
    if (!sim->failed)
        sim->now_usec = until_usec;
}

/* ---- draws ---- */

static uint32_t next_word(Sim *sim)
{
    if (sim->n_draws % 4 == 0)
        sim->block = philox4x32(sim->seed, 0, sim->n_draws / 4);
    return sim->block.word[sim->n_draws++ % 4];
}

uint32_t sim_draw(Sim *sim, uint32_t n)
{
    assert(n > 0);
    return (uint32_t)((uint64_t)next_word(sim) * n >> 32);
}

bool sim_chance(Sim *sim, uint32_t permille) { return sim_draw(sim, 1000) < permille; }

uint64_t sim_between(Sim *sim, uint64_t low_usec, uint64_t high_usec)
{
    assert(low_usec <= high_usec && high_usec - low_usec < UINT32_MAX);
    return low_usec + sim_draw(sim, (uint32_t)(high_usec - low_usec) + 1);
}

/* ---- the history ---- */

void sim_say(Sim *sim, const char *format, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(line, sizeof(line), format, ap); /* what is too long is cut */
    va_end(ap);
    for (const char *c = line; *c; c++)
        sim->digest = (sim->digest ^ (unsigned char)*c) * UINT64_C(0x100000001B3);
    if (sim->talk)
        printf("%10.4f %s\n", (double)(sim->now_usec - SIM_EPOCH_USEC) / 1e6, line);
}

void sim_fail(Sim *sim, const char *invariant, const char *format, ...)
{
    va_list ap;
    if (sim->failed)
        return;
    sim->failed = true;
    (void)snprintf(sim->broken, sizeof(sim->broken), "%s", invariant);
    va_start(ap, format);
    (void)vsnprintf(sim->text, sizeof(sim->text), format, ap); /* what is too long is cut */
    va_end(ap);
    sim_say(sim, "BROKEN %s: %s", sim->broken, sim->text);
}

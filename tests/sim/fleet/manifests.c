/* SPDX-License-Identifier: Apache-2.0 */
/* manifests.c - see manifests.h. */
#include "tests/sim/fleet/manifests.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DAMAGED_MAX = 4 };

static Manifest *all;
static size_t n_all, room;
static bool is_out, was_out;

void manifests_open(void) { is_out = was_out = false; }

void manifests_close(void)
{
    free(all);
    all = NULL;
    n_all = room = 0;
}

int manifests_put(const Manifest *manifest)
{
    if (is_out)
        return -1;
    all = memory_grow(all, n_all, &room, sizeof(Manifest));
    all[n_all++] = *manifest;
    return (int)n_all - 1;
}

const Manifest *manifests_get(int number)
{
    assert(number >= 0 && (size_t)number < n_all);
    return &all[number];
}

int manifests_newest(const char *submission)
{
    int newest = -1;
    for (size_t i = 0; i < n_all; i++)
        if (strcmp(all[i].submission, submission) == 0 && !all[i].damaged &&
            (newest < 0 || all[i].last >= all[newest].last))
            newest = (int)i;
    return newest;
}

int manifests_damage(void)
{
    int n = 0;
    for (size_t i = n_all; i-- > 0 && n < 1 + (int)(n_all % DAMAGED_MAX);)
        if (strcmp(all[i].submission, all[n_all - 1].submission) == 0) {
            all[i].damaged = all[i].was_damaged = true;
            n++;
        }
    return n;
}

static bool is_held(const ChannelHeld *held, int64_t step)
{
    for (size_t i = 0; i < held->n; i++)
        if (held->steps[i] == step)
            return true;
    return false;
}

void manifests_retire(int number, int keep_last, const ChannelHeld *held)
{
    for (int n = 0; number >= 0; number = all[number].parent, n++)
        all[number].is_removed |= n >= keep_last && !is_held(held, all[number].last);
}

void manifests_mend(void)
{
    for (size_t i = 0; i < n_all; i++)
        all[i].damaged = false;
}

bool manifests_are_whole(int number)
{
    for (; number >= 0; number = all[number].parent) {
        const Manifest *m = &all[number];
        const int64_t before = m->parent >= 0 ? all[m->parent].last : 0;
        if (m->first != before + 1 || m->last < before)
            return false;
    }
    return true;
}

void manifests_lose(bool out)
{
    is_out = out;
    was_out |= out;
}

bool manifests_are_out(void) { return is_out; }
void manifests_note_cut(void) { was_out = true; }
bool manifests_were_out(void) { return was_out; }
bool manifests_was_damaged(int number) { return manifests_get(number)->was_damaged; }

const char *manifest_uri(int number, char ret[MANIFEST_URI_BYTES])
{
    (void)snprintf(ret, MANIFEST_URI_BYTES, "file:///c/%d/manifest.json", number);
    return ret;
}

int manifest_of(const char *uri)
{
    int number;
    if (!*uri)
        return -1;
    int n = sscanf(uri, "file:///c/%d/manifest.json", &number);
    assert(n == 1 && number >= 0 && (size_t)number < n_all); /* only trainers make such URIs */
    return number;
}

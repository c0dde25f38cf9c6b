/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - see findings.h. */
#include "ctl/doctor/findings.h"

#include "base/cleanup.h"
#include "base/memory.h"
#include "base/text/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLACES_SHOWN_MAX = 4 };

static const char *const state_names[] = {"ok", "note", "wrong"};

/* Returns the row that has the state, check, key and advice of `like`. If there is none, adds a row after the last row
 * of the same check. */
static Finding *find(Findings *f, const Finding *like)
{
    for (size_t i = 0; i < f->n; i++) {
        Finding *row = &f->rows[i];
        if (row->state == like->state && strcmp(row->check, like->check) == 0 &&
            strcmp(row->key, like->key) == 0 && strcmp(row->advice, like->advice) == 0)
            return row;
    }
    if (f->n == f->room) {
        f->room = f->room ? 2 * f->room : 16;
        f->rows = memory_resize(f->rows, f->room, sizeof(*f->rows));
    }
    size_t at = f->n;
    while (at > 0 && strcmp(f->rows[at - 1].check, like->check) != 0)
        at--;
    at = at > 0 ? at : f->n;
    memmove(f->rows + at + 1, f->rows + at, (f->n++ - at) * sizeof(*f->rows));
    f->rows[at] = *like;
    return &f->rows[at];
}

/* Adds a finding. With key NULL, the finding's text is the key. */
_printf_(7, 0) static void add(Findings *f, FindingState state, const char *check,
                               const char *place, const char *advice, const char *key,
                               const char *format, va_list ap)
{
    Finding like = {.check = check, .state = state};
    (void)vsnprintf(like.found, sizeof(like.found), format, ap); /* a long text is cut */
    printable_end(like.found);
    printable_make(like.found); /* texts of nodes and servers must not control the terminal */
    (void)snprintf(like.advice, sizeof(like.advice), "%s", advice ? advice : "");
    printable_make(like.advice);
    (void)snprintf(like.key, sizeof(like.key), "%s", key ? key : like.found);
    Finding *row = find(f, &like);
    if (!place)
        return;
    if (row->n_places == row->room) {
        row->room = row->room ? 2 * row->room : 4;
        row->places = memory_resize(row->places, row->room, sizeof(*row->places));
    }
    (void)snprintf(row->places[row->n_places], FINDING_PLACE_MAX, "%s", place);
    printable_make(row->places[row->n_places++]);
}

void findings_add(Findings *f, FindingState state, const char *check, const char *place,
                  const char *advice, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    add(f, state, check, place, advice, NULL, format, ap);
    va_end(ap);
}

void findings_add_alike(Findings *f, FindingState state, const char *check, const char *place,
                        const char *advice, const char *key, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    add(f, state, check, place, advice, key, format, ap);
    va_end(ap);
}

size_t findings_wrong(const Findings *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += f->rows[i].state == FINDING_WRONG;
    return n;
}

json_t *findings_json(const Findings *f)
{
    json_t *all = json_array();
    for (size_t i = 0; i < f->n; i++) {
        const Finding *row = &f->rows[i];
        json_t *places = json_array();
        for (size_t k = 0; k < row->n_places; k++)
            json_array_append_new(places, json_string(row->places[k]));
        json_t *found = json_string(row->found);
        json_array_append_new(all, json_pack("{s:s, s:s, s:o, s:o, s:s}", "check", row->check,
                                             "state", state_names[row->state], "where", places,
                                             "found", found ? found : json_string("not UTF-8"),
                                             "advice", row->advice));
    }
    return all;
}

/* Tells whether the row's places are nodes and controllers, and not only nodes. */
static bool is_of_programs(const Finding *row)
{
    return strcmp(row->check, "versions") == 0 || strcmp(row->check, "lease_sec") == 0;
}

static void print_places(const Finding *row)
{
    if (row->n_places > PLACES_SHOWN_MAX && row->state != FINDING_WRONG) {
        printf("%zu %s: ", row->n_places, is_of_programs(row) ? "programs" : "nodes");
        return;
    }
    for (size_t i = 0; i < row->n_places && i < 2 * PLACES_SHOWN_MAX; i++)
        printf("%s%s", i ? ", " : "", row->places[i]);
    if (row->n_places > 2 * PLACES_SHOWN_MAX)
        printf(" and %zu more", row->n_places - 2 * PLACES_SHOWN_MAX);
    if (row->n_places > 0)
        printf(": ");
}

void findings_print(const Findings *f)
{
    const char *last = "";
    printf("  %-6s %-12s %s\n", "STATE", "CHECK", "FOUND");
    for (size_t i = 0; i < f->n; i++) {
        const Finding *row = &f->rows[i];
        printf("%c %-6s %-12s ", row->state == FINDING_WRONG ? '!' : ' ', state_names[row->state],
               strcmp(last, row->check) == 0 ? "" : row->check);
        print_places(row);
        printf("%s\n", row->found);
        if (*row->advice)
            printf("                      %s\n", row->advice);
        last = row->check;
    }
}

void findings_clear(Findings *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->rows[i].places);
    free(f->rows);
    *f = (Findings){0};
}

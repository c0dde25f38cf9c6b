/* SPDX-License-Identifier: Apache-2.0 */
/* succession.c - see succession.h. */
#include "controller/leader/succession.h"

#include "base/memory.h"
#include "base/number/hash.h"

#include <stdlib.h>
#include <string.h>

/* True for records that only leaders and operators write: without a leader, only an operator changes them. */
static bool counts(KeyKind kind)
{
    switch (kind) {
    case KEY_CORDONS:
    case KEY_SPECS:
    case KEY_DESIRED:
    case KEY_WORLDS:
    case KEY_PHASES:
    case KEY_INCIDENTS:
        return true;
    default:
        return false;
    }
}

/* Returns the sum of hashes as a record can hold it: an integer of a record has 63 bits. */
static int64_t told(uint64_t records) { return (int64_t)(records >> 1); }

void succession_clear(Succession *s)
{
    free(s->all);
    json_decref(s->hashes);
    *s = (Succession){0};
}

void succession_note_record(Succession *s, KeyKind kind, const char *key, const char *value,
                            size_t n_value)
{
    if (!counts(kind))
        return;
    if (!s->hashes)
        s->hashes = json_object();
    s->records -= (uint64_t)json_integer_value(json_object_get(s->hashes, key));
    if (!value) {
        (void)json_object_del(s->hashes, key); /* no error if the key is not there */
        return;
    }
    const uint64_t hash = hash64_bytes(value, n_value, hash64_bytes(key, strlen(key), 0));
    s->records += hash;
    (void)json_object_set_new(s->hashes, key,
                              json_integer((json_int_t)hash)); /* cannot fail, only abort */
}

/* ---- who stands for election ---- */

static Successor *find_successor(Succession *s, const char *key)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->all[i].key, key) == 0)
            return &s->all[i];
    return NULL;
}

static bool is_first(const Succession *s, const Successor *one)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].term < one->term)
            return false;
    return true;
}

const LeaderRecord *succession_first(const Succession *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (is_first(s, &s->all[i]))
            return &s->all[i].record;
    return NULL;
}

static void put_successor(Succession *s, const char *key, const char *value, size_t n_value,
                          int64_t term)
{
    Error ignored = ERROR_INIT;
    Successor *one = find_successor(s, key);
    if (!one) {
        s->all = memory_resize(s->all, s->n + 1, sizeof(*s->all));
        one = &s->all[s->n++];
        (void)snprintf(one->key, sizeof(one->key), "%s", key);
    }
    one->term = term;
    leader_record_clear(&one->record);
    if (leader_record_decode(key, value, n_value, &one->record, &ignored) < 0)
        one->record = (LeaderRecord){0}; /* an unreadable record names no deaths */
}

/* Keeps the newest deaths that a record lists, and leaves room for `room` more. */
static void keep_deaths(Succession *s, const LeaderRecord *r, size_t room)
{
    const size_t n = MIN(r->n_before, LEADER_DEATHS_MAX - room);
    memcpy(s->last, &r->before[r->n_before - n], n * sizeof(s->last[0]));
    s->n_last = n;
}

/* Handles the end of the first controller, whose key is gone. */
static void note_end(Succession *s, const LeaderRecord *r, uint64_t real_usec)
{
    if (r->state != LEADER_UP) { /* it resigned, or its version is too old to report its end */
        s->deaths = 0;
        return;
    }
    if (r->still_until_usec) { /* that leader had decided nothing: its end does not blame the records */
        s->deaths = r->deaths;
        s->dead_records = s->records;
        keep_deaths(s, r, 0);
        return;
    }
    const bool same = r->deaths > 0 && r->records == told(s->records);
    s->deaths = same ? r->deaths + 1 : 1;
    s->dead_records = s->records;
    if (same)
        keep_deaths(s, r, 1);
    else
        s->n_last = 0;
    LeaderDeath *death = &s->last[s->n_last++];
    *death = (LeaderDeath){.at_usec = real_usec};
    memcpy(death->name, r->name, sizeof(death->name));
    memcpy(death->journal, r->journal, sizeof(death->journal));
}

void succession_note_leader(Succession *s, const char *key, const char *value, size_t n_value,
                            int64_t term, uint64_t real_usec)
{
    if (value) {
        put_successor(s, key, value, n_value, term);
        return;
    }
    Successor *one = find_successor(s, key);
    if (!one)
        return;
    const bool first = is_first(s, one);
    const LeaderRecord record = one->record;
    *one = s->all[--s->n];
    if (!first)
        return;
    s->still_until_usec = 0; /* the pause was due to the deaths of earlier leaders */
    s->tells = false;
    note_end(s, &record, real_usec);
}

/* ---- whether to decide ---- */

static uint64_t pause_usec(const Succession *s, uint64_t base_usec)
{
    uint64_t pause = base_usec;
    const uint64_t most = SUCCESSION_PAUSE_MAX_SEC * USEC_PER_SEC;
    for (int i = SUCCESSION_DEATHS_MAX; i < s->deaths && pause < most; i++)
        pause *= 2;
    return MIN(pause, most);
}

SuccessionAnswer succession_query(Succession *s, const char *key, uint64_t base_usec,
                                  uint64_t now_usec, uint64_t real_usec)
{
    const Successor *own = find_successor(s, key);
    if (!own || !is_first(s, own))
        return SUCCESSION_WAIT;
    if (s->deaths == 0)
        return SUCCESSION_LEAD;
    if (s->deaths >= SUCCESSION_DEATHS_MAX && s->still_until_usec == 0) {
        const uint64_t pause = pause_usec(s, base_usec);
        s->still_until_usec = now_usec + pause;
        s->still_real_usec = real_usec + pause;
    }
    if (now_usec < s->still_until_usec && s->records == s->dead_records)
        return SUCCESSION_STAND_STILL;
    if (s->tells && own->record.still_until_usec == 0 && own->record.deaths == s->deaths &&
        own->record.records == s->told_records)
        return SUCCESSION_LEAD;
    s->still_until_usec = now_usec; /* the standstill is over, for good */
    s->tells = true;
    s->told_records = told(s->records);
    return SUCCESSION_INTRODUCE;
}

uint64_t succession_still_until(const Succession *s) { return s->still_until_usec; }

void succession_overrule(Succession *s)
{
    if (s->still_until_usec)
        s->still_until_usec = 1;
}

void succession_led(Succession *s, uint64_t now_usec)
{
    assert(!s->led_usec && now_usec >= s->still_until_usec);
    s->led_usec = now_usec;
}

void succession_left(Succession *s)
{
    s->led_usec = 0;
    s->still_until_usec = 0;
    s->tells = false;
}

bool succession_is_settled(Succession *s, uint64_t base_usec, uint64_t now_usec)
{
    if (!s->led_usec || !s->deaths || now_usec < s->led_usec + base_usec)
        return false;
    s->deaths = 0;
    s->still_until_usec = 0;
    s->tells = false;
    return true;
}

void succession_introduce(const Succession *s, LeaderRecord *record)
{
    record->state = LEADER_UP;
    if (!s->tells && !s->still_until_usec)
        return;
    record->deaths = s->deaths;
    memcpy(record->before, s->last, sizeof(s->last));
    record->n_before = s->n_last;
    if (s->tells)
        record->records = s->told_records;
    else
        record->still_until_usec = s->still_real_usec;
}

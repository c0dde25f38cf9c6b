/* SPDX-License-Identifier: Apache-2.0 */
/* succession.h - whether the leaders before this controller died, one after the other, on the same records.
 *
 * A record that makes the program abort kills the leader, then the standby that takes over, and so on: after
 * `lease_sec` each there is no controller left, and their restarts go round for ever. So a controller that takes
 * over after a death writes into its own record how many died before it and on which records, and decides only once
 * etcd shows that. When it dies as well, and nothing was decided or changed since, the next one reads there that the
 * row is one longer. From two on it stands still: it keeps the leadership and decides nothing until the records
 * change, a pause is over, or an operator says so.
 *
 * A death is a leader's key that goes without the word that it leaves: a process that aborts, is killed, or whose
 * lease runs out. "The same records" are those that only leaders and operators write, as a sum of their hashes.
 *
 * Ownership: succession_clear() frees what a zeroed Succession has come to hold.
 * Units:     now_usec is CLOCK_BOOTTIME, real_usec CLOCK_REALTIME, both in microseconds.
 * Errors:    none. A leader's record that cannot be read is one of a program that tells nothing.
 * Threads:   loop thread only. No I/O and no clock: times are arguments.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"

#include <jansson.h>

enum {
    SUCCESSION_DEATHS_MAX = 2, /* in a row; from then on the next one waits before it decides */
    SUCCESSION_PAUSE_MAX_SEC = 600,
};

typedef struct Successor {
    char key[KEY_MAX];
    int64_t term; /* create revision of the key; the lowest one leads */
    LeaderRecord record;
} Successor;

typedef enum SuccessionAnswer {
    SUCCESSION_WAIT, /* the key is not the first one, as far as the watch has shown */
    SUCCESSION_TELL, /* succession_introduce() is to be written into this controller's record first */
    SUCCESSION_STAND_STILL, /* until succession_still_until() */
    SUCCESSION_LEAD,
} SuccessionAnswer;

typedef struct Succession {
    Successor *all; /* every controller that stands for election, in no order */
    size_t n;
    json_t *hashes;        /* key of each record that counts -> its hash */
    uint64_t records;      /* the sum of these hashes */
    int deaths;            /* leaders that died in a row before the present first one */
    uint64_t dead_records; /* what they died on */
    LeaderDeath last[LEADER_DEATHS_MAX]; /* the newest of them, the older one first */
    size_t n_last;
    bool tells;           /* this controller's record is to tell deaths, told_records and last */
    int64_t told_records; /* what they died on, as the record tells it */
    /* It stands still until then; 0: it has not begun to. The second is the same time for people. */
    uint64_t still_until_usec, still_real_usec;
    uint64_t led_usec; /* since then this controller decides; 0: it does not */
} Succession;

void succession_clear(Succession *s);

/* A record of the cluster, in the watch's order; value NULL: it is gone. */
void succession_note_record(Succession *s, KeyKind kind, const char *key, const char *value,
                            size_t n_value);
/* A controller's key, likewise. */
void succession_note_leader(Succession *s, const char *key, const char *value, size_t n_value,
                            int64_t term, uint64_t real_usec);

/* May the controller with that key decide now? base_usec: the pause after two deaths, which doubles with each further
 * one, and the time after which a leader that lives has shown that it can. */
SuccessionAnswer succession_ask(Succession *s, const char *key, uint64_t base_usec,
                                uint64_t now_usec, uint64_t real_usec);
uint64_t succession_still_until(const Succession *s);
/* An operator's word: the pause is over. */
void succession_overrule(Succession *s);
/* It decides from now on. */
void succession_led(Succession *s, uint64_t now_usec);
/* It decides no more, and is not the first any more. */
void succession_left(Succession *s);
/* True once: this leader has lived for base_usec, so it forgets those before it and tells so. */
bool succession_is_settled(Succession *s, uint64_t base_usec, uint64_t now_usec);

/* Fills what the controller's own record tells of all this. */
void succession_introduce(const Succession *s, LeaderRecord *record);

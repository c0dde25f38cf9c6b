/* SPDX-License-Identifier: Apache-2.0 */
/* succession.h - whether the leaders before this controller died, one after the other, on the same records.
 *
 * A record that makes the program abort kills the leader, then the standby that takes over, and so on: after
 * `lease_sec` for each of them no controller is left, and their restarts repeat this for ever. So a controller that
 * takes over after a death writes into its own record how many leaders died before it and on which records, and
 * decides only once etcd shows this. If it dies as well, and nothing was decided or changed since, the next
 * controller reads that record and counts one death more. From two deaths on, a controller stands still: it keeps
 * the leadership and decides nothing until the records change, a pause is over, or an operator overrules the
 * standstill.
 *
 * A leader has died if its key vanishes before its record reports that it leaves: the process aborted, was killed,
 * or its lease ran out. "The same records" are compared by a sum of hashes, over the records that only leaders and
 * operators write.
 *
 * Ownership: succession_clear() frees what a Succession has allocated; a zeroed Succession is empty.
 * Units:     now_usec is CLOCK_BOOTTIME, real_usec CLOCK_REALTIME, both in microseconds.
 * Errors:    none. An unreadable leader record counts as the record of a version that reports nothing.
 * Threads:   loop thread only. No I/O and no clock: times are arguments.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"

#include <jansson.h>

enum {
    SUCCESSION_DEATHS_MAX = 2, /* after this many deaths in a row the next leader stands still */
    SUCCESSION_PAUSE_MAX_SEC = 600,
};

typedef struct Successor {
    char key[KEY_MAX];
    int64_t term; /* create revision of the key; the lowest term leads */
    LeaderRecord record;
} Successor;

typedef enum SuccessionAnswer {
    SUCCESSION_WAIT, /* as far as the watch has shown, the key is not the first key in the line */
    SUCCESSION_INTRODUCE, /* this controller must first write succession_introduce() into its record */
    SUCCESSION_STAND_STILL, /* this controller decides nothing until succession_still_until() */
    SUCCESSION_LEAD,
} SuccessionAnswer;

typedef struct Succession {
    Successor *all; /* every controller in the election, in no particular order */
    size_t n;
    json_t *hashes;   /* key of each record that counts -> its hash */
    uint64_t records; /* the sum of the values in `hashes` */
    int deaths;       /* leaders that died in a row before the present first controller */
    /* the sum of the hashes of the records with which the counted leaders died */
    uint64_t dead_records;
    LeaderDeath last[LEADER_DEATHS_MAX]; /* the newest of the counted deaths, oldest first */
    size_t n_last;
    bool tells;           /* this controller's record must contain deaths, told_records and last */
    int64_t told_records; /* the sum of hashes that this controller's record contains */
    /* End of the standstill in both clocks; 0: it has not begun. */
    uint64_t still_until_usec, still_real_usec;
    uint64_t led_usec; /* since when this controller decides; 0: it does not */
} Succession;

void succession_clear(Succession *s);

/* Notes a record of the cluster, in the watch's order; value NULL: the key is gone. */
void succession_note_record(Succession *s, KeyKind kind, const char *key, const char *value,
                            size_t n_value);
/* Notes a controller's key, in the watch's order; value NULL: the key is gone. */
void succession_note_leader(Succession *s, const char *key, const char *value, size_t n_value,
                            int64_t term, uint64_t real_usec);

/* Returns whether the controller with that key may decide now. base_usec: the pause after two deaths, which doubles
 * with each further death; also the time after which a leader that lives counts as sound. */
SuccessionAnswer succession_query(Succession *s, const char *key, uint64_t base_usec,
                                  uint64_t now_usec, uint64_t real_usec);
uint64_t succession_still_until(const Succession *s);
/* Ends the pause at an operator's request. */
void succession_overrule(Succession *s);
/* Notes that this controller decides from now on. */
void succession_led(Succession *s, uint64_t now_usec);
/* Notes that this controller no longer decides and is no longer the first. */
void succession_left(Succession *s);
/* Returns true once, when this leader has decided for base_usec: the deaths of earlier leaders are then forgotten, and
 * this leader's record must be written again. */
bool succession_is_settled(Succession *s, uint64_t base_usec, uint64_t now_usec);

/* Returns the record of the first controller in the line; NULL: there is none. */
const LeaderRecord *succession_first(const Succession *s);
/* Fills the fields of the controller's own record about deaths and a standstill. */
void succession_introduce(const Succession *s, LeaderRecord *record);

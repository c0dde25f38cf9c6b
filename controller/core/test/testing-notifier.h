/* SPDX-License-Identifier: Apache-2.0 */
/* testing-notifier.h - a notifier with a store, sinks and a clock that the test simulates. It logs what the notifier
 * does: "trigger to pager: critical a-1".
 *
 * Ownership: lab_new() gives the caller a Lab; lab_free() frees it.
 * Units:     *_usec and now count from EPOCH in microseconds, boottime and realtime alike.
 * Errors:    none: anything that goes wrong ends the test.
 * Threads:   one.
 */
#pragma once

#include "base/test/testing.h"
#include "controller/core/notifier/notifier.h"

enum {
    LAB_LOG_BYTES = 1 << 14,
    LAB_SENDS_MAX = 64,
    LAB_PAGES = 64
}; /* LAB_PAGES is notifications_max */

#define SEC USEC_PER_SEC
#define EPOCH (UINT64_C(1000000) * SEC)

typedef struct Sent {
    int64_t id; /* 0: the entry is free */
    int sink;
    MessageKind message_kind;
    char incident[96];
} Sent;

typedef struct Lab {
    Notifier *notifier;
    NotifierConfig config;
    uint64_t now, lease;
    int64_t revision;
    Outcome outcome; /* outcome of the next write */
    Sent sent[LAB_SENDS_MAX];
    char log[LAB_LOG_BYTES];
    size_t used;
    uint64_t wake;
    uint32_t random;
} Lab;

Lab *lab_new(const NotifierSink *sinks, int n);
void lab_free(Lab *lab);

void lead(Lab *lab, int64_t term); /* term 0: the notifier is deposed */
/* Lets the notifier observe a record, on which run() then acts. If record is NULL, the key was removed. */
void feed(Lab *lab, EventKind kind, const char *name, const void *record);
void run(Lab *lab);
/* Feeds an incident and runs. */
void put_incident(Lab *lab, const char *id, Severity severity, bool over);
/* Lets time pass, and wakes the notifier at the times that it requested. */
void pass(Lab *lab, double seconds);
/* Lets a sink answer the message that it was sent about an incident ("-": a heartbeat). */
void answer(Lab *lab, const char *sink, const char *incident, Answer a);
/* Empties the log. */
void forget(Lab *lab);

#define ACCEPTED ((Answer){.kind = ANSWER_ACCEPTED})
#define AGAIN(...) ((Answer){.kind = ANSWER_AGAIN, .text = "HTTP 500", __VA_ARGS__})
#define REFUSED ((Answer){.kind = ANSWER_REFUSED, .text = "HTTP 400"})

/* Compares the text that was logged since the log was last emptied, and empties the log. */
#define EXPECT(lab, text)                                                                          \
    do {                                                                                           \
        assert_string_equal((lab)->log, text);                                                     \
        forget(lab);                                                                               \
    } while (0)

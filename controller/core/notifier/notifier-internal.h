/* notifier-internal.h - what the courier knows; private to controller/core/notifier.
 *
 * Ownership: all of it lies in the caller's memory.
 * Units:     as notifier.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/notifier/notifier.h"

/* One page at one sink. */
typedef struct Task {
    int64_t in_flight; /* id of the message; 0: none */
    Tell tell;         /* of that message */
    Severity severity; /* likewise */
    int failures;      /* in a row, since this leader began */
    uint64_t next_usec;
    uint64_t told_usec; /* when this leader was last heard */
} Task;

/* An incident, or a test that somebody asks for (test: its marks go into the request). */
typedef struct Page {
    bool used, test;
    IncidentRecord incident; /* the last one known; id is always set */
    Stamp incident_stamp;
    AlertRecord alert;
    Stamp alert_stamp;
    RequestRecord request;
    Stamp request_stamp;
    bool inherited;  /* another leader has told of it */
    bool dirty;      /* alert is not stored as it is here */
    int64_t storing; /* id of the write; 0: none */
    bool removing;   /* that removes the alert */
    Task tasks[COURIER_SINKS_MAX];
} Page;

typedef struct SinkState {
    uint64_t pause_until_usec;
    Task beat;
    SinkCounts counts;
} SinkState;

struct Courier {
    CourierConfig config;
    int pages_max;
    uint64_t now_usec, real_usec;
    uint64_t wake_usec;
    int64_t term; /* 0: not leading */
    uint64_t leading_usec;
    int64_t last_id;
    int64_t dropped;
    SinkState sinks[COURIER_SINKS_MAX];
    Page *pages;
};

/* ---- notifier-message.c ---- */
/* The mark of that sink, or NULL. */
Delivery *page_delivery(Page *page, const CourierSink *sink);
bool page_is_over(const Page *page);
/* Whether the sink must hear something, now or after *ret_at_usec; false: nothing, ever. */
bool page_tell(const Courier *c, Page *page, int sink, Tell *ret, uint64_t *ret_at_usec);

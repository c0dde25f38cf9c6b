/* SPDX-License-Identifier: Apache-2.0 */
/* live-page.h - the leader's pages: / for the cluster, /jobs/NAME for a job, and streams of what changes in them.
 *
 * A page is drawn at most once a second, however many look at it, and never while nobody does: viewers share its
 * bytes. A viewer is sent the parts that have changed, and one that lags the whole page again. Nothing here can be
 * changed, and a controller that does not lead says who does, if it knows.
 *
 * Ownership: live_pages_new() gives the caller LivePages, which borrow the look's userdata. http_server_free() comes
 *            first: it ends the viewers.
 * Units:     seconds.
 * Errors:    -errno with a text: no timer.
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/page-model.h"
#include "metrics/http-server.h"

#include <systemd/sd-event.h>

typedef struct LivePages LivePages;

typedef struct LiveLook {
    bool leads; /* and has read every record */
    PageSource source;
    const char *leading;      /* name of who leads; "": not known */
    const char *leading_page; /* its ADDRESS:PORT; "": not known */
} LiveLook;

enum { LIVE_PATHS = 6 };

int live_pages_new(sd_event *event, LiveLook (*look)(void *userdata), void *userdata,
                   LivePages **ret, Error *err);
LivePages *live_pages_free(LivePages *pages);
DEFINE_CLEANUP(LivePages, live_pages_free)

/* Gives the paths, to be served. */
void live_pages_paths(LivePages *pages, HttpPage ret[LIVE_PATHS]);
/* The server that serves them; it is woken when there is news. */
void live_pages_serve(LivePages *pages, HttpServer *server);

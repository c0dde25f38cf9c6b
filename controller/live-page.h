/* SPDX-License-Identifier: Apache-2.0 */
/* live-page.h - the leader's pages: / for the cluster, /jobs/NAME for a job, and streams of what changes in them.
 *
 * A page is drawn at most once a second, however many viewers it has, and never while it has none: viewers share its
 * bytes. A viewer is sent the parts that have changed, or the whole page if the viewer lags. The pages are
 * read-only, and a controller that does not lead names the leader, if it knows the leader.
 *
 * Folder:    defaults of the headers here: Threads: loop thread only.
 * Ownership: live_pages_new() gives the caller LivePages, which borrow the userdata of `look`. http_server_free() must
 *            be called first: it ends the viewers.
 * Units:     seconds.
 * Errors:    -errno with a text: no timer.
 */
#pragma once

#include "controller/page-model.h"
#include "metrics/http-server.h"

#include <systemd/sd-event.h>

typedef struct LivePages LivePages;

typedef struct LiveLook {
    bool leads; /* this controller leads, and has read every record */
    PageSource source;
    const char *leading;      /* name of the leader; "": unknown */
    const char *leading_page; /* the leader's ADDRESS:PORT; "": unknown */
} LiveLook;

enum { LIVE_PATHS = 6 };

int live_pages_new(sd_event *event, LiveLook (*look)(void *userdata), void *userdata,
                   LivePages **ret, Error *err);
LivePages *live_pages_free(LivePages *pages);
DEFINE_CLEANUP(LivePages, live_pages_free)

/* Returns the paths that are to be served. */
void live_pages_paths(LivePages *pages, HttpPage ret[LIVE_PATHS]);
/* Sets the server of these paths, which LivePages wakes when there is news. */
void live_pages_serve(LivePages *pages, HttpServer *server);

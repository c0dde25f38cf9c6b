/* SPDX-License-Identifier: Apache-2.0 */
/* testing-s3.h - an S3 server on loopback in the test's own process. It keeps objects in memory, and a script of the
 * test decides for each request how it misbehaves.
 *
 * Ownership: fake_start() gives the caller a Fake; fake_stop() ends all its connections. A request's
 *            texts are valid in the script.
 * Units:     bytes.
 * Errors:    a failure of the set-up ends the process.
 * Threads:   the script is called for one request at a time, on threads of the server's own.
 */
#pragma once

#include "base/macro.h"

typedef struct Fake Fake;

typedef struct FakeRequest {
    unsigned number;           /* counted from 1, as their heads arrive */
    const char *method, *path; /* path as it was sent, with its query */
    const char *head;          /* all lines, the first one included */
} FakeRequest;

typedef enum FakeAct {
    FAKE_SERVE,  /* as S3 does */
    FAKE_ANSWER, /* does nothing; says status, code, headers and body */
    FAKE_LOSE,   /* serves, and resets the connection instead of answering */
    FAKE_DEAF,   /* resets it when n bytes of the request's body have come */
    FAKE_HOLD,   /* takes no more when n bytes of the request's body have come, and says nothing */
    FAKE_EARLY,  /* answers as FAKE_ANSWER when n bytes of the body have come, takes no more */
    FAKE_RESET,  /* serves, and resets it after n bytes of the reply */
    FAKE_TRUNCATE, /* serves, and closes it after n bytes of the reply's body */
    FAKE_STALL,    /* serves, and says nothing more after n bytes of the reply */
    FAKE_CORRUPT,  /* serves, with the n-th byte of the reply's body changed */
    FAKE_RAW,      /* says body, as it is, and closes */
} FakeAct;

typedef struct FakeStep {
    FakeAct act;
    int status;          /* of FAKE_ANSWER */
    const char *code;    /* of its <Error>; NULL: no body, unless it says one */
    const char *headers; /* more of them, each with "\r\n"; NULL: none. Also of FAKE_SERVE */
    const char *body;
    size_t n;
    int64_t date; /* of the Date header; 0: now */
} FakeStep;

typedef FakeStep (*FakeScript)(void *context, const FakeRequest *request);

/* NULL: everything is served. */
Fake *fake_start(FakeScript script, void *context);
void fake_stop(Fake *fake);
int fake_port(const Fake *fake);
unsigned fake_requests(Fake *fake);
unsigned fake_connections(Fake *fake); /* ever accepted */

/* Puts an object; path is that of its URL, "/bucket/key". */
void fake_put(Fake *fake, const char *path, const void *data, size_t n_bytes);
/* Whether the object exists with exactly these bytes. */
bool fake_has(Fake *fake, const char *path, const void *data, size_t n_bytes);
unsigned fake_puts(Fake *fake, const char *path); /* number of puts of the object */
/* Copies a header's value; false: the request has no such header. */
bool fake_header(const FakeRequest *request, const char *name, char *ret, size_t size);

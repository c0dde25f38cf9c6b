/* SPDX-License-Identifier: Apache-2.0 */
/* testing-s3.h - an S3 server on loopback in the test's own process. It keeps objects in memory, and a script of the
 * test decides for each request how it misbehaves.
 *
 * Ownership: fake_start() gives the caller a Fake; fake_stop() ends all its connections. A request's
 *            texts are valid only while the script runs.
 * Units:     bytes.
 * Errors:    a failure of the setup ends the process.
 * Threads:   the script is called for one request at a time, on the server's threads.
 */
#pragma once

#include "base/macro.h"

typedef struct Fake Fake;

typedef struct FakeRequest {
    unsigned number;           /* requests are counted from 1, in the order in which heads arrive */
    const char *method, *path; /* path as sent, with its query */
    const char *head;          /* all header lines, the request line included */
} FakeRequest;

typedef enum FakeAct {
    FAKE_SERVE,    /* serves the request as S3 does */
    FAKE_ANSWER,   /* executes nothing; answers with status, code, headers and body */
    FAKE_LOSE,     /* executes the request, and resets the connection instead of answering */
    FAKE_DEAF,     /* resets the connection after n bytes of the request's body */
    FAKE_HOLD,     /* stops reading after n bytes of the request's body, and sends nothing */
    FAKE_EARLY,    /* answers like FAKE_ANSWER after n bytes of the body, and stops reading */
    FAKE_RESET,    /* serves, and resets the connection after n bytes of the reply */
    FAKE_TRUNCATE, /* serves, and closes the connection after n bytes of the reply's body */
    FAKE_STALL,    /* serves, and sends nothing more after n bytes of the reply */
    FAKE_CORRUPT,  /* serves, with the n-th byte of the reply's body changed */
    FAKE_RAW,      /* sends body unchanged, and closes the connection */
} FakeAct;

typedef struct FakeStep {
    FakeAct act;
    int status;          /* HTTP status of FAKE_ANSWER */
    const char *code;    /* code of the answer's <Error>; NULL: no <Error> */
    const char *headers; /* further headers, each with "\r\n"; NULL: none. Also for FAKE_SERVE */
    const char *body;
    size_t n;
    int64_t date; /* time in the Date header; 0: now */
} FakeStep;

typedef FakeStep (*FakeScript)(void *context, const FakeRequest *request);

/* Starts a server. script NULL: all requests are served normally. */
Fake *fake_start(FakeScript script, void *context);
void fake_stop(Fake *fake);
int fake_port(const Fake *fake);
unsigned fake_requests(Fake *fake);
unsigned fake_connections(Fake *fake); /* number of connections accepted so far */

/* Puts an object; path is that of its URL, "/bucket/key". */
void fake_put(Fake *fake, const char *path, const void *data, size_t n_bytes);
/* Returns whether the object exists with exactly these bytes. */
bool fake_has(Fake *fake, const char *path, const void *data, size_t n_bytes);
unsigned fake_puts(Fake *fake, const char *path); /* number of puts of the object */
/* Copies a header's value; returns false if the request has no such header. */
bool fake_header(const FakeRequest *request, const char *name, char *ret, size_t size);

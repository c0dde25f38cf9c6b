/* SPDX-License-Identifier: Apache-2.0 */
/* testing-objects.h - a server in memory behind client.h, linked in place of client.c. A test sets what the server can
 * do, and which requests meet a fault.
 *
 * Ownership: one server a process; fake_reset() empties it.
 * Units:     bytes.
 * Errors:    a misuse of client.h ends the process.
 * Threads:   any.
 */
#pragma once

#include "store/s3/client/client.h"

typedef enum FakeKind {
    FAKE_PUT,
    FAKE_PART,
    FAKE_CREATE,
    FAKE_COMPLETE,
    FAKE_ABORT,
    FAKE_HEAD,
    FAKE_GET,
    FAKE_LIST,
    FAKE_UPLOADS,
    FAKE_DELETE,
    FAKE_DELETE_MANY,
    FAKE_KINDS
} FakeKind;

typedef enum FakeFault {
    FAKE_LOSE,      /* done; the answer is lost, and it is sent again */
    FAKE_LOSE_ALL,  /* done; no answer comes until the deadline */
    FAKE_SILENT,    /* not done; no answer until the deadline */
    FAKE_CONFLICT,  /* 409 */
    FAKE_ERROR_200, /* not done; 200 with fake.text, or with an <Error> */
    FAKE_CUT,       /* done; the second half of the answer is missing */
    FAKE_NO_UPLOAD, /* somebody aborted the upload */
    FAKE_DENY,      /* 403 */
    FAKE_CHANGE,    /* the object is another one from now on */
    FAKE_STALL,     /* until it is cancelled */
    FAKE_RIVAL,     /* somebody else puts the object first */
    FAKE_REFUSE,    /* as fake.refusal says */
} FakeFault;

typedef enum FakeAbsent { ABSENT_OBEYED, ABSENT_IGNORED, ABSENT_REFUSED } FakeAbsent;

typedef struct FakeServer {
    S3Options options; /* of the client */
    FakeAbsent if_absent;
    bool complete_ignores_absent; /* as Ceph's */
    bool checks_crc32c, says_bad_digest, lacks_delete_many, lacks_encoding, lacks_bucket;
    bool ignores_prefix; /* in a list of uploads */
    bool stands_still;   /* each page of objects is the first */
    const char *text;    /* of FAKE_ERROR_200 */
    int64_t ahead_sec;   /* of our clock: its own, when it lists uploads */
    bool says_no_length; /* of an object that is looked at */
    const char *etag;    /* of what is read; NULL: no MD5 */
    bool etag_opaque;    /* it says so */
    struct {
        int r;
        long status;
        const char *code;
    } refusal; /* of FAKE_REFUSE */
    /* Looks at each request before it is served. */
    void (*on_request)(FakeKind kind, const S3Request *request);
    size_t page; /* objects or uploads at most; 0: pages without an object go on for ever */
    /* Records of the requests. */
    size_t n[FAKE_KINDS]; /* number of requests of each kind */
    bool sends_crc32c;    /* as set by s3_client_set_checksum() */
    uint64_t part_bytes_least, part_bytes_most;
    char complete_body[4096];
} FakeServer;

extern FakeServer fake;

void fake_reset(void);
/* The at-th request of a kind from now on (1: the next) meets the fault; at 0: all of them. */
void fake_break(FakeKind kind, size_t at, FakeFault fault);
void fake_mend(void);         /* removes all faults */
void fake_wait_stalled(void); /* waits until a request stalls */
/* Puts an object, or begins an upload, as another writer would. */
void fake_put(const char *name, const char *text);
void fake_begin_upload(const char *name, uint64_t begun_usec);
bool fake_has(const char *name);
size_t fake_n_objects(void);
size_t fake_n_uploads(void);

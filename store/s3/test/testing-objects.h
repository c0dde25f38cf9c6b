/* SPDX-License-Identifier: Apache-2.0 */
/* testing-objects.h - a server in memory that implements client.h, linked in place of client.c. A test sets which
 * functions the server has, and which requests fail.
 *
 * Units: bytes. Threads: any.
 * Ownership: one server per process; fake_reset() empties it.
 * Errors:    a misuse of client.h ends the process.
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
    FAKE_LOSE,      /* the request is done, its answer is lost, and the request is sent again */
    FAKE_LOSE_ALL,  /* the request is done, but no answer arrives until the deadline */
    FAKE_SILENT,    /* the request is not done; no answer arrives until the deadline */
    FAKE_CONFLICT,  /* the answer is 409 */
    FAKE_ERROR_200, /* the request is not done; the answer is 200 with fake.text or an <Error> */
    FAKE_CUT,       /* the request is done; the second half of the answer is missing */
    FAKE_NO_UPLOAD, /* another client aborted the upload */
    FAKE_DENY,      /* the answer is 403 */
    FAKE_CHANGE,    /* the object has another version from now on */
    FAKE_STALL,     /* no answer until the request is cancelled */
    FAKE_RIVAL,     /* another writer puts the object first */
    FAKE_REFUSE,    /* the request is refused as fake.refusal describes */
} FakeFault;

typedef enum FakeAbsent { ABSENT_OBEYED, ABSENT_IGNORED, ABSENT_REFUSED } FakeAbsent;

typedef struct FakeServer {
    S3Options options; /* the client's options */
    FakeAbsent if_absent;
    bool complete_ignores_absent; /* a completion ignores If-None-Match, as with Ceph */
    bool checks_crc32c, says_bad_digest, lacks_delete_many, lacks_encoding, lacks_bucket;
    bool ignores_prefix; /* a list of uploads has uploads of all prefixes */
    bool stands_still;   /* each page of objects is the first page */
    const char *text;    /* body of FAKE_ERROR_200 */
    int64_t ahead_sec;   /* how far the server's clock is ahead, in lists of uploads */
    bool says_no_length; /* replies to HEAD and GET have no Content-Length */
    const char *etag;    /* ETag of replies to reads; NULL: the object's version, not an MD5 */
    bool etag_opaque;    /* the reply marks the ETag as opaque */
    struct {
        int r;
        long status;
        const char *code;
    } refusal; /* how FAKE_REFUSE refuses a request */
    /* Called for each request before it is served. */
    void (*on_request)(FakeKind kind, const S3Request *request);
    size_t page; /* maximum of objects or uploads per page; 0: endless pages without an object */
    /* Records of the requests. */
    size_t n[FAKE_KINDS]; /* number of requests of each kind */
    bool sends_crc32c;    /* as set by s3_client_set_checksum() */
    uint64_t part_bytes_least, part_bytes_most;
    char complete_body[4096];
} FakeServer;

extern FakeServer fake;

void fake_reset(void);
/* Makes the at-th request of a kind from now on (1: the next) fail with the fault; at 0: all of them. */
void fake_break(FakeKind kind, size_t at, FakeFault fault);
void fake_mend(void);         /* removes all faults */
void fake_wait_stalled(void); /* waits until a request stalls */
/* Puts an object, or begins an upload, as another writer would. */
void fake_put(const char *name, const char *text);
void fake_begin_upload(const char *name, uint64_t begun_usec);
bool fake_has(const char *name);
size_t fake_n_objects(void);
size_t fake_n_uploads(void);

/* SPDX-License-Identifier: Apache-2.0 */
/* record-writer.h - keeps one record about a job up to date in etcd.
 *
 * The latest content wins: changes that come while a write is under way are written together after it. Each write is
 * guarded by the mod revision of worlds/<job> that the local world belongs to: a refusal means that the world has
 * moved. A write that fails for another reason is repeated, with the content of that time.
 *
 * The failed write may still wait in a member of etcd that was frozen, and must not be executed after the repeated
 * write. So each write is also guarded by the mod revision of its own key, which is read again if it is unknown.
 *
 * Ownership: a RecordWriter is part of its LocalWorld; record_writer_clear() cancels what is under way.
 * Units:     none.
 * Errors:    logged; a lost connection is not an error but a delay.
 */
#pragma once

#include "cluster/keys.h"
#include "daemon/loop/timer.h"
#include "etcd/etcd.h"

typedef struct LocalWorld LocalWorld;

/* Returns the text of the record, which the caller frees. */
typedef char *(*RecordEncoder)(LocalWorld *local);
/* Called when the content is in etcd. */
typedef void (*RecordDone)(LocalWorld *local);

typedef struct RecordWriter {
    LocalWorld *local;
    char key[KEY_MAX];
    bool leased; /* the record is put under this node's lease, and expires with it */
    RecordEncoder encode;
    RecordDone done; /* called when the content is in etcd; may be NULL; may free the local world */

    int64_t revision;    /* mod revision that the next write expects; 0: there is no key */
    int64_t guard;       /* `revision` that the last write expected */
    bool unsure;         /* `revision` must be read first */
    bool refused;        /* a guard failed; a read of the key shows which guard */
    bool wanted;         /* the content has changed since the last write began */
    bool told;           /* etcd has the present content */
    bool held;           /* no write may begin */
    EtcdCall *call;      /* the read or write under way; NULL: none */
    Timer retry;         /* runs after a write that failed */
    uint64_t retry_usec; /* the pause before the last retry; 0: the last write did not fail */
} RecordWriter;

void record_writer_init(RecordWriter *writer, LocalWorld *local, bool leased, RecordEncoder encode,
                        RecordDone done);
void record_writer_clear(RecordWriter *writer);
/* Writes the changed content now, or after the write or the pause that is under way. */
void record_writer_send(RecordWriter *writer);
/* Notes that another transaction may have put the record: the key is read before the next write. */
void record_writer_doubt(RecordWriter *writer);
/* Returns whether the key's mod revision is known, so that another transaction may put the record under that guard.
 * If not, reads the key, and the caller asks again later. */
bool record_writer_observe(RecordWriter *writer);
/* Notes that another transaction has put the record, with the content of the time when that transaction began.
 * revision 0: the key has expired with its lease. */
void record_writer_note(RecordWriter *writer, int64_t revision);
/* Stops writes until record_writer_release(), because another transaction puts the record. */
void record_writer_hold(RecordWriter *writer);
void record_writer_release(RecordWriter *writer);

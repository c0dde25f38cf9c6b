/* SPDX-License-Identifier: Apache-2.0 */
/* record-writer.h - a record about a job that this node keeps up to date in etcd.
 *
 * The latest content wins: changes that come while a write is under way are written together after
 * it. Each write is guarded by the mod revision of worlds/<job> that the local world belongs to: a refusal means
 * that the world has moved. A write that fails for another reason is repeated, with whatever the content is then.
 *
 * The first may still be on its way then, in a member that stood still, and must not count after the second. So each
 * write is guarded by the mod revision of its own key, too, which is read again where it is not known.
 *
 * Ownership: a RecordWriter is part of its LocalWorld; record_writer_clear() cancels what is under way.
 * Units:     none.
 * Errors:    logged; a lost connection is not an error but a delay.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "daemon/loop/timer.h"
#include "etcd/etcd.h"

typedef struct LocalWorld LocalWorld;

/* The text of the record, to be freed by the caller. */
typedef char *(*RecordEncoder)(LocalWorld *local);
/* The content is in etcd. */
typedef void (*RecordDone)(LocalWorld *local);

typedef struct RecordWriter {
    LocalWorld *local;
    char key[KEY_MAX];
    bool leased; /* the record is put under this node's lease, and goes with it */
    RecordEncoder encode;
    RecordDone done; /* called when the content is in etcd; may be NULL; may free the local world */

    int64_t
        revision;   /* mod revision of the key, as the next write expects it; 0: there is no key */
    int64_t guard;  /* `revision` as the last write expected it */
    bool unsure;    /* `revision` is to be read first */
    bool refused;   /* a guard did not hold: the read tells whether it was that of the world */
    bool wanted;    /* the content has changed since the last write began */
    bool told;      /* etcd has had the content as it is */
    bool held;      /* no write begins */
    EtcdCall *call; /* the read or write under way; NULL: none */
    Timer retry;    /* runs after a write that failed */
    uint64_t retry_usec; /* the last pause; 0: the last write was acknowledged */
} RecordWriter;

void record_writer_init(RecordWriter *writer, LocalWorld *local, bool leased, RecordEncoder encode,
                        RecordDone done);
void record_writer_clear(RecordWriter *writer);
/* The content has changed: writes it now, or after the write or the pause that is under way. */
void record_writer_send(RecordWriter *writer);
/* Another transaction may have put the record: what it left is read before the next write. */
void record_writer_doubt(RecordWriter *writer);
/* Whether the key's mod revision is known, so that another transaction may put the record under that guard. If not, it
 * is read, and the caller asks again later. */
bool record_writer_observe(RecordWriter *writer);
/* Another transaction has put the record, with all that it had to say when that began; or, revision 0, the key went
 * with its lease. */
void record_writer_note(RecordWriter *writer, int64_t revision);
/* Lets no write begin until record_writer_release(), because another transaction puts the record. */
void record_writer_hold(RecordWriter *writer);
void record_writer_release(RecordWriter *writer);

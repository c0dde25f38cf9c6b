/* SPDX-License-Identifier: Apache-2.0 */
/* record-writer.c - see record-writer.h. */
#include "daemon/world/record-writer.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/world/job.h"
#include "daemon/world/workload.h"

#include <string.h>

enum { RETRY_FIRST_MSEC = 100, RETRY_LAST_MSEC = 2000 };

static void record_writer_write(RecordWriter *writer);

void record_writer_init(RecordWriter *writer, LocalWorld *local, bool leased, RecordEncoder encode,
                        RecordDone done)
{
    assert(local && encode);
    *writer = (RecordWriter){.local = local, .leased = leased, .encode = encode, .done = done};
}

void record_writer_clear(RecordWriter *writer)
{
    writer->call = etcd_call_free(writer->call);
    timer_stop(&writer->retry);
    writer->wanted = writer->held = false;
}

static void on_writer_retry(void *userdata)
{
    RecordWriter *writer = userdata;
    if (writer->wanted)
        record_writer_write(writer);
}

static void record_writer_retry_later(RecordWriter *writer)
{
    writer->wanted = true;
    writer->retry_usec = CLAMP(writer->retry_usec * 2, RETRY_FIRST_MSEC * USEC_PER_MSEC,
                               RETRY_LAST_MSEC * USEC_PER_MSEC);
    if (!timer_runs(&writer->retry))
        timer_start(writer->local->job->workload->needs.timers, &writer->retry, writer->retry_usec,
                    on_writer_retry, writer);
}

/* Called when the guard on the world's record has failed. */
static void record_writer_refused(RecordWriter *writer)
{
    local_world_refused(writer->local, writer->key);
    if (writer->wanted && writer->local->over)
        record_writer_write(
            writer); /* the local world ended meanwhile, and its guard has changed */
}

static void on_writer_read(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    RecordWriter *writer = userdata;
    Workload *w = writer->local->job->workload;
    writer->call = NULL; /* the call frees itself */
    if (r < 0) {
        log_debug("cannot read %s: %s; trying again", writer->key, err->text);
        record_writer_retry_later(writer);
        return;
    }
    w->events.etcd_answered(w->events.userdata);
    int64_t revision = range->n_kvs > 0 ? range->kvs[0].mod_revision : 0;
    bool is_world = writer->refused && revision == writer->guard; /* the guard on the key held */
    bool is_to_be_written = writer->refused || writer->wanted;
    writer->revision = revision;
    writer->unsure = writer->refused = false;
    if (is_world)
        record_writer_refused(writer);
    else if (is_to_be_written)
        record_writer_write(writer);
    else
        w->events.may_be_idle(w->events.userdata); /* there is no more to write */
}

static void record_writer_read(RecordWriter *writer)
{
    Workload *w = writer->local->job->workload;
    int r = etcd_get(w->needs.etcd, writer->key, false, on_writer_read, writer, &writer->call);
    if (r < 0)
        record_writer_retry_later(writer);
}

static void on_writer_written(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    RecordWriter *writer = userdata;
    Workload *w = writer->local->job->workload;
    writer->call = NULL; /* the call frees itself */
    if (r < 0) {
        log_debug("%s: %s; trying again", writer->key, err->text);
        writer->unsure = true; /* the write may be executed, now or later */
        record_writer_retry_later(writer);
        return;
    }

    w->events.etcd_answered(w->events.userdata);
    writer->retry_usec = 0;
    if (!result->succeeded) {
        writer->refused = true;
        record_writer_read(writer);
        return;
    }
    writer->revision = result->revision;
    writer->told = !writer->wanted;
    if (writer->wanted)
        record_writer_write(writer);
    else if (writer->done)
        writer->done(writer->local);
    w->events.may_be_idle(w->events.userdata); /* a drain waits for this write */
}

static void record_writer_write(RecordWriter *writer)
{
    Workload *w = writer->local->job->workload;
    int64_t lease = writer->leased ? etcd_lease_id(w->needs.lease) : 0;
    assert(!writer->call && *writer->key);
    if (writer->leased && lease == 0)
        return; /* the next lease starts this write again */
    if (writer->held) {
        writer->wanted = true;
        return;
    }

    if (writer->unsure) {
        writer->wanted = true;
        record_writer_read(writer);
        return;
    }

    _cleanup_free_ char *text = writer->encode(writer->local);
    char world_key[KEY_MAX];
    const EtcdCompare guards[] = {
        {key_of(w->needs.config->cluster, KEY_WORLDS, writer->local->job->name, world_key),
         ETCD_MOD_REVISION, local_world_guard_revision(writer->local)},
        {writer->key, ETCD_MOD_REVISION, writer->revision},
    };
    EtcdOp put = {.kind = ETCD_PUT, .key = writer->key, .value = text, .lease = lease};
    writer->wanted = false;
    writer->guard = writer->revision;
    int r = etcd_txn(w->needs.etcd, guards, ELEMENTSOF(guards), &put, 1, on_writer_written, writer,
                     &writer->call);
    if (r < 0) {
        log_warning("%s: cannot write it: %s", writer->key, strerror(-r));
        record_writer_retry_later(writer);
    }
}

void record_writer_send(RecordWriter *writer)
{
    writer->wanted = true;
    writer->told = false;
    if (!writer->call && !timer_runs(&writer->retry))
        record_writer_write(writer);
}

void record_writer_doubt(RecordWriter *writer) { writer->unsure = true; }

bool record_writer_observe(RecordWriter *writer)
{
    if (writer->unsure && !writer->call) {
        timer_stop(&writer->retry);
        record_writer_read(writer);
    }
    return !writer->unsure;
}

void record_writer_note(RecordWriter *writer, int64_t revision)
{
    writer->revision = revision;
    writer->told = revision != 0 && !writer->wanted;
    writer->unsure = false;
    writer->refused = false; /* the refused content is older than the put content */
}

void record_writer_hold(RecordWriter *writer) { writer->held = true; }

void record_writer_release(RecordWriter *writer)
{
    bool was_held = writer->held;
    writer->held = false;
    if (was_held && writer->wanted && !writer->call && !timer_runs(&writer->retry))
        record_writer_write(writer);
}

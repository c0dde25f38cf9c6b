/* SPDX-License-Identifier: Apache-2.0 */
/* history.c - detects that the store's history is not the same as before (etcd.h, "which history"). */
#include "etcd/etcd-internal.h"

void etcd_set_history(Etcd *etcd, EtcdHistory known, EtcdHistoryHandler handler, void *userdata)
{
    etcd->history = known;
    etcd->on_history = handler;
    etcd->history_userdata = userdata;
}

EtcdHistory etcd_history(const Etcd *etcd) { return etcd->history; }

void history_note_revision(Etcd *etcd, int64_t revision)
{
    etcd->history.revision = MAX(etcd->history.revision, revision);
}

void history_note(EtcdCall *call, const Pb__ResponseHeader *header)
{
    Etcd *etcd = call->etcd;
    EtcdHistory *h = &etcd->history;
    if (!header || header->revision <= 0)
        return;
    bool other = h->cluster && header->cluster_id && header->cluster_id != h->cluster;
    if (!other && header->revision >= call->floor_revision) {
        h->cluster = header->cluster_id ? header->cluster_id : h->cluster;
        history_note_revision(etcd, header->revision);
        return;
    }
    const EtcdHistory was = *h;
    *h = (EtcdHistory){.cluster = header->cluster_id, .revision = header->revision};
    EtcdCall *each;
    LIST_FOREACH(each, &etcd->calls, list)
    each->floor_revision = 0; /* calls under way belong to the old history */
    if (etcd->on_history)
        etcd->on_history(&was, h, etcd->history_userdata);
}

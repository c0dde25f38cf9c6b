/* SPDX-License-Identifier: Apache-2.0 */
/* members.c - see members.h. */
#include "ctl/cluster/members.h"

#include <string.h>

enum { ASK_MSEC = 1500 };

typedef struct Query {
    Member *member;
    Etcd *etcd;
    bool done;
} Query;

static void on_status(int r, const Error *err, const EtcdStatus *status, void *userdata)
{
    Query *asking = userdata;
    asking->done = true;
    asking->member->r = r;
    if (r < 0)
        asking->member->error = *err;
    else
        asking->member->status = *status;
}

/* Copies the list's first "host:port", without a scheme, into ret. Returns the rest of the list. */
static const char *next_endpoint(const char *list, char *ret, size_t size)
{
    while (*list == ',' || *list == ' ')
        list++;
    size_t n = strcspn(list, ",");
    const char *scheme = strstr(list, "://");
    const char *from = scheme && scheme < list + n ? scheme + 3 : list;
    (void)snprintf(ret, size, "%.*s", (int)(list + n - from), from);
    return list + n;
}

static bool all_done(const Query *asking, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!asking[i].done)
            return false;
    return true;
}

static int request_one(sd_event *event, EtcdOptions options, Members *m, Query *asking, Error *err)
{
    options.timeout_usec = ASK_MSEC * USEC_PER_MSEC;
    for (size_t i = 0; i < m->n; i++) {
        options.endpoints = m->members[i].endpoint;
        asking[i].member = &m->members[i];
        int r = etcd_new(event, &options, &asking[i].etcd, err);
        r = r < 0 ? r : etcd_status(asking[i].etcd, on_status, &asking[i], NULL);
        if (r < 0)
            return r;
    }
    while (!all_done(asking, m->n)) { /* each status request has a deadline */
        int r = sd_event_run(event, UINT64_MAX);
        if (r < 0)
            return error_errno(err, r, "waiting for etcd");
    }
    return 0;
}

int members_request(const ClientOptions *options, Members *ret, Error *err)
{
    EtcdOptions etcd;
    *ret = (Members){0};
    int r = client_etcd_options(options, &etcd, err);
    if (r < 0)
        return r;
    for (const char *at = etcd.endpoints; *at && ret->n < MEMBERS_MAX;) {
        at = next_endpoint(at, ret->members[ret->n].endpoint, sizeof(ret->members[0].endpoint));
        ret->n += ret->members[ret->n].endpoint[0] != '\0';
    }

    sd_event *event;
    Query asking[MEMBERS_MAX] = {0};
    r = sd_event_new(&event);
    if (r < 0)
        return error_errno(err, r, "cannot make an event loop");
    r = request_one(event, etcd, ret, asking, err);
    for (size_t i = 0; i < ret->n; i++) {
        asking[i].etcd = etcd_free(asking[i].etcd);
        ret->n_answered += r == 0 && ret->members[i].r == 0;
        ret->has_leader |= r == 0 && ret->members[i].r == 0 && ret->members[i].status.leader != 0;
    }
    (void)sd_event_unref(event);
    return r;
}

const char *members_leader(const Members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const EtcdStatus *s = &m->members[i].status;
        if (m->members[i].r == 0 && s->leader != 0 && s->leader == s->member)
            return m->members[i].endpoint;
    }
    return "";
}

json_t *members_json(const Members *m)
{
    json_t *all = json_array();
    for (size_t i = 0; i < m->n; i++) {
        const Member *one = &m->members[i];
        const EtcdStatus *s = &one->status;
        json_array_append_new(
            all, one->r < 0 ? json_pack("{s:s, s:b, s:s}", "endpoint", one->endpoint, "answers", 0,
                                        "error", one->error.text)
                            : json_pack("{s:s, s:b, s:s, s:b, s:b, s:I, s:I, s:s}", "endpoint",
                                        one->endpoint, "answers", 1, "version", s->version, "leads",
                                        s->leader != 0 && s->leader == s->member, "sees_leader",
                                        s->leader != 0, "db_bytes", (json_int_t)s->db_bytes,
                                        "db_used_bytes", (json_int_t)s->db_used_bytes, "error",
                                        s->errors));
    }
    return all;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* forget.c - `sdctl node forget`: removes a lost node that will not return. The node's health and cordon records are
 * deleted, and the leader ends its incident. */
#include "base/clock.h"
#include "cluster/keys.h"
#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/node/verbs.h"
#include "ctl/requester.h"
#include "ctl/suggestion.h"

#include <string.h>

enum { TRIES = 5 };

/* The node's records as read. If another writer changes one of them meanwhile, all records are read again
 * before a record is removed. */
typedef struct Known {
    char keys[3][KEY_MAX]; /* keys of the records in nodes, health and cordons */
    int64_t revisions[3];  /* mod revisions; 0: there is no record */
} Known;

static int read_known(CtlClient *client, const char *node, Known *ret, Error *err)
{
    static const KeyKind kinds[] = {KEY_NODES, KEY_HEALTH, KEY_CORDONS};
    bool any = false;
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        (void)key_of(client->cluster, kinds[i], node, ret->keys[i]);
        int r = client_get(client, ret->keys[i], false, &answer, err);
        if (r < 0)
            return r;
        ret->revisions[i] = answer->n_kvs ? answer->kvs[0].mod_revision : 0;
        any |= answer->n_kvs > 0;
    }
    if (!any)
        return suggest_node_of(client, node, err);
    if (ret->revisions[0])
        return error_set(err, -EBUSY,
                         "node %s is here; sdctl node drain %s takes it out of service", node,
                         node);
    return 0;
}

/* Removes the records in one transaction, with guards, because the node may return or a cordon may be set meanwhile. */
static int remove_records(CtlClient *client, const char *node, const Known *known, bool *ret_done,
                          Error *err)
{
    char request[KEY_MAX];
    RequestRecord forget = {.at_usec = clock_realtime_usec(), .kind = "forget"};
    (void)snprintf(forget.id, sizeof(forget.id), "%llx-%x", (unsigned long long)forget.at_usec,
                   (unsigned)getpid());
    (void)requester_text(forget.by);
    (void)snprintf(forget.target, sizeof(forget.target), "%s", node);
    (void)key_of(client->cluster, KEY_REQUESTS, forget.id, request);
    _cleanup_free_ char *text = request_record_encode(&forget, NULL);
    EtcdCompare same[ELEMENTSOF(known->keys) + 1] = {
        {.key = request, .target = ETCD_CREATE_REVISION, .equals = 0}};
    for (size_t i = 0; i < ELEMENTSOF(known->keys); i++)
        same[i + 1] = (EtcdCompare){.key = known->keys[i],
                                    .target = ETCD_MOD_REVISION,
                                    .equals = known->revisions[i]};
    const EtcdOp ops[] = {{.kind = ETCD_DELETE, .key = known->keys[1]},
                          {.kind = ETCD_DELETE, .key = known->keys[2]},
                          {.kind = ETCD_PUT, .key = request, .value = text}};
    return client_txn(client, same, ELEMENTSOF(same), ops, ELEMENTSOF(ops), ret_done, err);
}

static int forget(CtlClient *client, const char *node, Error *err)
{
    bool done = false;
    for (int try = 0; try < TRIES && !done; try++) {
        Known known;
        int r = read_known(client, node, &known, err);
        if (r == 0)
            r = remove_records(client, node, &known, &done, err);
        if (r < 0)
            return r;
    }
    return done ? 0
                : error_set(err, -EAGAIN, "node %s was changed by others each time; try again",
                            node);
}

int node_forget(const Arguments *a)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    int r = client_open_for_node(&a->client, a->operand, &client, &err);
    if (r == 0)
        r = forget(&client, a->operand, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("node %s is forgotten, with what held it back\n", a->operand);
    return CTL_DONE;
}

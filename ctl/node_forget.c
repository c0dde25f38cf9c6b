/* node_forget.c - `sdctl node forget`: a lost node does not come back. What is known of its health and what
 * holds it back goes, and the leader ends its incident. */
#include "base/clock.h"
#include "cluster/keys.h"
#include "ctl/arguments.h"
#include "ctl/client.h"

#include <string.h>

/* Only of a node that is not here, and in one moment: it may come back just then. */
static int remove_records(Client *client, const char *node, Error *err)
{
    char here[KEY_MAX], health[KEY_MAX], cordon[KEY_MAX], request[KEY_MAX];
    bool done = false;
    _cleanup_free_ char *text = NULL;
    RequestRecord forget = {.at_usec = clock_realtime_usec(), .kind = "forget"};
    (void)key_of(client->cluster, KEY_NODES, node, here);
    (void)key_of(client->cluster, KEY_HEALTH, node, health);
    (void)key_of(client->cluster, KEY_CORDONS, node, cordon);
    (void)snprintf(forget.id, sizeof(forget.id), "%llx-%x", (unsigned long long)forget.at_usec,
                   (unsigned)getpid());
    (void)snprintf(forget.target, sizeof(forget.target), "%s", node);
    (void)key_of(client->cluster, KEY_REQUESTS, forget.id, request);
    if (request_record_encode(&forget, NULL, &text) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    const EtcdCompare absent = {.key = here, .target = ETCD_CREATE_REVISION, .equals = 0};
    const EtcdOp ops[] = {{.kind = ETCD_DELETE, .key = health},
                          {.kind = ETCD_DELETE, .key = cordon},
                          {.kind = ETCD_PUT, .key = request, .value = text}};
    int r = client_txn(client, &absent, 1, ops, ELEMENTSOF(ops), &done, err);
    if (r == 0 && !done)
        return error_set(err, -EBUSY,
                         "node %s is here; sdctl node drain %s takes it out of service", node,
                         node);
    return r;
}

static int must_be_known(Client *client, const char *node, Error *err)
{
    static const KeyKind kinds[] = {KEY_NODES, KEY_HEALTH, KEY_CORDONS};
    size_t n = 0;
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        char key[KEY_MAX];
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        int r =
            client_get(client, key_of(client->cluster, kinds[i], node, key), false, &answer, err);
        if (r < 0)
            return r;
        n += answer->n_kvs;
    }
    return n > 0 ? 0 : error_set(err, -ENOENT, "no node %s in cluster %s", node, client->cluster);
}

int node_forget(const Arguments *a)
{
    Error err = ERROR_INIT;
    Client client = {0};
    int r = 0;
    if (!name_is_valid(a->operand))
        r = error_set(&err, -ENOENT, "\"%s\" is not a node's name", a->operand);
    if (r == 0)
        r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = must_be_known(&client, a->operand, &err);
    if (r == 0)
        r = remove_records(&client, a->operand, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("node %s is forgotten, with what held it back\n", a->operand);
    return CTL_DONE;
}

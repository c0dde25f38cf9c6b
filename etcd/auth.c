/* SPDX-License-Identifier: Apache-2.0 */
/* auth.c - exchanges user and password for a token, and checks the user's rights.
 *
 * etcd's simple tokens expire after five minutes without use and are lost when a member restarts. Then etcd refuses a
 * request, the client drops the token, and the next attempt requests a new one here. */
#include "etcd/etcd-internal.h"

#include <string.h>

static const WireMethod authenticate = {
    .path = "/etcdserverpb.Auth/Authenticate",
    .purpose = "authentication",
    .response = &pb__authenticate_response__descriptor,
    .unary = true,
};

bool auth_token_refused(const RpcStatus *status)
{
    return (status->code == WIRE_UNAUTHENTICATED && strstr(status->text, "invalid auth token")) ||
           (status->code == WIRE_INVALID_ARGUMENT &&
            (strstr(status->text, "revision of auth store is old") ||
             strstr(status->text, "user name is empty")));
}

void auth_forget(Etcd *etcd)
{
    free(etcd->token);
    etcd->token = NULL;
}

/* Continues the calls that waited for this token request; on failure of the request, ends them with its error. */
static void round_end(Etcd *etcd, int r, const Error *err)
{
    unsigned round = etcd->auth_round++;
    EtcdCall *call;

    do {
        LIST_FOREACH(call, &etcd->calls, list)
        if (call->state == CALL_TOKENLESS && call->auth_round == round)
            break;
        if (call && r == 0)
            call_attempt(call);
        else if (call)
            /* The call's handler may free other calls, so the search begins anew at the list's head. */
            call_fail(call, r, err);
    } while (call);
}

static void authenticated(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message)
{
    Etcd *etcd = call->etcd;

    assert(etcd->authenticating == call && !etcd->token);
    etcd->authenticating = NULL;
    if (r == 0) {
        const Pb__AuthenticateResponse *answer = (const Pb__AuthenticateResponse *)message;
        etcd->token = memory_text(answer->token);
        secret_set_add(&etcd->secrets, etcd->token);
        secret_set_add(&etcd->secrets, etcd->password); /* the set may have dropped the password */
    } else if (strstr(err->text, "authentication is not enabled")) {
        etcd->token = memory_text("");
        r = 0;
    }
    message_free(message);
    round_end(etcd, r, err);
}

void auth_describe(const Etcd *etcd, const char *words, char ret[ETCD_WORDS_BYTES])
{
    (void)snprintf(ret, ETCD_WORDS_BYTES, "%s", words);
    secret_set_take_out(&etcd->secrets, ret);
}

bool auth_ready(Etcd *etcd)
{
    if (!etcd->user || etcd->token)
        return true;
    if (etcd->authenticating)
        return false;

    Pb__AuthenticateRequest request = PB__AUTHENTICATE_REQUEST__INIT;
    request.name = etcd->user;
    request.password = etcd->password;
    /* If no request can be made, the caller's own deadline ends the wait. */
    if (call_new(etcd, &authenticate, &request.base, authenticated, NULL, &etcd->authenticating) <
        0)
        return false;
    etcd->authenticating->anonymous = true;
    etcd->authenticating->repeatable = true;
    call_start(etcd->authenticating);
    return false;
}

int etcd_request_rights(Etcd *etcd, const char *key, EtcdTxnHandler handler, void *userdata,
                        EtcdCall **ret)
{
    const EtcdCompare never = {.key = key, .target = ETCD_VERSION, .equals = INT64_MAX};
    const EtcdOp ops[] = {{.kind = ETCD_GET, .key = key},
                          {.kind = ETCD_PUT, .key = key, .value = "never written"}};
    return etcd_txn(etcd, &never, 1, ops, ELEMENTSOF(ops), handler, userdata, ret);
}

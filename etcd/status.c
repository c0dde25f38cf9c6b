/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - requests the status of one member. */
#include "etcd/etcd-internal.h"

#include <string.h>

static const WireMethod status_method = {
    .path = "/etcdserverpb.Maintenance/Status",
    .purpose = "status",
    .response = &pb__status_response__descriptor,
    .unary = true,
    .leaderless = true,
};

static void on_status_answer(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message)
{
    if (r < 0) {
        call->user.status(r, err, NULL, call->userdata);
        return;
    }
    Pb__StatusResponse *answer = (Pb__StatusResponse *)message;
    /* before a text is cut: half a secret would stay */
    secret_set_take_out(&call->etcd->secrets, answer->version);
    for (size_t i = 0; i < answer->n_errors; i++)
        secret_set_take_out(&call->etcd->secrets, answer->errors[i]);
    EtcdStatus status = {
        .member = answer->header ? answer->header->member_id : 0,
        .leader = answer->leader,
        .db_bytes = answer->db_size,
        .db_used_bytes = answer->db_size_in_use,
    };
    (void)snprintf(status.version, sizeof(status.version), "%s", answer->version);
    size_t used = 0;
    for (size_t i = 0; i < answer->n_errors && used + 1 < sizeof(status.errors); i++) {
        int n = snprintf(status.errors + used, sizeof(status.errors) - used, "%s%s", i ? "; " : "",
                         answer->errors[i]);
        used = MIN(used + (size_t)n, sizeof(status.errors) - 1);
    }
    call->user.status(0, &ERROR_INIT, &status, call->userdata);
    message_free(message);
}

int etcd_status(Etcd *etcd, EtcdStatusHandler handler, void *userdata, EtcdCall **ret)
{
    EtcdCall *call;
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    int r = call_new(etcd, &status_method, &request.base, on_status_answer, NULL, &call);
    if (r < 0)
        return r;
    call->repeatable = true;
    call->anonymous = true; /* a token request needs a quorum, which may be missing */
    call->user.status = handler;
    call->userdata = userdata;
    call_start(call);
    if (ret)
        *ret = call;
    return 0;
}

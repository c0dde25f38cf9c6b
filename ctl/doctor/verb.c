/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c - `sdctl doctor`: checks etcd, controllers, nodes and stores, and prints faults with advice. */
#include "ctl/arguments.h"
#include "ctl/doctor/checks.h"
#include "ctl/print.h"

/* The default wait for nodes: a little more than the 16 s that sdtraind allows `sdtrainer doctor`. */
enum { NODES_SEC = 18 };

static void print_end(const Findings *f, const char *cluster)
{
    const size_t n = findings_wrong(f);
    findings_print(f);
    if (n == 0)
        printf("cluster %s: nothing is wrong\n", cluster);
    else
        printf("cluster %s: %zu thing%s wrong\n", cluster, n, n == 1 ? " is" : "s are");
}

typedef struct DoctorOptions {
    const char *file;
    double timeout_sec; /* < 0: not given */
} DoctorOptions;

#define OPTIONS_STRUCT DoctorOptions
static const CtlOption options[] = {
    {"file", 'f', "FILE", "try the stores of this job file, not those of the cluster's jobs",
     TAKES(TEXT, file)},
    {"timeout", 0, "SECONDS", "wait so long for nodes that do not answer; 18 by default",
     TAKES(SECONDS, timeout_sec)},
};
const CtlOptions doctor_options = CTL_OPTIONS(options, .timeout_sec = -1);

/* Runs the checks that need etcd's records. */
static int look(CtlClient *client, const Arguments *a, const Job *job, Findings *f, Error *err)
{
    const DoctorOptions *o = arguments_own(a);
    _cleanup_(model_freep) Model *model = NULL;
    Stores stores;
    int r = model_read(client, &model, err);
    if (r < 0)
        return r;
    check_etcd(client, f);
    check_controllers(model, f);
    check_node_records(model, f);
    check_room(model, f);
    stores_collect(model, job, &stores);
    check_stores(&stores, f);
    check_nodes(client, model, &stores, o->timeout_sec < 0 ? NODES_SEC : o->timeout_sec, f);
    stores_clear(&stores);
    return 0;
}

int doctor(const Arguments *a)
{
    const DoctorOptions *o = arguments_own(a);
    Error err = ERROR_INIT, members_err = ERROR_INIT;
    CtlClient client = {0};
    Members members;
    Findings f = {0};
    _cleanup_(job_freep) Job *job = NULL;
    int r = o->file ? job_read_file(o->file, &job, &err) : 0;
    r = r < 0 ? r : client_open(&a->client, &client, &err);
    r = r < 0 ? r : members_request(&a->client, &members, &members_err);
    if (r < 0) {
        client_close(&client);
        return ctl_fail(*err.text ? &err : &members_err, r);
    }
    check_members(&members, &f);
    if (members.n_answered == 0)
        r = error_set(&err, -ECONNREFUSED,
                      "no member of etcd answers, so nothing else was looked at");
    else
        r = look(&client, a, job, &f, &err);
    const size_t n_wrong = findings_wrong(&f);
    if (a->json)
        print_json(json_pack("{s:s, s:s, s:b, s:o}", "cluster", client.cluster, "etcd",
                             client.endpoints, "ok", r == 0 && n_wrong == 0, "findings",
                             findings_json(&f)));
    else
        print_end(&f, client.cluster);
    (void)fflush(stdout); /* so that the table is printed before the error */
    client_close(&client);
    findings_clear(&f);
    store_try_exit(r < 0 ? ctl_fail(&err, r) : n_wrong > 0 ? CTL_FAILED : CTL_DONE);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* testing-etcd.h - real etcd members on loopback, for tests.
 *
 *     TestingEtcd *etcd = testing_etcd_start(3, TESTING_ETCD_TLS);
 *     EtcdOptions options = testing_etcd_options(etcd);
 *     testing_etcd_kill(etcd, testing_etcd_leader(etcd));
 *
 * Members run in a temporary folder, on free ports of 127.0.0.1, with a heartbeat of 50 ms, an
 * election timeout of 500 ms and, except with TESTING_ETCD_DISKS, no fsync. They are killed when this process ends
 * (PDEATHSIG), even by a crash; the folder is removed by testing_etcd_stop(), or at exit.
 *
 * Ownership: testing_etcd_start() gives the caller a TestingEtcd; testing_etcd_stop() accepts NULL.
 *            Returned strings are valid until testing_etcd_stop().
 * Units:     members are counted from 0.
 * Errors:    none: if the setup fails, the test ends with a message and the members' logs.
 * Threads:   main thread only.
 */
#pragma once

#include "etcd/etcd.h"

#include <sys/types.h>

typedef struct TestingEtcd TestingEtcd;

typedef enum TestingEtcdFlags {
    TESTING_ETCD_TLS = 1 << 0,   /* clients and members must show a certificate */
    TESTING_ETCD_AUTH = 1 << 1,  /* clients must log in: user "root", password "secret" */
    TESTING_ETCD_DISKS = 1 << 2, /* members sync, to disks that can be stopped */
} TestingEtcdFlags;

/* Starts a cluster and waits until every member is healthy. */
TestingEtcd *testing_etcd_start(size_t n_members, TestingEtcdFlags flags);
TestingEtcd *testing_etcd_stop(TestingEtcd *etcd);
DEFINE_CLEANUP(TestingEtcd, testing_etcd_stop)

/* Returns all options that a client needs: endpoints, TLS files, user and password. */
EtcdOptions testing_etcd_options(const TestingEtcd *etcd);
const char *testing_etcd_endpoints(const TestingEtcd *etcd);               /* "host:port,..." */
const char *testing_etcd_endpoint(const TestingEtcd *etcd, size_t member); /* "host:port" */
const char *testing_etcd_folder(const TestingEtcd *etcd); /* has ca.pem, client.pem, client.key */
pid_t testing_etcd_pid(const TestingEtcd *etcd, size_t member); /* 0 while the member is dead */

void testing_etcd_kill(TestingEtcd *etcd, size_t member);    /* sends SIGKILL, waits for the exit */
void testing_etcd_restart(TestingEtcd *etcd, size_t member); /* keeps its data; does not wait */
void testing_etcd_freeze(TestingEtcd *etcd, size_t member);  /* sends SIGSTOP */
void testing_etcd_thaw(TestingEtcd *etcd, size_t member);
/* testing_etcd_stop_disk() needs TESTING_ETCD_DISKS, and testing_etcd_has_disks() must return true. While a disk is
 * stopped, the member's syncs wait, and its other threads continue. */
bool testing_etcd_has_disks(const TestingEtcd *etcd);
void testing_etcd_stop_disk(TestingEtcd *etcd, size_t member);
void testing_etcd_start_disk(TestingEtcd *etcd, size_t member);
void testing_etcd_wait_healthy(TestingEtcd *etcd, size_t member);
size_t testing_etcd_leader(TestingEtcd *etcd);

/* For TLS clusters: restarts the member with a certificate that its peers do not accept. The member serves clients but
 * never sees a leader, until it is killed and restarted. */
void testing_etcd_isolate(TestingEtcd *etcd, size_t member);

/* Runs etcdctl against the running members; arguments end with NULL. Ends the test if etcdctl fails. */
void testing_etcd_ctl(TestingEtcd *etcd, ...) __attribute__((sentinel));
/* Works like testing_etcd_ctl() on one member. Returns the output, which the caller must free; NULL if
 * etcdctl fails. */
char *testing_etcd_ask(TestingEtcd *etcd, size_t member, ...) __attribute__((sentinel));
/* Compacts all revisions before the present one. */
void testing_etcd_compact(TestingEtcd *etcd);

/* Runs the loop until condition holds; ends the test if that takes more than a minute. */
#define TESTING_RUN_UNTIL(event, condition)                                                        \
    do {                                                                                           \
        uint64_t _until = testing_deadline_usec();                                                 \
        while (!(condition))                                                                       \
            testing_run_once((event), _until, __FILE__, __LINE__, #condition);                     \
    } while (0)

uint64_t testing_deadline_usec(void);
void testing_run_once(sd_event *event, uint64_t until_usec, const char *file, int line,
                      const char *condition);

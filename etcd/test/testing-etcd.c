/* SPDX-License-Identifier: Apache-2.0 */
/* testing-etcd.c - see testing-etcd.h. Health and leadership are read from each member's plain HTTP metrics port, which
 * needs neither TLS nor a user. */
#include "etcd/test/testing-etcd.h"

#include "base/clock.h"
#include "base/file.h"
#include "etcd/test/testing-disk.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
    MEMBERS_MAX = 5,
    ARGS_MAX = 64,
    READY_SEC = 60, /* long enough for sanitizers on a busy machine */
    POLL_MSEC = 10,
    OUTPUT_BYTES_MAX = 1 << 20,
    MEMBER_PORTS = 3,
    BLOCK_PORTS = MEMBERS_MAX * MEMBER_PORTS,
    PORT_FIRST = 20000, /* below the kernel's range of ephemeral ports */
    BLOCKS = 800,
};

typedef struct Member {
    pid_t pid, disk; /* disk: the helper of testing-disk.h; 0: none */
    bool frozen;
    int client_port, peer_port, metrics_port;
    char endpoint[32];
    char *args[ARGS_MAX];
    char *log;
} Member;

struct TestingEtcd {
    TestingEtcd *next;
    size_t n_members;
    TestingEtcdFlags flags;
    char *folder, *endpoints, *ca, *cert, *key;
    int lock;       /* descriptor that holds the folder's lock */
    int ports_lock; /* socket that reserves the cluster's block of ports */
    Member members[MEMBERS_MAX];
};

static TestingEtcd *instances; /* all clusters; stopped at exit if a test did not stop them */

static char *text(const char *format, ...) _printf_(1, 2);
static char *text(const char *format, ...)
{
    char *ret;
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&ret, format, ap);
    va_end(ap);
    if (n < 0)
        abort();
    return ret;
}

static void _noreturn_ _printf_(2, 3) give_up(const TestingEtcd *etcd, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    (void)fprintf(stderr, "testing-etcd: ");
    (void)vfprintf(stderr, format, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
    for (size_t i = 0; etcd && i < etcd->n_members; i++) {
        char *log = NULL;
        size_t n = 0;
        if (etcd->members[i].log &&
            file_read(etcd->members[i].log, OUTPUT_BYTES_MAX, &log, &n, NULL) == 0)
            (void)fprintf(stderr, "--- member %zu\n%s", i, n > 4000 ? log + n - 4000 : log);
        free(log);
    }
    exit(1);
}

/* ---- processes ---- */

/* Starts a program. If ret_disk is not NULL, the program's disk can be stopped; *ret_disk is the pid of the helper
 * (testing-disk.h), or 0 if there is no helper. */
static pid_t spawn(const TestingEtcd *etcd, char *const args[], const char *output, pid_t *ret_disk)
{
    int report[2] = {-EBADF, -EBADF};
    if (ret_disk && pipe2(report, O_CLOEXEC) < 0)
        give_up(etcd, "pipe2: %s", strerror(errno));

    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        give_up(etcd, "fork: %s", strerror(errno));
    if (pid > 0) {
        (void)fd_close(report[1]);
        if (ret_disk && read(report[0], ret_disk, sizeof(*ret_disk)) != sizeof(*ret_disk))
            *ret_disk = 0;
        (void)fd_close(report[0]);
        return pid;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(126);
    int fd = open(output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        _exit(126);
    if (ret_disk)
        testing_disk_attach(report[1]);
    (void)setenv("ETCDCTL_API", "3", 1); /* fails only without memory; then etcdctl fails, too */
    execvp(args[0], args);
    _exit(127);
}

/* Runs a program and returns its exit status; its output is appended to the file `output`. */
static int command(const TestingEtcd *etcd, char *const args[], const char *output)
{
    int status;
    pid_t pid = spawn(etcd, args, output, NULL);

    if (waitpid(pid, &status, 0) < 0)
        give_up(etcd, "waitpid: %s", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void shell(const TestingEtcd *etcd, const char *script)
{
    char *args[] = {"sh", "-ec", (char *)script, NULL};
    _cleanup_free_ char *output = text("%s/shell.log", etcd->folder);

    if (command(etcd, args, output) != 0)
        give_up(etcd, "failed, see %s: %s", output, script);
}

/* ---- ports and health ---- */

/* Returns a socket that is bound to the port of 127.0.0.1, or a negative number if the port is taken. */
static int bind_port(int type, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    /* closed connections do not keep a member from listening */
    if (fd >= 0 && type == SOCK_STREAM)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        fd = fd_close(fd);
    return fd;
}

static bool are_free(int first, int n)
{
    for (int i = 0; i < n; i++) {
        _cleanup_fd_ int fd = bind_port(SOCK_STREAM, first + i);
        if (fd < 0)
            return false;
    }
    return true;
}

/* Reserves a block of BLOCK_PORTS ports until ret_lock is closed, and returns the first one. A member listens some time
 * after its port was found free, and another test must not find the port free in between: the lock is a UDP socket at
 * the block's first port. */
static int reserve_ports(int *ret_lock)
{
    unsigned draw;
    if (getrandom(&draw, sizeof(draw), 0) != sizeof(draw))
        give_up(NULL, "getrandom: %s", strerror(errno));
    for (unsigned i = 0; i < BLOCKS; i++) {
        const int first = PORT_FIRST + (int)((draw + i) % BLOCKS) * BLOCK_PORTS;
        *ret_lock = bind_port(SOCK_DGRAM, first);
        if (*ret_lock >= 0 && are_free(first, BLOCK_PORTS))
            return first;
        *ret_lock = fd_close(*ret_lock);
    }
    give_up(NULL, "no free ports");
}

/* Sends one HTTP request to the metrics port; returns false if no answer arrives within a second. */
static bool http_get(const Member *member, const char *path, char *ret, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)member->metrics_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char request[64];
    size_t n = 0;

    int n_request = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\n\r\n", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fd_write_all(fd, request, (size_t)n_request) < 0)
        return false;
    while (n + 1 < size) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&pollfd, 1, 1000) == 1 ? read(fd, ret + n, size - 1 - n) : -1;
        if (got < 0)
            return false;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    ret[n] = 0;
    return true;
}

static void pause_briefly(void) { (void)poll(NULL, 0, POLL_MSEC); }

void testing_etcd_wait_healthy(TestingEtcd *etcd, size_t i)
{
    uint64_t until = clock_boottime_usec() + READY_SEC * USEC_PER_SEC;
    char answer[4096];
    int status;

    for (;;) {
        if (http_get(&etcd->members[i], "/health", answer, sizeof(answer)) &&
            strstr(answer, "\"health\":\"true\""))
            return;
        if (waitpid(etcd->members[i].pid, &status, WNOHANG) > 0) {
            etcd->members[i].pid = 0;
            give_up(etcd, "member %zu ended with status %d", i, status);
        }
        if (clock_boottime_usec() > until)
            give_up(etcd, "member %zu is not healthy after %d s", i, READY_SEC);
        pause_briefly();
    }
}

size_t testing_etcd_leader(TestingEtcd *etcd)
{
    uint64_t until = clock_boottime_usec() + READY_SEC * USEC_PER_SEC;
    _cleanup_free_ char *answer = malloc(OUTPUT_BYTES_MAX);

    if (!answer)
        abort();
    for (;;) {
        for (size_t i = 0; i < etcd->n_members; i++)
            if (etcd->members[i].pid && !etcd->members[i].frozen &&
                http_get(&etcd->members[i], "/metrics", answer, OUTPUT_BYTES_MAX) &&
                strstr(answer, "\netcd_server_is_leader 1\n"))
                return i;
        if (clock_boottime_usec() > until)
            give_up(etcd, "no leader after %d s", READY_SEC);
        pause_briefly();
    }
}

/* ---- members ---- */

void testing_etcd_restart(TestingEtcd *etcd, size_t i)
{
    assert(i < etcd->n_members && etcd->members[i].pid == 0);
    Member *member = &etcd->members[i];
    member->pid = spawn(etcd, member->args, member->log,
                        etcd->flags & TESTING_ETCD_DISKS ? &member->disk : NULL);
}

void testing_etcd_kill(TestingEtcd *etcd, size_t i)
{
    assert(i < etcd->n_members);
    Member *member = &etcd->members[i];
    if (member->pid <= 0)
        return;
    (void)kill(member->pid, SIGKILL); /* the child is not reaped yet, so the pid is valid */
    (void)waitpid(member->pid, NULL, 0);
    member->pid = 0;
    member->frozen = false;
}

void testing_etcd_isolate(TestingEtcd *etcd, size_t i)
{
    Member *member = &etcd->members[i];
    char *args[ARGS_MAX] = {NULL};

    assert(i < etcd->n_members && etcd->flags & TESTING_ETCD_TLS);
    testing_etcd_kill(etcd, i);
    for (size_t j = 0; member->args[j]; j++)
        args[j] = member->args[j];
    _cleanup_free_ char *cert = text("--peer-cert-file=%s/stranger.pem", etcd->folder);
    _cleanup_free_ char *key = text("--peer-key-file=%s/stranger.key", etcd->folder);
    _cleanup_free_ char *ca = text("--peer-trusted-ca-file=%s/stranger.pem", etcd->folder);
    for (size_t j = 0; args[j]; j++)
        args[j] = !strncmp(args[j], "--peer-cert-file", 16)         ? cert
                  : !strncmp(args[j], "--peer-key-file", 15)        ? key
                  : !strncmp(args[j], "--peer-trusted-ca-file", 22) ? ca
                                                                    : args[j];
    member->pid = spawn(etcd, args, member->log, NULL);
}

static void signal_member(TestingEtcd *etcd, size_t i, int number, int expect)
{
    siginfo_t info;

    assert(i < etcd->n_members && etcd->members[i].pid > 0);
    if (kill(etcd->members[i].pid, number) < 0 ||
        waitid(P_PID, (id_t)etcd->members[i].pid, &info, expect) < 0)
        give_up(etcd, "cannot signal member %zu: %s", i, strerror(errno));
}

void testing_etcd_freeze(TestingEtcd *etcd, size_t i)
{
    signal_member(etcd, i, SIGSTOP, WSTOPPED);
    etcd->members[i].frozen = true;
}

void testing_etcd_thaw(TestingEtcd *etcd, size_t i)
{
    signal_member(etcd, i, SIGCONT, WCONTINUED);
    etcd->members[i].frozen = false;
}

static void signal_disk(TestingEtcd *etcd, size_t i, int number)
{
    assert(i < etcd->n_members && etcd->members[i].pid > 0 && etcd->members[i].disk > 0);
    if (kill(etcd->members[i].disk, number) < 0) /* the helper runs as long as its member */
        give_up(etcd, "cannot signal the disk of member %zu: %s", i, strerror(errno));
}

void testing_etcd_stop_disk(TestingEtcd *etcd, size_t i) { signal_disk(etcd, i, SIGSTOP); }
void testing_etcd_start_disk(TestingEtcd *etcd, size_t i) { signal_disk(etcd, i, SIGCONT); }
bool testing_etcd_has_disks(const TestingEtcd *etcd) { return etcd->members[0].disk > 0; }

static void member_set_up(TestingEtcd *etcd, size_t i, const char *cluster)
{
    Member *member = &etcd->members[i];
    const char *scheme = etcd->flags & TESTING_ETCD_TLS ? "https" : "http";
    char *folder = etcd->folder;
    size_t n = 0;

    member->log = text("%s/member%zu.log", folder, i);
    member->args[n++] = text("etcd");
    member->args[n++] = text("--name=m%zu", i);
    member->args[n++] = text("--data-dir=%s/data%zu", folder, i);
    member->args[n++] = text("--listen-client-urls=%s://127.0.0.1:%d", scheme, member->client_port);
    member->args[n++] =
        text("--advertise-client-urls=%s://127.0.0.1:%d", scheme, member->client_port);
    member->args[n++] = text("--listen-peer-urls=%s://127.0.0.1:%d", scheme, member->peer_port);
    member->args[n++] =
        text("--initial-advertise-peer-urls=%s://127.0.0.1:%d", scheme, member->peer_port);
    member->args[n++] = text("--listen-metrics-urls=http://127.0.0.1:%d", member->metrics_port);
    member->args[n++] = text("--initial-cluster=%s", cluster);
    member->args[n++] = text("--initial-cluster-state=new");
    member->args[n++] = text("--heartbeat-interval=50");
    member->args[n++] = text("--election-timeout=500");
    if (!(etcd->flags & TESTING_ETCD_DISKS))
        member->args[n++] = text("--unsafe-no-fsync");
    member->args[n++] = text("--logger=zap");
    member->args[n++] = text("--log-level=warn");
    if (etcd->flags & TESTING_ETCD_TLS)
        for (int peer = 0; peer < 2; peer++) {
            const char *prefix = peer ? "peer-" : "";
            member->args[n++] = text("--%scert-file=%s/server.pem", prefix, folder);
            member->args[n++] = text("--%skey-file=%s/server.key", prefix, folder);
            member->args[n++] = text("--%strusted-ca-file=%s/ca.pem", prefix, folder);
            member->args[n++] = text("--%sclient-cert-auth", prefix);
        }
    assert(n < ARGS_MAX);
}

static void certificates_make(const TestingEtcd *etcd)
{
    _cleanup_free_ char *script =
        text("cd %s\n"
             "new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'\n"
             "$new -x509 -days 30 -subj /CN=testing-ca -keyout ca.key -out ca.pem\n"
             "printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\\n"
             "extendedKeyUsage=serverAuth,clientAuth\\n' > extensions\n"
             "for name in server client; do\n"
             "$new -subj /CN=$name -keyout $name.key -out $name.csr\n"
             "openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 "
             "-extfile extensions -out $name.pem\n"
             "done\n"
             "$new -x509 -days 30 -subj /CN=stranger -keyout stranger.key -out stranger.pem\n",
             etcd->folder);
    shell(etcd, script);
}

/* ---- etcdctl ---- */

/* patient: a busy machine may take longer for a login than the two seconds that etcdctl allows by itself. */
static int ctl(const TestingEtcd *etcd, const char *endpoints, const char *output, bool user,
               bool patient, va_list ap)
{
    _cleanup_free_ char *endpoint_arg = text("--endpoints=%s", endpoints);
    _cleanup_free_ char *ca = text("--cacert=%s", etcd->ca ? etcd->ca : "");
    _cleanup_free_ char *cert = text("--cert=%s", etcd->cert ? etcd->cert : "");
    _cleanup_free_ char *key = text("--key=%s", etcd->key ? etcd->key : "");
    char *args[ARGS_MAX] = {"etcdctl", endpoint_arg};
    size_t n = 2;

    if (etcd->flags & TESTING_ETCD_TLS) {
        args[n++] = ca;
        args[n++] = cert;
        args[n++] = key;
    }
    if (user)
        args[n++] = "--user=root:secret";
    if (patient) {
        args[n++] = "--dial-timeout=30s";
        args[n++] = "--command-timeout=60s";
    }
    while ((args[n] = va_arg(ap, char *)) && n + 1 < ARGS_MAX)
        n++;
    return command(etcd, args, output);
}

static char *live_endpoints(const TestingEtcd *etcd)
{
    char *ret = text("%s", "");

    for (size_t i = 0; i < etcd->n_members; i++)
        if (etcd->members[i].pid && !etcd->members[i].frozen) {
            char *longer = text("%s%s%s", ret, *ret ? "," : "", etcd->members[i].endpoint);
            free(ret);
            ret = longer;
        }
    return ret;
}

static void ctl_or_give_up(TestingEtcd *etcd, bool user, va_list ap)
{
    _cleanup_free_ char *endpoints = live_endpoints(etcd);
    _cleanup_free_ char *output = text("%s/etcdctl.log", etcd->folder);

    if (ctl(etcd, endpoints, output, user, true, ap) != 0) {
        char *said = NULL;
        size_t n;
        (void)file_read(output, OUTPUT_BYTES_MAX, &said, &n, NULL); /* quoted in the message */
        give_up(etcd, "etcdctl failed: %s", said ? said : "");
    }
}

void testing_etcd_ctl(TestingEtcd *etcd, ...)
{
    va_list ap;
    va_start(ap, etcd);
    ctl_or_give_up(etcd, etcd->flags & TESTING_ETCD_AUTH, ap);
    va_end(ap);
}

static void __attribute__((sentinel)) ctl_without_user(TestingEtcd *etcd, ...)
{
    va_list ap;
    va_start(ap, etcd);
    ctl_or_give_up(etcd, false, ap);
    va_end(ap);
}

char *testing_etcd_ask(TestingEtcd *etcd, size_t member, ...)
{
    _cleanup_free_ char *output = text("%s/answer.log", etcd->folder);
    char *ret = NULL;
    size_t n;
    va_list ap;

    (void)unlink(output); /* fails if there is no such file */
    va_start(ap, member);
    int status = ctl(etcd, etcd->members[member].endpoint, output, etcd->flags & TESTING_ETCD_AUTH,
                     false, ap);
    va_end(ap);
    if (status != 0 || file_read(output, OUTPUT_BYTES_MAX, &ret, &n, NULL) < 0)
        return NULL;
    return ret;
}

void testing_etcd_compact(TestingEtcd *etcd)
{
    size_t leader = testing_etcd_leader(etcd);
    _cleanup_free_ char *answer =
        testing_etcd_ask(etcd, leader, "endpoint", "status", "-w", "json", NULL);
    const char *at = answer ? strstr(answer, "\"revision\":") : NULL;

    if (!at)
        give_up(etcd, "no revision in: %s", answer ? answer : "");
    _cleanup_free_ char *revision = text("%ld", strtol(at + strlen("\"revision\":"), NULL, 10));
    testing_etcd_ctl(etcd, "compact", "--physical", revision, NULL);
}

/* ---- creation and end ---- */

static pid_t owner;

static void stop_all(void)
{
    while (instances && getpid() == owner) /* not in the child processes of a test */
        (void)testing_etcd_stop(instances);
}

enum { FRESH_SEC = 60 };

/* Returns whether a folder was left over by an earlier test. The process that made a folder holds its lock, in whatever
 * PID namespace the process is; a folder that was just made may not be locked yet. */
static bool is_left_over(const char *folder)
{
    struct stat st;
    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_mtime + FRESH_SEC < time(NULL) &&
           flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* Removes folders of test programs that were killed. */
static void leftovers_remove(void)
{
    const char *prefix = "sdtrain-etcd-";
    DIR *folder = opendir("/tmp");
    struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        pid_t pid = (pid_t)strtol(entry->d_name + strlen(prefix), NULL, 10);
        if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH)
            continue;
        _cleanup_free_ char *path = text("/tmp/%s", entry->d_name);
        if (is_left_over(path))
            (void)folder_remove(path, NULL); /* best effort; another test may remove it, too */
    }
    if (folder)
        (void)closedir(folder);
}

TestingEtcd *testing_etcd_start(size_t n_members, TestingEtcdFlags flags)
{
    static bool registered;
    TestingEtcd *etcd = calloc(1, sizeof(*etcd));

    assert(etcd && n_members > 0 && n_members <= MEMBERS_MAX);
    leftovers_remove();
    if (!registered)
        (void)atexit(stop_all); /* if atexit() fails, PDEATHSIG still ends the members */
    registered = true;
    owner = getpid();
    etcd->next = instances;
    instances = etcd;
    etcd->flags = flags;
    etcd->folder = text("/tmp/sdtrain-etcd-%d-XXXXXX", getpid());
    if (!mkdtemp(etcd->folder))
        give_up(NULL, "%s: %s", etcd->folder, strerror(errno));
    etcd->lock = open(etcd->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (etcd->lock < 0 || flock(etcd->lock, LOCK_EX) < 0)
        give_up(NULL, "%s: %s", etcd->folder, strerror(errno));
    if (flags & TESTING_ETCD_TLS) {
        certificates_make(etcd);
        etcd->ca = text("%s/ca.pem", etcd->folder);
        etcd->cert = text("%s/client.pem", etcd->folder);
        etcd->key = text("%s/client.key", etcd->folder);
    }
    int port = reserve_ports(&etcd->ports_lock);
    char *cluster = text("%s", "");
    for (size_t i = 0; i < n_members; i++) {
        Member *member = &etcd->members[i];
        member->client_port = port++;
        member->peer_port = port++;
        member->metrics_port = port++;
        (void)snprintf(member->endpoint, sizeof(member->endpoint), "127.0.0.1:%d",
                       member->client_port);
        char *longer = text("%s%sm%zu=%s://127.0.0.1:%d", cluster, i ? "," : "", i,
                            flags & TESTING_ETCD_TLS ? "https" : "http", member->peer_port);
        free(cluster);
        cluster = longer;
    }
    etcd->n_members = n_members;
    for (size_t i = 0; i < n_members; i++) {
        member_set_up(etcd, i, cluster);
        testing_etcd_restart(etcd, i);
    }
    free(cluster);
    for (size_t i = 0; i < n_members; i++)
        testing_etcd_wait_healthy(etcd, i);
    etcd->endpoints = live_endpoints(etcd);
    if (flags & TESTING_ETCD_AUTH) {
        ctl_without_user(etcd, "role", "add", "root", NULL);
        ctl_without_user(etcd, "user", "add", "root:secret", NULL);
        ctl_without_user(etcd, "user", "grant-role", "root", "root", NULL);
        ctl_without_user(etcd, "auth", "enable", NULL);
    }
    return etcd;
}

TestingEtcd *testing_etcd_stop(TestingEtcd *etcd)
{
    if (!etcd)
        return NULL;
    for (TestingEtcd **at = &instances; *at; at = &(*at)->next)
        if (*at == etcd) {
            *at = etcd->next;
            break;
        }
    for (size_t i = 0; i < etcd->n_members; i++) {
        testing_etcd_kill(etcd, i);
        for (size_t j = 0; etcd->members[i].args[j]; j++)
            free(etcd->members[i].args[j]);
        free(etcd->members[i].log);
    }
    (void)folder_remove(etcd->folder, NULL); /* a folder that remains in /tmp does no harm */
    etcd->lock = fd_close(etcd->lock);
    etcd->ports_lock = fd_close(etcd->ports_lock);
    free(etcd->folder);
    free(etcd->endpoints);
    free(etcd->ca);
    free(etcd->cert);
    free(etcd->key);
    free(etcd);
    return NULL;
}

EtcdOptions testing_etcd_options(const TestingEtcd *etcd)
{
    bool auth = etcd->flags & TESTING_ETCD_AUTH;

    return (EtcdOptions){
        .endpoints = etcd->endpoints,
        .ca_file = etcd->ca,
        .cert_file = etcd->cert,
        .key_file = etcd->key,
        .user = auth ? "root" : NULL,
        .password = auth ? "secret" : NULL,
    };
}

const char *testing_etcd_endpoints(const TestingEtcd *etcd) { return etcd->endpoints; }
const char *testing_etcd_folder(const TestingEtcd *etcd) { return etcd->folder; }

const char *testing_etcd_endpoint(const TestingEtcd *etcd, size_t member)
{
    assert(member < etcd->n_members);
    return etcd->members[member].endpoint;
}

pid_t testing_etcd_pid(const TestingEtcd *etcd, size_t member)
{
    assert(member < etcd->n_members);
    return etcd->members[member].pid;
}

uint64_t testing_deadline_usec(void) { return clock_boottime_usec() + READY_SEC * USEC_PER_SEC; }

void testing_run_once(sd_event *event, uint64_t until_usec, const char *file, int line,
                      const char *condition)
{
    int r = sd_event_run(event, 100 * USEC_PER_MSEC);

    if (r < 0)
        give_up(instances, "%s:%d: the loop: %s", file, line, strerror(-r));
    if (clock_boottime_usec() > until_usec)
        give_up(instances, "%s:%d: not within %d s: %s", file, line, READY_SEC, condition);
}

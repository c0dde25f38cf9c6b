/* SPDX-License-Identifier: Apache-2.0 */
/* hostile.c - sends hostile packets to every port that listens in this network namespace, except the given ones.
 *
 *   hostile SECONDS PACKETS [PORT...]
 *
 * Each connection stays silent, or carries random bytes, headers of the ranks' protocols without the proof that a rank
 * sends, pieces of HTTP, or much data at once, in a few packets or in hundreds. Some connections stay open. The ports
 * are listed again and again, because ranks listen only for a moment. If many packets are wanted, several processes
 * send them. The program prints how many packets went to how many connections, and how many ports there were. It sends
 * only over TCP: none of the programs listens on UDP, which the test checks.
 *
 * Run it in its own namespace. */
#include "base/clock.h"
#include "base/number/philox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PORTS_MAX = 256,
    HELD = 300,
    BURST = 6, /* the largest number of packets that most connections carry */
    /* the largest number of packets over a connection that is drawn with probability 1/4, if many packets are wanted */
    LONG_BURST = 2000,
    /* the largest size of a packet of a long burst: larger packets would fill the peer's window */
    SHORT = 64,
    LOOK_MSEC = 3,
    SENDERS_MAX = 8,
    PACKETS_A_SENDER = 125000 /* this many packets keep one process busy for about a minute */
};

static struct {
    uint16_t skip[64], port[PORTS_MAX];
    size_t n_skip, n_ports;
    uint64_t seed, draws;
    uint32_t long_burst;
    int held[HELD];
} h;

/* The results of one sender process, which the parent reads. */
typedef struct Tally {
    bool ever[65536];
    uint64_t packets, connections;
} Tally;
static Tally *tally;

static uint32_t draw(void) { return philox4x32(h.seed, h.draws++, 0).word[0]; }

static bool skipped(unsigned port)
{
    for (size_t i = 0; i < h.n_skip; i++)
        if (h.skip[i] == port)
            return true;
    return false;
}

/* Lists the listening ports by the kernel's sock_diag, because each read of /proc/net/tcp walks all
 * tables of the kernel. */
static void look_for_ports(void)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 ask;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .ask = {.sdiag_family = AF_INET,
                         .sdiag_protocol = IPPROTO_TCP,
                         .idiag_states = 1 << TCP_LISTEN}};
    static char answer[65536] __attribute__((aligned(8)));
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool more = fd >= 0 && send(fd, &request, sizeof(request), 0) == sizeof(request);
    h.n_ports = 0;
    while (more) {
        ssize_t n = recv(fd, answer, sizeof(answer), 0);
        more = n > 0;
        for (struct nlmsghdr *m = (struct nlmsghdr *)answer; n > 0 && NLMSG_OK(m, (size_t)n);
             m = NLMSG_NEXT(m, n)) {
            const struct inet_diag_msg *listener = NLMSG_DATA(m);
            more = m->nlmsg_type != NLMSG_DONE && m->nlmsg_type != NLMSG_ERROR;
            unsigned port = more ? ntohs(listener->id.idiag_sport) : 0;
            if (port == 0 || skipped(port) || h.n_ports == PORTS_MAX)
                continue;
            h.port[h.n_ports++] = (uint16_t)port;
            tally->ever[port] = true;
        }
    }
    if (fd >= 0)
        (void)close(fd);
}

/* Connects from many source addresses, so that the ports do not run out. */
static int dial(uint16_t port)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7f000000 | (draw() & 0xffff) | 0x10000)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct linger hard = {.l_onoff = 1};
    int one = 1;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* one packet per send */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard,
                     sizeof(hard)); /* on failure the test is only less hostile */
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0 &&
        (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS))
        return fd;
    (void)close(fd);
    return -1;
}

static size_t compose(char *packet, size_t room)
{
    static const char http[] =
        "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n";
    static const uint32_t magics[] = {0x31767264, 0x32767264, 0x3174656d};
    for (size_t i = 0; i < 256; i += 16) { /* the rest of the packet keeps its previous bytes */
        const Philox noise = philox4x32(h.seed, h.draws++, 0);
        memcpy(packet + i, noise.word, 16);
    }
    uint32_t words[4] = {magics[draw() % 3], 1 + draw() % 2, 1 + draw() % 64, draw() % 1024};
    switch (draw() % 8) {
    case 0:
        return draw() % 200;
    case 1: /* a request to a rendezvous store: a request of 90 bytes once broke the store */
        memcpy(packet, words, sizeof(words));
        return 96 + words[2] + words[3];
    case 2: /* a call of a rank */
        words[0] = magics[2];
        words[1] = draw() % 4;
        words[2] = draw() % 4;
        words[3] = 0;
        memcpy(packet, words, sizeof(words));
        return 64;
    case 3:
        memcpy(packet, http, sizeof(http) - 1);
        return draw() % sizeof(http);
    case 4: /* a header of Gloo: length, kind, slot */
        memset(packet, 0, 48);
        packet[0] = 48;
        packet[8] = (char)(draw() % 5);
        return 48;
    case 5:
        return room;
    case 6:
        memset(packet, 0, 128);
        return 128;
    default:
        return 1;
    }
}

static void attack(void)
{
    static char packet[16384];
    int fd = dial(h.port[draw() % h.n_ports]);
    if (fd < 0)
        return;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, 0) == 0) { /* connect() is pending: on loopback the backlog is full */
        (void)close(fd);
        (void)usleep(200);
        return;
    }
    tally->connections++;
    const uint32_t burst = draw() % 4 == 0 ? h.long_burst : BURST;
    for (uint32_t n = 1 + draw() % burst; n > 0; n--) {
        const size_t size = compose(packet, sizeof(packet));
        if (send(fd, packet, burst > BURST ? MIN(size, (size_t)SHORT) : size,
                 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        tally->packets++;
    }
    int *place = &h.held[draw() % HELD];
    if (draw() % 4 == 0) { /* one connection of four stays open for a while */
        if (*place > 0)
            (void)close(*place);
        *place = fd;
    } else {
        (void)close(fd);
    }
}

/* Sends the given number of packets, spread over the given time. */
static void run(uint64_t usec, uint64_t packets)
{
    const uint64_t begun = clock_boottime_usec();
    uint64_t now = begun, looked = 0;
    for (; now - begun < usec && tally->packets < packets; now = clock_boottime_usec()) {
        if (now - looked > LOOK_MSEC * USEC_PER_MSEC) {
            look_for_ports();
            looked = now;
        }
        /* Sends packets only when they are due; the remaining time is left to the cluster. */
        const uint64_t due = (uint64_t)((double)packets * (double)(now - begun) / (double)usec);
        if (h.n_ports > 0 && tally->packets <= due)
            attack();
        else
            (void)usleep(500);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const uint64_t usec = (uint64_t)(atof(argv[1]) * 1e6), packets = strtoull(argv[2], NULL, 10);
    for (int i = 3; i < argc && h.n_skip < sizeof(h.skip) / sizeof(*h.skip); i++)
        h.skip[h.n_skip++] = (uint16_t)atoi(argv[i]);
    const uint64_t begun = clock_boottime_usec(),
                   n = MIN(1 + packets / PACKETS_A_SENDER, (uint64_t)SENDERS_MAX);
    Tally *all = mmap(NULL, SENDERS_MAX * sizeof(*all), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 1;
    for (uint64_t i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid > 0)
            continue;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* the test kills only the parent */
        tally = &all[i];
        h.seed = 77 + i;
        h.long_burst = n > 1 ? LONG_BURST : BURST;
        run(usec, packets / n);
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
    size_t n_ever = 0;
    uint64_t sent = 0, connections = 0;
    for (size_t port = 0; port < sizeof(all->ever); port++) {
        bool ever = false;
        for (uint64_t i = 0; i < n; i++)
            ever |= all[i].ever[port];
        n_ever += ever;
    }
    for (uint64_t i = 0; i < n; i++) {
        sent += all[i].packets;
        connections += all[i].connections;
    }
    printf("{\"packets\": %llu, \"connections\": %llu, \"ports\": %zu, \"seconds\": %.1f}\n",
           (unsigned long long)sent, (unsigned long long)connections, n_ever,
           (double)(clock_boottime_usec() - begun) / 1e6);
    return 0;
}

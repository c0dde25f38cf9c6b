/* SPDX-License-Identifier: Apache-2.0 */
/* testing-viewers.c - see testing-viewers.h. */
#include "controller/test/testing-viewers.h"

#include "base/memory.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

struct TestingViewers {
    sd_event_source *sources[TESTING_VIEWERS_MAX]; /* each source owns its socket */
    int n;
    uint64_t n_bytes;
};

static void give_up(const char *what)
{
    (void)fprintf(stderr, "viewers: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int on_bytes(_unused_ sd_event_source *source, int fd, _unused_ uint32_t revents,
                    void *userdata)
{
    TestingViewers *v = userdata;
    char bytes[16384];
    const ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        give_up("a stream has ended");
    if (v->n_bytes == 0 && (n < 12 || memcmp(bytes + 8, " 200", 4) != 0))
        give_up("the page is not served");
    v->n_bytes += (uint64_t)n;
    return 0;
}

static int connect_to(const char *address)
{
    static const char request[] = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n";
    char host[INET_ADDRSTRLEN] = "";
    const char *colon = strrchr(address, ':');
    struct sockaddr_in to = {.sin_family = AF_INET};
    (void)snprintf(host, sizeof(host), "%.*s", colon ? (int)(colon - address) : 0, address);
    if (!colon || inet_pton(AF_INET, host, &to.sin_addr) != 1)
        give_up("an address is not an IPv4 address and port");
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
        give_up("cannot look");
    return fd;
}

TestingViewers *testing_viewers_start(sd_event *event, const char *address, int n)
{
    TestingViewers *v = memory_new(TestingViewers);
    assert(n <= TESTING_VIEWERS_MAX);
    for (; v->n < n; v->n++) {
        sd_event_source **source = &v->sources[v->n];
        if (sd_event_add_io(event, source, connect_to(address), EPOLLIN, on_bytes, v) < 0 ||
            sd_event_source_set_io_fd_own(*source, true) < 0)
            give_up("cannot wait for bytes");
    }
    return v;
}

TestingViewers *testing_viewers_stop(TestingViewers *v)
{
    if (!v)
        return NULL;
    for (int i = 0; i < v->n; i++)
        v->sources[i] = sd_event_source_disable_unref(v->sources[i]);
    free(v);
    return NULL;
}

uint64_t testing_viewers_bytes(const TestingViewers *v) { return v->n_bytes; }

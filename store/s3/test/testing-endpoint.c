/* SPDX-License-Identifier: Apache-2.0 */
/* testing-endpoint.c - see testing-endpoint.h. */
#include "store/s3/test/testing-endpoint.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

enum { TEXT_MAX = 1 << 17, SILENT_MAX = 64, PATIENCE_MSEC = 10000 };

struct FakeEndpoint {
    EndpointAnswer answer;
    void *context;
    int listener, stop, port;
    pthread_t thread;
    int silent[SILENT_MAX];
    size_t n_silent;
    unsigned n_requests;
    char method[16], path[1024], head[TEXT_MAX], request[TEXT_MAX], reply[TEXT_MAX];
};

static void need(bool good, const char *what)
{
    if (!good) {
        perror(what);
        abort();
    }
}

/* Reads a whole request; Content-Length gives the length of its body. Returns false if the client closes the
 * connection. */
static bool read_request(FakeEndpoint *e, int fd, EndpointRequest *ret)
{
    size_t n = 0, wanted = SIZE_MAX;
    char *body = NULL;
    while (n < wanted) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (n == TEXT_MAX - 1 || poll(&p, 1, PATIENCE_MSEC) <= 0)
            return false;
        ssize_t got = read(fd, e->request + n, TEXT_MAX - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        e->request[n] = '\0';
        if (!body && (body = strstr(e->request, "\r\n\r\n"))) {
            const char *length = strcasestr(e->request, "\r\nContent-Length:");
            body += 4;
            wanted = (size_t)(body - e->request) +
                     (length && length < body ? strtoul(length + 17, NULL, 10) : 0);
        }
    }
    need(sscanf(e->request, "%15s %1023s", e->method, e->path) == 2, "a request's first line");
    memcpy(e->head, e->request, (size_t)(body - e->request));
    e->head[body - e->request] = '\0';
    *ret = (EndpointRequest){

        .method = e->method,
        .path = e->path,
        .head = e->head,
        .body = body,
        .number = ++e->n_requests};
    return true;
}

static void serve(FakeEndpoint *e, int fd)
{
    EndpointRequest request;
    bool heard = read_request(e, fd, &request);
    if (heard && !e->answer(e->context, &request, e->reply, sizeof(e->reply))) {
        need(e->n_silent < SILENT_MAX, "connections that are left open");
        e->silent[e->n_silent++] = fd;
        return;
    }
    if (heard) {
        size_t n = strlen(e->reply);
        for (size_t done = 0; done < n;) {
            ssize_t sent = send(fd, e->reply + done, n - done, MSG_NOSIGNAL);
            if (sent <= 0)
                break; /* the client has closed the connection */
            done += (size_t)sent;
        }
    }
    (void)close(fd); /* closing cannot lose data here */
}

static void *run(void *userdata)
{
    FakeEndpoint *e = userdata;
    for (;;) {
        struct pollfd p[] = {{.fd = e->listener, .events = POLLIN},
                             {.fd = e->stop, .events = POLLIN}};
        need(poll(p, 2, -1) > 0 || errno == EINTR, "poll");
        if (p[1].revents)
            return NULL;
        int fd = p[0].revents ? accept4(e->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0)
            serve(e, fd);
    }
}

FakeEndpoint *endpoint_start(const char *text, EndpointAnswer answer, void *context)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t n = sizeof(address);
    char host[32];
    uint16_t port;
    need(sscanf(text, "%31[^:]:%" SCNu16, host, &port) == 2 &&
             inet_pton(AF_INET, host, &address.sin_addr) == 1,
         "an address");
    address.sin_port = htons(port);
    FakeEndpoint *e = calloc(1, sizeof(*e));
    need(e, "memory");
    e->answer = answer;
    e->context = context;
    e->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    e->stop = eventfd(0, EFD_CLOEXEC);
    need(e->listener >= 0 && e->stop >= 0, "socket");
    need(bind(e->listener, (struct sockaddr *)&address, n) == 0, "bind");
    need(listen(e->listener, 16) == 0, "listen");
    need(getsockname(e->listener, (struct sockaddr *)&address, &n) == 0, "getsockname");
    e->port = ntohs(address.sin_port);
    need(pthread_create(&e->thread, NULL, run, e) == 0, "pthread_create");
    return e;
}

void endpoint_stop(FakeEndpoint *e)
{
    need(eventfd_write(e->stop, 1) == 0, "eventfd");
    need(pthread_join(e->thread, NULL) == 0, "pthread_join");
    for (size_t i = 0; i < e->n_silent; i++)
        (void)close(e->silent[i]); /* closing cannot lose data here */
    (void)close(e->listener);
    (void)close(e->stop);
    free(e);
}

int endpoint_port(const FakeEndpoint *e) { return e->port; }

void endpoint_reply(char *ret, size_t size, int status, int64_t date, const char *body)
{
    char line[64] = "";
    time_t time = (time_t)date;
    struct tm tm;
    if (date)
        (void)strftime(line, sizeof(line), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n",
                       gmtime_r(&time, &tm));
    need((size_t)snprintf(ret, size, "HTTP/1.1 %d Said\r\n%sContent-Length: %zu\r\n\r\n%s", status,
                          line, strlen(body), body) < size,
         "a reply that is too long");
}

bool endpoint_has_header(const EndpointRequest *request, const char *line)
{
    for (const char *p = request->head; (p = strstr(p, "\r\n")); p++)
        if (strncasecmp(p + 2, line, strlen(line)) == 0)
            return p[2 + strlen(line)] == '\r';
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* testing-s3.c - see testing-s3.h. One thread accepts connections; each connection has a thread that answers. */
#include "store/s3/test/testing-s3.h"

#include "base/clock.h"
#include "base/number/hash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { HEAD_MAX = 32768, OBJECTS_MAX = 512, BODY_MAX = 64 << 20 };

typedef struct Object {
    char path[512];
    uint8_t *data;
    size_t n;
    unsigned puts;
} Object;

typedef struct Connection {
    Fake *fake;
    struct Connection *next;
    pthread_t thread;
    int fd;
} Connection;

struct Fake {
    int fd, port;
    pthread_t thread;
    FakeScript script;
    void *context;
    atomic_bool stopping;
    pthread_mutex_t lock; /* guards the fields below */
    unsigned n_requests, n_connections;
    Object objects[OBJECTS_MAX];
    size_t n_objects;
    Connection *connections;
};

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "testing-s3: %s: %s\n", #condition, strerror(errno));            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- objects ---- */

static Object *object_find(Fake *fake, const char *path)
{
    size_t n = strcspn(path, "?");
    for (size_t i = 0; i < fake->n_objects; i++)
        if (strlen(fake->objects[i].path) == n && strncmp(fake->objects[i].path, path, n) == 0)
            return &fake->objects[i];
    return NULL;
}

static void object_put(Fake *fake, const char *path, const void *data, size_t n)
{
    Object *object = object_find(fake, path);
    if (!object) {
        MUST(fake->n_objects < OBJECTS_MAX);
        object = &fake->objects[fake->n_objects++];
        (void)snprintf(object->path, sizeof(object->path), "%.*s", (int)strcspn(path, "?"), path);
    }
    free(object->data);
    object->data = malloc(n + 1);
    MUST(object->data);
    if (n > 0)
        memcpy(object->data, data, n);
    object->n = n;
    object->puts++;
}

void fake_put(Fake *fake, const char *path, const void *data, size_t n_bytes)
{
    (void)pthread_mutex_lock(&fake->lock);
    object_put(fake, path, data, n_bytes);
    (void)pthread_mutex_unlock(&fake->lock);
}

bool fake_has(Fake *fake, const char *path, const void *data, size_t n_bytes)
{
    (void)pthread_mutex_lock(&fake->lock);
    Object *object = object_find(fake, path);
    bool has = object && object->data && object->n == n_bytes &&
               (n_bytes == 0 || memcmp(object->data, data, n_bytes) == 0);
    (void)pthread_mutex_unlock(&fake->lock);
    return has;
}

unsigned fake_puts(Fake *fake, const char *path)
{
    (void)pthread_mutex_lock(&fake->lock);
    Object *object = object_find(fake, path);
    unsigned puts = object ? object->puts : 0;
    (void)pthread_mutex_unlock(&fake->lock);
    return puts;
}

/* ---- requests ---- */

bool fake_header(const FakeRequest *request, const char *name, char *ret, size_t size)
{
    size_t n = strlen(name);
    for (const char *line = request->head; line; line = strstr(line, "\r\n")) {
        line += line == request->head ? 0 : 2;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            line += n + 1 + strspn(line + n + 1, " ");
            (void)snprintf(ret, size, "%.*s", (int)strcspn(line, "\r"), line);
            return true;
        }
    }
    return false;
}

/* Reads a request's head. It reads in large blocks, so bytes after the head are the start of the body. */
static bool read_head(int fd, char *head, size_t *n, size_t *n_head)
{
    *n = 0;
    for (;;) {
        ssize_t got = recv(fd, head + *n, HEAD_MAX - 1 - *n, 0);
        if (got <= 0)
            return false;
        *n += (size_t)got;
        head[*n] = '\0';
        char *end = strstr(head, "\r\n\r\n");
        if (end) {
            *n_head = (size_t)(end - head) + 4;
            return true;
        }
        if (*n == HEAD_MAX - 1)
            return false;
    }
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)); /* close() then sends RST */
}

static bool send_all(int fd, const void *data, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t r = send(fd, (const uint8_t *)data + sent, n - sent, MSG_NOSIGNAL);
        if (r <= 0)
            return false;
        sent += (size_t)r;
    }
    return true;
}

typedef struct Reply {
    int status;
    char head[4096];
    size_t n_head;
    uint8_t *body;
    size_t n_body;
} Reply;

static void reply_make(Reply *reply, const FakeStep *step, const char *more, const void *body,
                       size_t n_body, size_t length)
{
    char date[64];
    time_t now = step->date ? (time_t)step->date : (time_t)(clock_realtime_usec() / USEC_PER_SEC);
    struct tm tm;
    (void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    reply->n_head =
        (size_t)snprintf(reply->head, sizeof(reply->head),
                         "HTTP/1.1 %d Fine\r\nDate: %s\r\nContent-Length: %zu\r\n%s%s\r\n",
                         reply->status, date, length, more, step->headers ? step->headers : "");
    MUST(reply->n_head < sizeof(reply->head));
    reply->body = malloc(n_body + 1);
    MUST(reply->body);
    if (n_body > 0)
        memcpy(reply->body, body, n_body);
    reply->n_body = n_body;
}

static void reply_error_make(Reply *reply, const FakeStep *step, int status, const char *code,
                             bool is_head)
{
    char body[512] = "";
    if (code)
        (void)snprintf(body, sizeof(body),
                       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code>"
                       "<Message>as the script says</Message></Error>",
                       code);
    const char *text = step->body ? step->body : body;
    reply->status = status;
    reply_make(reply, step, "", text, is_head ? 0 : strlen(text), strlen(text));
}

static void serve_get(Fake *fake, const FakeRequest *request, const FakeStep *step, Reply *reply)
{
    bool is_head = strcmp(request->method, "HEAD") == 0;
    Object *object = object_find(fake, request->path);
    if (!object) {
        reply_error_make(reply, step, 404, "NoSuchKey", is_head);
        return;
    }
    size_t first = 0, n = object->n;
    char range[100], more[300] = "";
    reply->status = 200;
    unsigned long long a, b;
    if (fake_header(request, "range", range, sizeof(range)) &&
        sscanf(range, "bytes=%llu-%llu", &a, &b) == 2) {
        if (a >= object->n) {
            reply_error_make(reply, step, 416, "InvalidRange", is_head);
            return;
        }
        first = a;
        n = MIN(b + 1, object->n) - a;
        reply->status = 206;
        (void)snprintf(more, sizeof(more), "Content-Range: bytes %zu-%zu/%zu\r\n", first,
                       first + n - 1, object->n);
    }
    reply_make(reply, step, more, object->data + first, is_head ? 0 : n, n);
}

static void serve_put(Fake *fake, const FakeRequest *request, const FakeStep *step,
                      const uint8_t *body, size_t n_body, Reply *reply)
{
    char condition[64];
    if (fake_header(request, "if-none-match", condition, sizeof(condition)) &&
        object_find(fake, request->path)) {
        reply_error_make(reply, step, 412, "PreconditionFailed", false);
        return;
    }
    object_put(fake, request->path, body, n_body);
    reply->status = 200;
    reply_make(reply, step, "ETag: \"1\"\r\n", "", 0, 0);
}

static void serve(Fake *fake, const FakeRequest *request, const FakeStep *step, const uint8_t *body,
                  size_t n_body, Reply *reply)
{
    bool is_head = strcmp(request->method, "HEAD") == 0;
    (void)pthread_mutex_lock(&fake->lock);
    if (step->act == FAKE_ANSWER || step->act == FAKE_EARLY) {
        reply_error_make(reply, step, step->status, step->code, is_head);
    } else if (strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0) {
        serve_put(fake, request, step, body, n_body, reply);
    } else if (strcmp(request->method, "DELETE") == 0) {
        reply->status = 204;
        reply_make(reply, step, "", "", 0, 0);
    } else {
        serve_get(fake, request, step, reply);
    }
    (void)pthread_mutex_unlock(&fake->lock);
}

/* ---- connections ---- */

static void wait_for_the_end(const Connection *connection)
{
    struct pollfd gone = {.fd = connection->fd, .events = POLLRDHUP};
    while (!atomic_load(&connection->fake->stopping) && poll(&gone, 1, 20) <= 0)
        ;
}

/* Sends a reply as the step requires. Returns whether the connection continues. */
static bool answer(Connection *connection, const FakeStep *step, Reply *reply)
{
    int fd = connection->fd;
    size_t n = reply->n_head + reply->n_body;
    switch (step->act) {
    case FAKE_LOSE:
        reset(fd);
        return false;
    case FAKE_RESET:
    case FAKE_STALL:
        n = MIN(step->n, n);
        break;
    case FAKE_TRUNCATE:
        n = MIN(reply->n_head + step->n, n);
        break;
    case FAKE_CORRUPT:
        MUST(step->n < reply->n_body);
        reply->body[step->n] ^= 1;
        break;
    default:
        break;
    }
    size_t n_head = MIN(n, reply->n_head);
    if (!send_all(fd, reply->head, n_head) || !send_all(fd, reply->body, n - n_head))
        return false;
    if (step->act == FAKE_STALL || step->act == FAKE_EARLY)
        wait_for_the_end(connection);
    if (step->act == FAKE_RESET) {
        /* An RST discards bytes that the client has not read yet; this is intended. */
        reset(fd);
    }
    return step->act == FAKE_SERVE || step->act == FAKE_ANSWER || step->act == FAKE_CORRUPT;
}

/* Reads the body, or as much of it as the step requires. Returns false if the connection has ended, or must end now. */
static bool read_body(const Connection *connection, const FakeStep *step, const char *begun,
                      size_t n_begun, uint8_t *body, size_t n_body)
{
    bool cut = step->act == FAKE_DEAF || step->act == FAKE_HOLD || step->act == FAKE_EARLY;
    size_t n = MIN(n_begun, n_body);
    memcpy(body, begun, n);
    while (n < n_body && !(cut && n >= step->n)) {
        ssize_t got = recv(connection->fd, body + n, n_body - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
    }
    if (step->act == FAKE_DEAF)
        reset(connection->fd);
    if (step->act == FAKE_HOLD)
        wait_for_the_end(connection);
    return !cut || step->act == FAKE_EARLY;
}

static bool serve_one(Connection *connection, char *head)
{
    Fake *fake = connection->fake;
    size_t n, n_head;
    if (!read_head(connection->fd, head, &n, &n_head))
        return false;
    _cleanup_free_ char *text = strndup(head, n_head);
    MUST(text);
    char method[16], path[2048], value[64];
    MUST(sscanf(text, "%15s %2047s", method, path) == 2);
    FakeRequest request = {.method = method, .path = path, .head = text};

    (void)pthread_mutex_lock(&fake->lock);
    request.number = ++fake->n_requests;
    FakeStep step = fake->script ? fake->script(fake->context, &request) : (FakeStep){0};
    (void)pthread_mutex_unlock(&fake->lock);

    size_t n_body = 0;
    if (fake_header(&request, "content-length", value, sizeof(value)))
        n_body = strtoull(value, NULL, 10);
    MUST(n_body <= BODY_MAX);
    _cleanup_free_ uint8_t *body = malloc(n_body + 1);
    MUST(body);
    if (!read_body(connection, &step, head + n_head, n - n_head, body, n_body))
        return false;
    if (step.act == FAKE_RAW) {
        (void)send_all(connection->fd, step.body, strlen(step.body));
        return false;
    }
    Reply reply = {0};
    serve(fake, &request, &step, body, n_body, &reply);
    bool on = answer(connection, &step, &reply);
    free(reply.body);
    return on;
}

static void *connection_run(void *userdata)
{
    Connection *connection = userdata;
    char *head = malloc(HEAD_MAX);
    MUST(head);
    while (serve_one(connection, head))
        ;
    free(head);
    (void)pthread_mutex_lock(&connection->fake->lock);
    connection->fd = fd_close(connection->fd);
    (void)pthread_mutex_unlock(&connection->fake->lock);
    return NULL;
}

static void *fake_run(void *userdata)
{
    Fake *fake = userdata;
    for (;;) {
        int fd = accept4(fake->fd, NULL, NULL, SOCK_CLOEXEC), on = 1;
        if (fd < 0 && atomic_load(&fake->stopping))
            return NULL;
        if (fd < 0)
            continue; /* the client has closed the connection already */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        Connection *connection = calloc(1, sizeof(*connection));
        MUST(connection);
        *connection = (Connection){.fake = fake, .fd = fd};
        (void)pthread_mutex_lock(&fake->lock);
        fake->n_connections++;
        connection->next = fake->connections;
        fake->connections = connection;
        MUST(pthread_create(&connection->thread, NULL, connection_run, connection) == 0);
        (void)pthread_mutex_unlock(&fake->lock);
    }
}

/* ---- start and stop ---- */

Fake *fake_start(FakeScript script, void *context)
{
    Fake *fake = calloc(1, sizeof(*fake));
    MUST(fake);
    fake->script = script;
    fake->context = context;
    MUST(pthread_mutex_init(&fake->lock, NULL) == 0);
    fake->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fake->fd >= 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    MUST(bind(fake->fd, (struct sockaddr *)&address, size) == 0);
    MUST(listen(fake->fd, 256) == 0);
    MUST(getsockname(fake->fd, (struct sockaddr *)&address, &size) == 0);
    fake->port = ntohs(address.sin_port);
    MUST(pthread_create(&fake->thread, NULL, fake_run, fake) == 0);
    return fake;
}

void fake_stop(Fake *fake)
{
    atomic_store(&fake->stopping, true);
    (void)shutdown(fake->fd, SHUT_RDWR); /* wakes accept() */
    (void)pthread_join(fake->thread, NULL);
    (void)fd_close(fake->fd);
    for (Connection *c = fake->connections, *next; c; c = next) {
        next = c->next;
        (void)pthread_mutex_lock(&fake->lock);
        if (c->fd >= 0)
            (void)shutdown(c->fd, SHUT_RDWR);
        (void)pthread_mutex_unlock(&fake->lock);
        (void)pthread_join(c->thread, NULL);
        free(c);
    }
    for (size_t i = 0; i < fake->n_objects; i++)
        free(fake->objects[i].data);
    (void)pthread_mutex_destroy(&fake->lock);
    free(fake);
}

int fake_port(const Fake *fake) { return fake->port; }

unsigned fake_requests(Fake *fake)
{
    (void)pthread_mutex_lock(&fake->lock);
    unsigned n = fake->n_requests;
    (void)pthread_mutex_unlock(&fake->lock);
    return n;
}

unsigned fake_connections(Fake *fake)
{
    (void)pthread_mutex_lock(&fake->lock);
    unsigned n = fake->n_connections;
    (void)pthread_mutex_unlock(&fake->lock);
    return n;
}

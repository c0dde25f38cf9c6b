/* testing-endpoint.h - a small HTTP server on loopback that answers as a test says: with a reply,
 * with garbage, late, or not at all.
 *
 * Ownership: endpoint_start() gives the caller an Endpoint; a request's texts are valid in the answer.
 * Units:     bytes.
 * Errors:    what cannot be set up ends the process.
 * Threads:   `answer` is called on the endpoint's thread, one request at a time.
 */
#pragma once

#include "base/macro.h"

typedef struct FakeEndpoint FakeEndpoint;

typedef struct EndpointRequest {
    const char *method, *path;
    const char *head; /* all lines, the first one included */
    const char *body;
    unsigned number; /* counted from 1 */
} EndpointRequest;

/* What is written is sent as it is, then the connection is closed. False: nothing is sent, and the
 * connection stays open until the endpoint stops. */
typedef bool (*EndpointAnswer)(void *context, const EndpointRequest *request, char *ret,
                               size_t size);

/* address: "127.0.0.1:0", 0 being a port of the kernel's choice. */
FakeEndpoint *endpoint_start(const char *address, EndpointAnswer answer, void *context);
void endpoint_stop(FakeEndpoint *endpoint);
int endpoint_port(const FakeEndpoint *endpoint);
/* A whole reply; date 0: no Date header. */
void endpoint_reply(char *ret, size_t size, int status, int64_t date, const char *body);
/* Whether the head holds the line, whatever the case of its name. */
bool endpoint_has_header(const EndpointRequest *request, const char *line);

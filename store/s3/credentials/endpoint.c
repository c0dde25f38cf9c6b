/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c - credentials from an endpoint of this machine: a container's (ECS, EKS Pod Identity) or the instance's
 * metadata (IMDSv2). Both endpoints answer with the same JSON. */
#include "base/memory.h"
#include "base/text/secret.h"
#include "store/s3/credentials/source.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <string.h>
#include <strings.h>

enum {
    CONNECT_MSEC = 1000,
    WHOLE_MSEC = 5000,
    /* An instance's endpoint answers in milliseconds. On other machines, and in a container that is more network hops
     * away than the instance allows, no answer arrives. */
    FIRST_MSEC = 1000,
    ROLE_MAX = 128,
};

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST "http://169.254.169.254"
#define INSTANCE_HOST_IPV6 "http://[fd00:ec2::254]"
#define ROLES "/latest/meta-data/iam/security-credentials/"

/* ---- the container's endpoint ---- */

/* Returns whether a URL's host is loopback or a container's endpoint. An IPv6 host is compared without its brackets. */
static bool host_is_near(const char *host)
{
    char bare[64];
    struct in_addr v4;
    struct in6_addr v6, pod;
    size_t n = strlen(host);

    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1) {
        uint32_t address = ntohl(v4.s_addr);
        return address >> 24 == 127 || address == 0xa9feaa02 || address == 0xa9feaa17;
    }
    if (n < 3 || n - 2 >= sizeof(bare) || host[0] != '[' || host[n - 1] != ']')
        return false;
    memcpy(bare, host + 1, n - 2);
    bare[n - 2] = '\0';
    return inet_pton(AF_INET6, bare, &v6) == 1 && inet_pton(AF_INET6, "fd00:ec2::23", &pod) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || memcmp(&v6, &pod, sizeof(v6)) == 0);
}

static void url_cleanup(CURLU **url) { curl_url_cleanup(*url); }
static void curl_freep(char **p) { curl_free(*p); }

/* Refuses URLs to which the token must not be sent. libcurl's own parser extracts the host. */
static int check_url(const char *text, Error *err)
{
    _cleanup_(url_cleanup) CURLU *url = memory_given(curl_url());
    _cleanup_(curl_freep) char *scheme = NULL, *host = NULL, *user = NULL;
    if (curl_url_set(url, CURLUPART_URL, text, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_USER, &user, 0) != CURLUE_NO_USER)
        return error_set(err, -EINVAL,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI is not a plain http or https URL");
    if (strcmp(scheme, "https") == 0 || (strcmp(scheme, "http") == 0 && host_is_near(host)))
        return 0;
    return error_set(err, -EINVAL,
                     "AWS_CONTAINER_CREDENTIALS_FULL_URI is %s to %s: it must be https, or http to "
                     "loopback, 169.254.170.2 or 169.254.170.23",
                     scheme, host);
}

static int set_token(S3Source *source, Error *err)
{
    const char *file = s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (file)
        source->token_file = memory_text(file);
    else if (token && strpbrk(token, "\r\n"))
        return error_set(err, -EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN holds a line's end");
    else if (token)
        source->token = memory_text(token);
    return 0;
}

int source_find_container(S3Source *source, Error *err)
{
    const char *relative = s3_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = s3_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!relative && !full)
        return -ENOENT;
    if (relative && relative[0] != '/')
        return error_set(err, -EINVAL,
                         "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is %s: it must begin with /",
                         relative);
    int r = relative ? 0 : check_url(full, err);
    if (r < 0)
        return r;
    source->kind = S3_SOURCE_CONTAINER;
    source->url = memory_format("%s%s", relative ? CONTAINER_HOST : "", relative ?: full);
    _cleanup_free_ char *place = source_place(source->url); /* the URL's path is a secret, too */
    source->name = memory_format("the container's endpoint %s", place);
    return set_token(source, err);
}

/* Reads the credentials of a reply. A refusal may have its reason in JSON; a status that may be temporary becomes
 * -EHOSTUNREACH, after which the fetch is tried again. */
static int read_credentials(S3Source *source, const S3HttpReply *reply, S3Fetched *ret, Error *err)
{
    int r = credentials_parse_json(source, reply->body, reply->n_body, &ret->credentials, err);
    ret->server_time = reply->date;
    if (reply->status == 200)
        return r;
    if (r != -EACCES)
        (void)error_set(err, -EACCES, "%s: no credentials", source->name);
    r = reply->status >= 500 || reply->status == 429 ? -EHOSTUNREACH : -EACCES;
    return error_prefix(err, r, "status %ld", reply->status);
}

static int send_request(S3Source *source, S3HttpRequest *request, S3HttpReply *ret, Error *err)
{
    request->connect_msec = CONNECT_MSEC;
    request->direct = true;
    request->ca_bundle = source->ca_bundle;
    int r = s3_http_request(source->http, request, ret, err);
    return r < 0 ? error_prefix(err, r == -EBADMSG ? -EACCES : r, "%s", source->name) : r;
}

int source_fetch_container(S3Source *source, S3Fetched *ret, Error *err)
{
    int r = source_read_token(source, err);
    if (r < 0)
        return r;
    _cleanup_secret_ char *authorization =
        source->token ? memory_format("Authorization: %s", source->token) : NULL;
    S3HttpRequest request = {.method = "GET",
                             .url = source->url,
                             .headers = {authorization},
                             .whole_msec = WHOLE_MSEC};
    S3HttpReply reply;
    r = send_request(source, &request, &reply, err);
    return r < 0 ? r : read_credentials(source, &reply, ret, err);
}

/* ---- the instance's metadata ---- */

int source_find_instance(S3Source *source)
{
    const char *disabled = s3_variable("AWS_EC2_METADATA_DISABLED");
    const char *endpoint = s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    if (disabled && strcasecmp(disabled, "true") == 0)
        return -ENOENT;
    if (!endpoint)
        endpoint = mode && strcasecmp(mode, "ipv6") == 0 ? INSTANCE_HOST_IPV6 : INSTANCE_HOST;
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    source->kind = S3_SOURCE_INSTANCE;
    source->url = memory_bytes(endpoint, n);
    _cleanup_free_ char *place = source_place(source->url);
    source->name = memory_format("the metadata of the instance (%s)", place);
    return 0;
}

/* Sends one GET, with the token, to a path of the instance's endpoint. */
static int metadata_get(S3Source *source, const char *path, const char *more, S3HttpReply *ret,
                        Error *err)
{
    _cleanup_free_ char *url = memory_format("%s%s%s", source->url, path, more);
    _cleanup_secret_ char *header = memory_format("X-aws-ec2-metadata-token: %s", source->token);
    S3HttpRequest request = {.method = "GET",
                             .url = url,
                             .headers = {header},
                             .whole_msec = WHOLE_MSEC};
    return send_request(source, &request, ret, err);
}

static int status_error(const S3Source *source, const char *what, long status, Error *err)
{
    return error_set(err, status >= 500 || status == 429 ? -EHOSTUNREACH : -EACCES,
                     "%s: asked for %s, it answered status %ld", source->name, what, status);
}

static int metadata_token(S3Source *source, Error *err)
{
    _cleanup_free_ char *url = memory_format("%s/latest/api/token", source->url);
    S3HttpRequest request = {.method = "PUT",
                             .url = url,
                             .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
                             .body = "",
                             .whole_msec = source->answered ? WHOLE_MSEC : FIRST_MSEC};
    S3HttpReply reply;
    int r = send_request(source, &request, &reply, err);
    if (r < 0)
        return r;
    if (reply.status != 200)
        return status_error(source, "a token", reply.status, err);
    size_t n = strcspn(reply.body, "\r\n");
    if (n == 0 || n > 1024 ||
        n != strspn(reply.body, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz0123456789+/=-_."))
        return error_set(err, -EACCES, "%s: what it gave is not a token", source->name);
    secret_free(source->token);
    source->token = memory_bytes(reply.body, n);
    return 0;
}

static int metadata_role(S3Source *source, char ret[ROLE_MAX], Error *err)
{
    S3HttpReply reply;
    int r = metadata_get(source, ROLES, "", &reply, err);
    if (r < 0)
        return r;
    if (reply.status == 404)
        return error_set(err, -EACCES, "%s: the instance has no role; attach an instance profile",
                         source->name);
    if (reply.status != 200)
        return status_error(source, "its role", reply.status, err);
    size_t n = strcspn(reply.body, "\r\n");
    if (n == 0 || n >= ROLE_MAX ||
        n != strspn(reply.body, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz0123456789"
                                "+=,.@_-"))
        return error_set(err, -EACCES, "%s: what it gave is not a role's name", source->name);
    memcpy(ret, reply.body, n);
    ret[n] = '\0';
    return 0;
}

int source_fetch_instance(S3Source *source, S3Fetched *ret, Error *err)
{
    char role[ROLE_MAX];
    S3HttpReply reply;
    int r = metadata_token(source, err);
    if (r >= 0)
        r = metadata_role(source, role, err);
    if (r >= 0)
        r = metadata_get(source, ROLES, role, &reply, err);
    return r < 0 ? r : read_credentials(source, &reply, ret, err);
}

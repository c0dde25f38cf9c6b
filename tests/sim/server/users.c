/* SPDX-License-Identifier: Apache-2.0 */
/* users.c - passwords, tokens and rights.
 *
 * Tokens are etcd's simple tokens: every member that applies the request for a token knows the token, until the member
 * restarts or has not seen the token for five minutes. */
#include "tests/sim/server/server-internal.h"

#include <string.h>

enum { TOKEN_SEC = 300, TOKEN_LETTERS = 16 };

static const Refusal denied = {SERVER_PERMISSION_DENIED, "etcdserver: permission denied"};

static User *user_find(const Users *users, const char *name)
{
    for (size_t i = 0; i < users->n; i++)
        if (!strcmp(users->users[i].name, name))
            return &users->users[i];
    return NULL;
}

void server_add_user(Server *server, const char *name, const char *password)
{
    Users *users = &server->users;

    assert(!user_find(users, name));
    users->users = memory_grow(users->users, users->n, &users->room, sizeof(User));
    users->users[users->n++] = (User){.name = memory_text(name), .password = memory_text(password)};
    users->revision++;
}

static void right_add(User *user, ServerRights rights, Bytes begin, Bytes end)
{
    Right right = {
        .rights = rights,
        .begin = memory_bytes(begin.data, begin.n),
        .end = memory_bytes(end.data, end.n),
    };

    right.range = key_range((ProtobufCBinaryData){.len = begin.n, .data = (uint8_t *)right.begin},
                            (ProtobufCBinaryData){.len = end.n, .data = (uint8_t *)right.end});
    user->rights = memory_grow(user->rights, user->n_rights, &user->room, sizeof(Right));
    user->rights[user->n_rights++] = right;
}

void server_grant(Server *server, const char *user, ServerRights rights, const char *key,
                  const char *range_end, size_t n_range_end)
{
    User *of = user_find(&server->users, user);

    assert(of);
    right_add(of, rights, (Bytes){.data = (const uint8_t *)key, .n = strlen(key)},
              (Bytes){.data = (const uint8_t *)range_end, .n = n_range_end});
    server->users.revision++;
}

void server_enable_auth(Server *server, bool enable)
{
    if (enable == server->users.enabled)
        return;
    server->users.enabled = enable;
    server->users.revision++;
    for (size_t i = 0; i < server->n_members && !enable; i++)
        users_forget_tokens(server, i);
}

void users_forget_tokens(Server *server, size_t member)
{
    Member *m = &server->members[member];

    for (size_t i = 0; i < m->n_tokens; i++) {
        free(m->tokens[i].text);
        free(m->tokens[i].user);
    }
    free(m->tokens);
    m->tokens = NULL;
    m->n_tokens = m->tokens_room = 0;
}

Refusal users_caller(Server *server, size_t member, const char *token, Caller *ret)
{
    Member *m = &server->members[member];

    for (size_t i = 0; token && i < m->n_tokens; i++)
        if (!strcmp(m->tokens[i].text, token) && m->tokens[i].until_usec > server->now_usec) {
            m->tokens[i].until_usec = server->now_usec + TOKEN_SEC * USEC_PER_SEC;
            *ret = (Caller){.user = memory_text(m->tokens[i].user),
                            .revision = server->users.revision};
            return REFUSAL_NONE;
        }
    *ret = (Caller){0};
    return token ? (Refusal){SERVER_UNAUTHENTICATED, "etcdserver: invalid auth token"}
                 : REFUSAL_NONE;
}

/* Returns whether the user's rights of one kind, together, cover the range from begin to end. */
static bool covers(const User *user, ServerRights rights, const KeyRange *range)
{
    Bytes at = range->begin;

    for (bool further = true; further;) {
        further = false;
        for (size_t i = 0; i < user->n_rights; i++) {
            const KeyRange *right = &user->rights[i].range;
            if (!(user->rights[i].rights & rights) || bytes_compare(right->begin, at) > 0)
                continue;
            if (right->single) {
                if (range->single && bytes_compare(right->begin, at) == 0)
                    return true;
                continue;
            }
            if (right->endless)
                return true;
            if (bytes_compare(right->end, at) <= 0)
                continue;
            at = right->end;
            further = true;
            if (range->single || (!range->endless && bytes_compare(at, range->end) >= 0))
                return true;
        }
    }
    return false;
}

Refusal users_may(const Server *server, const Caller *caller, const KeyRange *range,
                  ServerRights rights)
{
    const Users *users = &server->users;

    if (!users->enabled)
        return REFUSAL_NONE;
    if (caller->revision == 0)
        return (Refusal){SERVER_INVALID_ARGUMENT, "etcdserver: user name is empty"};
    if (caller->revision < users->revision)
        return (Refusal){SERVER_INVALID_ARGUMENT, "etcdserver: revision of auth store is old"};
    const User *user = user_find(users, caller->user);
    if (user && (!strcmp(user->name, "root") || covers(user, rights, range)))
        return REFUSAL_NONE;
    return denied;
}

Refusal users_check_password(const Server *server, const char *name, const char *password)
{
    const User *user = user_find(&server->users, name);

    if (!server->users.enabled)
        return (Refusal){SERVER_FAILED_PRECONDITION, "etcdserver: authentication is not enabled"};
    if (!user || strcmp(user->password, password) != 0)
        return (Refusal){SERVER_INVALID_ARGUMENT,
                         "etcdserver: authentication failed, invalid user ID or password"};
    return REFUSAL_NONE;
}

char *users_token(Server *server, const char *name)
{
    char letters[TOKEN_LETTERS + 1] = {0};

    for (int i = 0; i < TOKEN_LETTERS; i++)
        letters[i] = (char)('a' + server_draw(server) % 26);
    char *text = memory_format("%s.%llu", letters, (unsigned long long)++server->users.n_tokens);
    for (size_t i = 0; i < server->n_members; i++) {
        Member *m = &server->members[i];
        if (!m->up)
            continue;
        m->tokens = memory_grow(m->tokens, m->n_tokens, &m->tokens_room, sizeof(Token));
        m->tokens[m->n_tokens++] = (Token){
            .text = memory_text(text),
            .user = memory_text(name),
            .until_usec = server->now_usec + TOKEN_SEC * USEC_PER_SEC,
        };
    }
    return text;
}

void users_clear(Users *users)
{
    for (size_t i = 0; i < users->n; i++) {
        for (size_t j = 0; j < users->users[i].n_rights; j++) {
            free(users->users[i].rights[j].begin);
            free(users->users[i].rights[j].end);
        }
        free(users->users[i].rights);
        free(users->users[i].name);
        free(users->users[i].password);
    }
    free(users->users);
    *users = (Users){0};
}

void users_copy(const Users *from, Users *to)
{
    *to = (Users){.enabled = from->enabled, .revision = from->revision, .n_tokens = from->n_tokens};
    for (size_t i = 0; i < from->n; i++) {
        to->users = memory_grow(to->users, to->n, &to->room, sizeof(User));
        User *user = &to->users[to->n++];
        *user = (User){
            .name = memory_text(from->users[i].name),
            .password = memory_text(from->users[i].password),
        };
        for (size_t j = 0; j < from->users[i].n_rights; j++) {
            const Right *right = &from->users[i].rights[j];
            right_add(user, right->rights, right->range.begin, right->range.end);
        }
    }
}

/* test-records-alloc.c - each allocation fails in turn while records are read and written: the answer is
 * -ENOMEM or the record, never a record with something missing. */
#include "base/test/testing-alloc.h"
#include "base/test/testing.h"
#include "cluster/records.h"

#include <errno.h>
#include <string.h>

enum { ALLOCATIONS_MAX = 2000 };

typedef struct Case {
    const char *text; /* with fields that we do not know: they must survive */
    int (*decode)(const char *text, void *record, Error *err);
    int (*encode)(const void *record, const char *old_text, char **ret);
    void (*clear)(void *record);
    bool writing; /* the failing allocation is one of encode */
} Case;

#define DEFINE_CODEC(Type, prefix)                                                                 \
    static int prefix##_read(const char *text, void *record, Error *err)                           \
    {                                                                                              \
        return prefix##_decode("key", text, strlen(text), record, err);                            \
    }                                                                                              \
    static int prefix##_write(const void *record, const char *old_text, char **ret)                \
    {                                                                                              \
        return prefix##_encode(record, old_text, ret);                                             \
    }                                                                                              \
    static void prefix##_drop(void *record) { prefix##_clear(record); }

DEFINE_CODEC(NodeRecord, node_record)
DEFINE_CODEC(CordonRecord, cordon_record)
DEFINE_CODEC(SpecRecord, spec_record)
DEFINE_CODEC(DesiredRecord, desired_record)
DEFINE_CODEC(WorldRecord, world_record)
DEFINE_CODEC(PhaseRecord, phase_record)
DEFINE_CODEC(RanksRecord, ranks_record)
DEFINE_CODEC(CheckpointsRecord, checkpoints_record)
DEFINE_CODEC(IncidentRecord, incident_record)

static union {
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    NodeRecord node;
    char room[65536];
} whole, back;

/* Reads, writes; one of the two lacks memory. */
static AllocLife life(unsigned n, void *arg)
{
    const Case *c = arg;
    Error err = ERROR_INIT;
    _cleanup_free_ char *expected = NULL, *text = NULL;
    if (c->decode(c->text, &whole, &err) < 0 || c->encode(&whole, c->text, &expected) < 0)
        return ALLOC_WRONG;

    alloc_fail_at(n);
    int r = c->writing ? c->encode(&whole, c->text, &text) : c->decode(c->text, &back, &err);
    (void)alloc_struck();
    bool good = r == 0;
    if (good && !c->writing) {
        if (c->encode(&back, c->text, &text) < 0)
            return ALLOC_WRONG;
        c->clear(&back);
    }
    c->clear(&whole);
    if (good)
        return strcmp(text, expected) == 0 ? ALLOC_WHOLE : ALLOC_WRONG;
    return r == -ENOMEM && !text ? ALLOC_FAILED : ALLOC_WRONG;
}

#define ASSERT_SWEEP(prefix, old_text)                                                             \
    do {                                                                                           \
        Case c = {old_text, prefix##_read, prefix##_write, prefix##_drop, false};                  \
        assert_true(alloc_sweep(life, &c, ALLOCATIONS_MAX) > 0);                                   \
        c.writing = true;                                                                          \
        assert_true(alloc_sweep(life, &c, ALLOCATIONS_MAX) > 0);                                   \
    } while (0)

static void worlds_and_their_ranks(_unused_ void **state)
{
    ASSERT_SWEEP(world_record,
                 "{\"v\":2,\"generation\":12345678901234567,\"size\":3,\"runs\":[{\"node\":"
                 "\"node1\",\"incarnation\":1234567890123456,\"slots\":\"0-1\",\"later\":1},"
                 "{\"node\":\"node2\",\"incarnation\":5,\"slots\":\"3\"}],\"resume\":{\"step\":"
                 "10,\"uri\":\"file:///a/long/enough/path/manifest.json\",\"hash\":"
                 "\"00000000000000010000000000000002\"},\"later\":\"kept\"}");
    ASSERT_SWEEP(ranks_record,
                 "{\"v\":2,\"node\":\"node1\",\"incarnation\":7,\"generation\":2,"
                 "\"world_revision\":9,\"ranks\":[{\"slot\":0,\"rank\":4,\"pid\":77,\"state\":"
                 "\"exited\",\"text\":\"last words of some length\",\"later\":true}],\"later\":0}");
    ASSERT_SWEEP(phase_record,
                 "{\"v\":2,\"phase\":\"resizing\",\"generation\":3,\"reason\":\"a reason\","
                 "\"worlds\":[{\"generation\":3,\"size\":2,\"step\":5}],\"later\":[1,2]}");
}

static void what_is_committed(_unused_ void **state)
{
    ASSERT_SWEEP(checkpoints_record,
                 "{\"v\":2,\"commits\":[{\"step\":5,\"generation\":1,\"uri\":\"file:///c/5\","
                 "\"audit\":\"kept\"},{\"step\":12345678901234567,\"generation\":1,\"uri\":"
                 "\"file:///c/6\",\"struck_out\":true}],\"later\":{\"a\":1}}");
    ASSERT_SWEEP(spec_record, "{\"v\":2,\"spec\":\"{\\\"name\\\":\\\"a job of some length\\\"}\","
                              "\"submitted_usec\":1234567890123456,\"later\":\"kept\"}");
    ASSERT_SWEEP(desired_record,
                 "{\"v\":2,\"state\":\"stopped\",\"min\":1,\"max\":4,\"later\":\"kept\"}");
}

static void nodes_and_what_happens_to_them(_unused_ void **state)
{
    ASSERT_SWEEP(node_record,
                 "{\"v\":2,\"name\":\"node1\",\"machine_id\":\"m\",\"boot_id\":\"b\","
                 "\"incarnation\":1234567890123456,\"address\":\"10.0.0.1\",\"slots\":8,"
                 "\"version\":\"0.1\",\"state\":\"up\",\"verdict\":\"suspect\",\"evidence\":"
                 "\"some evidence of some length\",\"later\":\"kept\"}");
    ASSERT_SWEEP(cordon_record,
                 "{\"v\":2,\"node\":\"node1\",\"causes\":[{\"owner\":\"machine\",\"mode\":"
                 "\"quarantine\",\"reason\":\"five strikes\",\"strikes\":5,\"later\":\"kept\"},"
                 "{\"owner\":\"operator\",\"mode\":\"cordon\"}],\"later\":\"kept\"}");
    ASSERT_SWEEP(incident_record,
                 "{\"v\":2,\"id\":\"a-3\",\"state\":\"open\",\"job\":\"a\",\"cause\":"
                 "\"trainer-died\",\"node\":\"node1\",\"rank\":2,\"generation\":3,\"evidence\":"
                 "\"signal 9\",\"later\":\"kept\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worlds_and_their_ranks),
        cmocka_unit_test(what_is_committed),
        cmocka_unit_test(nodes_and_what_happens_to_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

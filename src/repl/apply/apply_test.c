/*
 * apply_test.c - entries of the oplog become data, once or several times (REP-2).
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/prng.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/validate.h"
#include "repl/apply/apply_internal.h"
#include "repl/apply/apply_node_test.h"

static const char *const MODES[] = {"steady", "recovery", "initial sync"};

/* ---- entries from tables ---- */

/* "U1" stands for a UUID, in ui, dropTarget, indexBuildUUID. */
static Uuid uuid_of(Str text) {
    Uuid uuid = {{0}};
    memcpy(uuid.bytes, text.data, text.size < 16 ? text.size : 16);
    return uuid;
}

static void build_entry_fields(DocBuilder *b, Doc from) {
    DocIter iter = doc_iter(from);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str name = elem_name_str(elem);
        bool is_uuid =
            elem_type(elem) == BT_STRING &&
            (str_is(name, "ui") || str_is(name, "dropTarget") || str_is(name, "indexBuildUUID"));
        if (is_uuid) {
            Uuid uuid = uuid_of(elem_str(elem));
            build_uuid(b, name.data, &uuid);
        } else if (str_is(name, "o") && elem_type(elem) == BT_DOC) {
            size_t opened = build_open_doc(b, "o");
            build_entry_fields(b, elem_doc(elem));
            build_close(b, opened);
        } else if (str_is(name, "applyOps") && elem_type(elem) == BT_ARRAY) {
            size_t opened = build_open_array(b, "applyOps");
            DocIter rows = doc_iter(elem_doc(elem));
            for (Elem row; doc_iter_next(&rows, &row);) {
                if (elem_type(row) != BT_DOC) {
                    build_elem(b, row);
                    continue;
                }
                size_t inner = build_open_doc(b, elem_name(row));
                build_entry_fields(b, elem_doc(row));
                build_close(b, inner);
            }
            build_close(b, opened);
        } else {
            build_elem(b, elem);
        }
    }
}

/* '[{op, ns, ...}, ...]' with UUIDs and timestamps filled in. */
static size_t entries_of(const char *text, uint64_t *ts, Doc *entries, size_t count_max,
                         Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc list = DOC_EMPTY;
    char *wrapped = arena_printf(arena, "{'e': %s}", text);
    EXPECT_OK(doc_from_json(wrapped, arena, &list, &err), err);
    Elem rows = doc_get_lit(list, "e");
    size_t count = 0;
    DocIter iter = doc_iter(elem_doc(rows));
    for (Elem row; doc_iter_next(&iter, &row) && count < count_max;) {
        DocBuilder b = doc_builder_in_arena(arena);
        build_entry_fields(&b, elem_doc(row));
        if (!elem_is_present(doc_get_lit(elem_doc(row), "ts")))
            build_timestamp(&b, "ts", ++*ts);
        build_i64(&b, "t", 1);
        build_i64(&b, "v", 2);
        build_date(&b, "wall", 0);
        entries[count++] = doc_builder_end(&b);
    }
    return count;
}

static ErrCode apply_all(TestNode *node, const Doc *entries, size_t count, ApplyMode mode,
                         Error *err) {
    for (size_t done = 0; done < count;) {
        size_t end = apply_batch_end(entries + done, count - done);
        TRY(applier_run(node->applier, node->op, entries + done, end, mode, err));
        done += end;
    }
    return ERR_OK;
}

/* ---- what is there ---- */

typedef struct Dump {
    OpCtx *op;
    Arena *arena;
    const Collection *colls[64];
    size_t count;
} Dump;

static bool dump_collect(void *arg, const Collection *coll) {
    Dump *dump = arg;
    if (dump->count < ARRAY_LEN(dump->colls))
        dump->colls[dump->count++] = coll;
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const Collection *const *)a)->ns.text,
                  (*(const Collection *const *)b)->ns.text);
}

/* "a: { _id: 1 } | _id_ x_1; b: ..." of one database; temporary names without their random part. */
static char *dump_db(TestNode *node, const char *db, Arena *arena) {
    OpCtx *op = node->op;
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(buffer_done) Buffer out;
    buffer_init(&out, BUFFER_UNBOUNDED);
    EXPECT_OK(op_lock_global(op, LOCK_IS, &err), err);
    Catalog *catalog = catalog_acquire(node->fx.service.catalog);
    Dump dump = {.op = op, .arena = arena};
    catalog_for_each_in_db(catalog, str_from(db), dump_collect, &dump);
    if (dump.count > 0)
        qsort(dump.colls, dump.count, sizeof(dump.colls[0]), compare_names);
    for (size_t i = 0; i < dump.count; i++) {
        const Collection *coll = dump.colls[i];
        const char *name = ns_coll(&coll->ns).data;
        if (memcmp(name, "tmp", 3) == 0)
            name = strchr(name, '.') + 1;
        char *head = arena_printf(arena, "%s%s%s:", i > 0 ? "; " : "", name,
                                  coll->options.is_capped ? " capped" : "");
        buffer_append(&out, head, strlen(head));
        size_t count;
        Doc *docs = test_read_all(op, coll, arena, &count);
        for (size_t d = 0; d < count; d++) {
            char *text = arena_printf(arena, " %s", shell_text_of_doc(docs[d], arena));
            buffer_append(&out, text, strlen(text));
        }
        xfree(docs);
        for (uint32_t x = 0; x < coll->index_count; x++) {
            const IndexDesc *index = coll->indexes[x];
            if (index->is_id)
                continue;
            char *text =
                arena_printf(arena, " |%s%s", index->name, index_is_multikey(index) ? "*" : "");
            buffer_append(&out, text, strlen(text));
        }
    }
    catalog_release(catalog);
    op_unlock_global(op);
    buffer_append(&out, "", 1);
    return arena_strdup(arena, (const char *)out.data);
}

static void drop_db(TestNode *node, const char *db) {
    CLEANUP(error_reset) Error err = {0};
    bool existed;
    node->op->mode.is_unreplicated = true;
    EXPECT_OK(ddl_drop_database(node->op, str_from(db), &existed, &err), err);
    node->op->mode.is_unreplicated = false;
}

/* ---- tables ---- */

#define CREATE(name, uuid)                                                                         \
    "{'op': 'c', 'ns': 'd.$cmd', 'ui': '" uuid "', 'o': {'create': '" name                         \
    "', 'idIndex': {'v': 2, 'key': {'_id': 1}, 'name': '_id_'}}}"
#define INSERT(uuid, doc) "{'op': 'i', 'ns': 'd.a', 'ui': '" uuid "', 'o': " doc "}"
#define UPDATE(uuid, id, change)                                                                   \
    "{'op': 'u', 'ns': 'd.a', 'ui': '" uuid "', 'o': " change ", 'o2': {'_id': " id "}}"
#define DELETE(uuid, id) "{'op': 'd', 'ns': 'd.a', 'ui': '" uuid "', 'o': {'_id': " id "}}"
#define BUILD(name)                                                                                \
    COMMAND("U1", "{'" name "': 'a', 'indexBuildUUID': 'B1', 'indexes': [{'v': 2, 'key': {'x': "   \
                  "1}, 'name': 'x_1'}, {'v': 2, 'key': {'y': 1}, 'name': 'y_1'}]}")
#define COMMAND(uuid, o) "{'op': 'c', 'ns': 'd.$cmd', 'ui': '" uuid "', 'o': " o "}"

static const struct {
    const char *entries;
    const char *result;
} CASES[] = {
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") "]", "a: { _id: 1, x: 1 }"},
    {"[" CREATE("a", "U1") ", {'op': 'n', 'ns': '', 'o': {'msg': 'new primary'}}]", "a:"},
    /* An insert of what is there replaces it; equal ids of other types are the same document.
     */
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " INSERT(
         "U1", "{'_id': 1, 'y': 2}") ", " INSERT("U1", "{'_id': 1.0, 'z': 3}") "]",
     "a: { _id: 1.0, z: 3 }"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1, 'y': [1, 2]}") ", " UPDATE(
         "U1", "1",
         "{'$v': 2, 'diff': {'u': {'x': 5}, 'i': {'z': 1}, 'sy': {'a': true, 'l': 1}}}") "]",
     "a: { _id: 1, x: 5, y: [ 1 ], z: 1 }"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " UPDATE(
         "U1", "1", "{'_id': 1, 'w': 1}") "]",
     "a: { _id: 1, w: 1 }"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " UPDATE("U1", "1",
                                                                               "{'w': 1}") "]",
     "a: { _id: 1, w: 1 }"},
    /* A whole document that looks like a delta but for its _id. */
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " UPDATE(
         "U1", "1", "{'_id': 1, '$v': 2, 'diff': {'i': {'y': 1}}}") "]",
     "a: { _id: 1, $v: 2, diff: { i: { y: 1 } } }"},
    /* An update of what is not there does nothing, unless it is an upsert. */
    {"[" CREATE("a", "U1") ", " UPDATE("U1", "1", "{'_id': 1, 'w': 1}") "]", "a:"},
    {"[" CREATE("a", "U1") ", {'op': 'u', 'ns': 'd.a', 'ui': 'U1', 'b': true, 'o': {'w': 1}, "
                           "'o2': {'_id': 1}}, {'op': 'u', 'ns': 'd.a', 'ui': 'U1', 'b': true, "
                           "'o': {'$v': 2, 'diff': "
                           "{'i': {'v': 1}}}, 'o2': {'_id': 2}}]",
     "a: { _id: 1, w: 1 } { _id: 2, v: 1 }"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1}") ", " DELETE("U1", "1") ", " DELETE(
         "U1", "7") "]",
     "a:"},
    /* By UUID first: the name of the entry may be an old one. */
    {"[" CREATE("a", "U1") ", " COMMAND(
         "U1", "{'renameCollection': 'd.a', 'to': 'd.b'}") ", " INSERT("U1", "{'_id': 1}") "]",
     "b: { _id: 1 }"},
    {"[" CREATE("a", "U1") ", {'op': 'i', 'ns': 'd.a', 'o': {'_id': 1}}]", "a: { _id: 1 }"},
    {"[" CREATE("a", "U1") ", " CREATE("b", "U2") ", " INSERT("U1", "{'_id': 1}") ", " COMMAND(
         "U1", "{'renameCollection': 'd.a', 'to': 'd.b', 'dropTarget': 'U2'}") "]",
     "b: { _id: 1 }"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1}") ", " COMMAND(
         "U1", "{'drop': 'a'}") ", " CREATE("a", "U2") "]",
     "a:"},
    {"[" CREATE("a", "U1") ", " CREATE("b", "U2") ", {'op': 'c', 'ns': 'd.$cmd', 'o': "
                                                  "{'dropDatabase': 1}}, " CREATE("c", "U3") "]",
     "c:"},
    /* Indexes, also on documents that are there. */
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': [1, 2]}") ", " COMMAND(
         "U1",
         "{'"
         "crea"
         "teIn"
         "dexe"
         "s': "
         "'a',"
         " 'v'"
         ": "
         "2, "
         "'key"
         "': "
         "{'x'"
         ": "
         "1}, "
         "'nam"
         "e': "
         "'x_"
         "1'}") ", " COMMAND("U1",
                             "{'createIndexes': 'a', 'v': 2, 'key': {'y': 1}, "
                             "'name': 'y_1'}") ", " INSERT("U1",
                                                           "{'_id': 2, 'y': [1, "
                                                           "2]}") ", " COMMAND("U1",
                                                                               "{'"
                                                                               "cre"
                                                                               "ate"
                                                                               "Ind"
                                                                               "exe"
                                                                               "s':"
                                                                               " '"
                                                                               "a',"
                                                                               " '"
                                                                               "v':"
                                                                               " 2,"
                                                                               " '"
                                                                               "key"
                                                                               "': "
                                                                               "{'"
                                                                               "z':"
                                                                               " "
                                                                               "1},"
                                                                               " '"
                                                                               "nam"
                                                                               "e':"
                                                                               " '"
                                                                               "z_"
                                                                               "1'"
                                                                               "}") ", " COMMAND("U"
                                                                                                 "1",
                                                                                                 "{"
                                                                                                 "'"
                                                                                                 "d"
                                                                                                 "r"
                                                                                                 "o"
                                                                                                 "p"
                                                                                                 "I"
                                                                                                 "n"
                                                                                                 "d"
                                                                                                 "e"
                                                                                                 "x"
                                                                                                 "e"
                                                                                                 "s"
                                                                                                 "'"
                                                                                                 ":"
                                                                                                 " "
                                                                                                 "'"
                                                                                                 "a"
                                                                                                 "'"
                                                                                                 ","
                                                                                                 " "
                                                                                                 "'"
                                                                                                 "i"
                                                                                                 "n"
                                                                                                 "d"
                                                                                                 "e"
                                                                                                 "x"
                                                                                                 "'"
                                                                                                 ":"
                                                                                                 " "
                                                                                                 "'"
                                                                                                 "z"
                                                                                                 "_"
                                                                                                 "1"
                                                                                                 "'"
                                                                                                 "}") "]",
     "a: { _id: 1, x: [ 1, 2 ] } { _id: 2, y: [ 1, 2 ] } |x_1* |y_1*"},
    /* Builds in two phases, and the second phase alone. */
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " BUILD(
         "startIndexBuild") ", " INSERT("U1",
                                        "{'_id': 2, 'x': [1, 2]}") ", " BUILD("commitIndexBuil"
                                                                              "d") "]",
     "a: { _id: 1, x: 1 } { _id: 2, x: [ 1, 2 ] } |x_1* |y_1"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " BUILD(
         "startIndexBuild") ", " BUILD("abortIndexBuild") "]",
     "a: { _id: 1, x: 1 }"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " BUILD(
         "commitIndexBuild") ", " BUILD("commitIndexBuild") ", " BUILD("abortIndexBuild") "]",
     "a: { _id: 1, x: 1 } |x_1 |y_1"},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1, 'x': 1}") ", " BUILD(
         "startIndexBuild") ", " COMMAND("U1", "{'drop': 'a'}") ", " BUILD("commitIndexBuild") "]",
     ""},
    /* Validators judged where the document was written. */
    {"[{'op': 'c', 'ns': 'd.$cmd', 'ui': 'U1', 'o': {'create': 'a', 'validator': {'x': "
     "1}}}, " INSERT("U1", "{'_id': 1, 'x': 2}") "]",
     "a: { _id: 1, x: 2 }"},
    {"[" CREATE("a", "U1") ", " COMMAND(
         "U1", "{'collMod': 'a', 'validator': {'x': 1}}") ", " INSERT("U1",
                                                                      "{'_id': 1, 'x': 2}") "]",
     "a: { _id: 1, x: 2 }"},
    /* A capped collection does not trim by itself. */
    {"[{'op': 'c', 'ns': 'd.$cmd', 'ui': 'U1', 'o': {'create': 'a', 'capped': true, 'size': "
     "4096, "
     "'max': 2}}, " INSERT("U1", "{'_id': 3}") ", " INSERT("U1", "{'_id': 2}") ", " INSERT(
         "U1", "{'_id': 1}") ", " UPDATE("U1", "1", "{'_id': 1, 'larger': 'than before'}") "]",
     "a capped: { _id: 3 } { _id: 2 } { _id: 1, larger: \"than before\" }"},
    /* Clustered. */
    {"[{'op': 'c', 'ns': 'd.$cmd', 'ui': 'U1', 'o': {'create': 'a', 'clusteredIndex': {'v': 2, "
     "'key': "
     "{'_id': 1}, 'name': '_id_', 'unique': true}}}, " INSERT(
         "U1",
         "{'_id': 1, 'x': 1}") ", " INSERT("U1",
                                           "{'_id': 1, 'x': 2}") ", " INSERT("U1",
                                                                             "{'_id': 2}") ","
                                                                                           " " DELETE(
                                                                                               "U1",
                                                                                               "2") "]",
     "a: { _id: 1, x: 2 }"},
    /* Together. */
    {"[" CREATE("a", "U1") ", " INSERT(
         "U1", "{'_id': 1}") ", {'op': 'c', 'ns': 'admin.$cmd', 'o': "
                             "{'applyOps': [" INSERT("U1", "{'_id': 2}") ", " DELETE(
                                 "U1", "1") ", " UPDATE("U1", "2", "{'_id': 2, 'x': 1}") "]}}]",
     "a: { _id: 2, x: 1 }"},
    {"[{'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': [" CREATE("a", "U1") ", " INSERT(
         "U1", "{'_id': 1}") ", {'op': 'c', 'ns': 'd.$cmd', 'o': "
                             "{'applyOps': [" INSERT("U1", "{'_id': 2}") "]}}]}}]",
     "a: { _id: 1 } { _id: 2 }"},
    /* Two documents may have one unique key for a while. */
    {"[" CREATE("a", "U1") ", " COMMAND(
         "U1",
         "{'createIndexes': 'a', 'v': 2, 'key': {'x': 1}, "
         "'name': 'x_1', 'unique': true}") ", " INSERT("U1",
                                                       "{'_id': 1, 'x': 1}") ", " INSERT("U1",
                                                                                         "{'_"
                                                                                         "id': "
                                                                                         "2, "
                                                                                         "'x': "
                                                                                         "1}") ","
                                                                                               " " DELETE(
                                                                                                   "U1",
                                                                                                   "1") "]",
     "a: { _id: 2, x: 1 } |x_1"},
    /* Keys that cannot be made yet. */
    {"[" CREATE("a", "U1") ", " COMMAND(
         "U1", "{'createIndexes': 'a', 'v': 2, 'key': {'x': 1, 'y': "
               "1}, 'name': 'xy'}") ", " INSERT("U1", "{'_id': 1, 'x': [1], 'y': "
                                                      "[1]}") ", " UPDATE("U1", "1",
                                                                          "{'_id': "
                                                                          "1, 'x': "
                                                                          "1}") "]",
     "a: { _id: 1, x: 1 } |xy"},
};

TEST(entries_make_the_documents_and_can_be_applied_again) {
    Arena arena;
    arena_init(&arena, 65536);
    for (int mode = APPLY_STEADY; mode <= APPLY_INITIAL_SYNC; mode++) {
        TestNode node;
        apply_node_open(&node, /* apply_threads= */ 2);
        uint64_t ts = UINT64_C(1000) << 32;
        for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
            for (int round = 0; round < 2; round++) {
                CLEANUP(error_reset) Error err = {0};
                Doc entries[32];
                size_t count = entries_of(CASES[i].entries, &ts, entries, 32, &arena);
                ApplyMode now =
                    round == 1 && mode == APPLY_STEADY ? APPLY_RECOVERY : (ApplyMode)mode;
                EXPECT_OK(apply_all(&node, entries, count, now, &err), err);
                char *found = dump_db(&node, "d", &arena);
                if (strcmp(found, CASES[i].result) != 0)
                    test_fail(__FILE__, __LINE__, "case %zu, %s, round %d:\n  %s\n  %s", i,
                              MODES[mode], round, found, CASES[i].result);
            }
            drop_db(&node, "d");
        }
        apply_node_close(&node);
    }
    arena_done(&arena);
}

static const struct {
    const char *entries;
    ErrCode code;      /* in steady state */
    ErrCode code_else; /* in the other modes */
} FAILURES[] = {
    {"[{'ns': 'd.a', 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 'd.a'}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 'd.a', 'o': {'x': 1}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 'd.a', 'o': {'_id': [1]}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 'd.a', 'o': 5}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 5, 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 'd.a', 'ui': 5, 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE,
     ERR_FAILED_TO_PARSE},
    {"[{'op': 'i', 'ns': 'd.a', 'ts': 5, 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE,
     ERR_FAILED_TO_PARSE},
    {"[{'op': 'u', 'ns': 'd.a', 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'u', 'ns': 'd.a', 'b': 1, 'o2': {'_id': 1}, 'o': {'_id': 1}}]", ERR_FAILED_TO_PARSE,
     ERR_FAILED_TO_PARSE},
    {"[{'op': 'x', 'ns': 'd.a', 'o': {'_id': 1}}]", ERR_BAD_VALUE, ERR_BAD_VALUE},
    {"[{'op': 'ii', 'ns': 'd.a', 'o': {'_id': 1}}]", ERR_BAD_VALUE, ERR_BAD_VALUE},
    {"[{'op': 'i', 'ns': 'a', 'o': {'_id': 1}}]", ERR_INVALID_NAMESPACE, ERR_INVALID_NAMESPACE},
    {"[{'op': 'i', 'ns': 'local.a', 'o': {'_id': 1}}]", ERR_INVALID_NAMESPACE,
     ERR_INVALID_NAMESPACE},
    {"[" INSERT("U9", "{'_id': 1}") "]", ERR_NAMESPACE_NOT_FOUND, ERR_OK},
    {"[" UPDATE("U9", "1", "{'_id': 1}") "]", ERR_NAMESPACE_NOT_FOUND, ERR_OK},
    {"[" DELETE("U9", "1") "]", ERR_OK, ERR_OK},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1}") ", " UPDATE("U1", "1", "{'_id': 2}") "]",
     ERR_IMMUTABLE_FIELD, ERR_IMMUTABLE_FIELD},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1}") ", " UPDATE(
         "U1", "1", "{'$v': 2, 'diff': {'u': {'_id': 2}}}") "]",
     ERR_IMMUTABLE_FIELD, ERR_IMMUTABLE_FIELD},
    {"[" CREATE("a", "U1") ", " INSERT("U1", "{'_id': 1}") ", " UPDATE(
         "U1", "1", "{'$v': 1, '$set': {'x': 2}}") "]",
     ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'c', 'ns': 'd.a', 'o': {'drop': 'a'}}]", ERR_INVALID_NAMESPACE,
     ERR_INVALID_NAMESPACE},
    {"[{'op': 'c', 'ns': 'local.$cmd', 'o': {'drop': 'oplog.rs'}}]", ERR_INVALID_NAMESPACE,
     ERR_INVALID_NAMESPACE},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'shutdown': 1}}]", ERR_BAD_VALUE, ERR_BAD_VALUE},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'commitTransaction': 1}}]", ERR_FAILED_TO_PARSE,
     ERR_FAILED_TO_PARSE},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'applyOps': [], 'prepare': true}}]", ERR_FAILED_TO_PARSE,
     ERR_OK},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'applyOps': [5]}}]", ERR_FAILED_TO_PARSE,
     ERR_FAILED_TO_PARSE},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'create': 5}}]", ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'drop': 'a'}}]", ERR_OK, ERR_OK},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropIndexes': 'a', 'index': 'x_1'}}]", ERR_OK, ERR_OK},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'renameCollection': 'd.a', 'to': 'd.b'}}]", ERR_OK,
     ERR_OK},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'renameCollection': 'd.a', 'to': 'e.b'}}]",
     ERR_ILLEGAL_OPERATION, ERR_ILLEGAL_OPERATION},
    {"[{'op': 'c', 'ns': 'd.$cmd', 'o': {'renameCollection': 'd.a', 'to': 'd.b', 'dropTarget': "
     "5}}]",
     ERR_FAILED_TO_PARSE, ERR_FAILED_TO_PARSE},
};

TEST(malformed_entries_fail_and_tell) {
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    apply_node_open(&node, /* apply_threads= */ 2);
    uint64_t ts = UINT64_C(1000) << 32;
    for (size_t i = 0; i < ARRAY_LEN(FAILURES); i++) {
        for (int mode = APPLY_STEADY; mode <= APPLY_INITIAL_SYNC; mode++) {
            CLEANUP(error_reset) Error err = {0};
            Doc entries[32];
            size_t count = entries_of(FAILURES[i].entries, &ts, entries, 32, &arena);
            ErrCode wanted = mode == APPLY_STEADY ? FAILURES[i].code : FAILURES[i].code_else;
            ErrCode rc = apply_all(&node, entries, count, (ApplyMode)mode, &err);
            if (rc != wanted)
                test_fail(__FILE__, __LINE__, "case %zu, %s: %d (%s), expected %d", i, MODES[mode],
                          (int)rc, error_message(&err), (int)wanted);
            EXPECT(!node.op->mode.is_applying);
            drop_db(&node, "d");
        }
    }
    apply_node_close(&node);
    arena_done(&arena);
}

TEST(what_stands_in_the_way_gets_another_name) {
    /* Goal: after an initial sync names may be taken by collections of the future. */
    static const struct {
        const char *before;
        const char *entries;
        const char *result;
    } ROWS[] = {
        {"[" CREATE("a", "U2") "]", "[" CREATE("a", "U1") "]", "a:; create:"},
        {"[" CREATE("b", "U1") "]", "[" CREATE("a", "U1") "]", "a:"},
        {"[" CREATE("a", "U2") ", " CREATE("b", "U1") "]", "[" CREATE("a", "U1") "]",
         "a:; create:"},
        {"[" CREATE("a", "U1") ", " CREATE("b", "U3") "]",
         "[" COMMAND("U1", "{'renameCollection': 'd.a', 'to': 'd.b'}") "]",
         "b:; renameCollection:"},
        {"[" CREATE("a", "U1") ", " CREATE("b", "U3") ", " CREATE("c", "U2") "]",
         "[" COMMAND("U1", "{'renameCollection': 'd.a', 'to': 'd.b', 'dropTarget': 'U2'}") "]",
         "b:; renameCollection:"},
        {"[" CREATE("b", "U2") "]",
         "[" COMMAND("U1", "{'renameCollection': 'd.a', 'to': 'd.b', 'dropTarget': 'U2'}") "]", ""},
        {"[" CREATE("a", "U2") "]", "[" COMMAND("U1", "{'drop': 'a'}") "]", "a:"},
    };
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    apply_node_open(&node, /* apply_threads= */ 1);
    uint64_t ts = UINT64_C(1000) << 32;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(error_reset) Error err = {0};
        Doc entries[8];
        size_t count = entries_of(ROWS[i].before, &ts, entries, 8, &arena);
        EXPECT_OK(apply_all(&node, entries, count, APPLY_STEADY, &err), err);
        count = entries_of(ROWS[i].entries, &ts, entries, 8, &arena);
        EXPECT_OK(apply_all(&node, entries, count, APPLY_INITIAL_SYNC, &err), err);
        EXPECT_STR(dump_db(&node, "d", &arena), ROWS[i].result);
        drop_db(&node, "d");
    }
    apply_node_close(&node);
    arena_done(&arena);
}

TEST(rows_of_system_views_are_views) {
    Arena arena;
    arena_init(&arena, 65536);
    TestNode node;
    apply_node_open(&node, /* apply_threads= */ 1);
    uint64_t ts = UINT64_C(1000) << 32;
    static const struct {
        const char *entries;
        const char *view_on; /* NULL: no view */
    } STEPS[] = {
        {"[" CREATE("system.views", "UV") ", {'op': 'i', 'ns': 'd.system.views', 'ui': 'UV', 'o': "
                                          "{'_id': 'd.v', 'viewOn': 'a', 'pipeline': []}}]",
         "d.a"},
        {"[{'op': 'u', 'ns': 'd.system.views', 'ui': 'UV', 'o2': {'_id': 'd.v'}, 'o': {'_id': "
         "'d.v', "
         "'viewOn': 'b', 'pipeline': []}}]",
         "d.b"},
        {"[{'op': 'i', 'ns': 'd.system.views', 'ui': 'UV', 'o': {'_id': 7}}]", "d.b"},
        {"[{'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': [{'op': 'd', 'ns': 'd.system.views', "
         "'ui': 'UV', 'o': {'_id': 'd.v'}}]}}]",
         NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(STEPS); i++) {
        CLEANUP(error_reset) Error err = {0};
        Doc entries[8];
        size_t count = entries_of(STEPS[i].entries, &ts, entries, 8, &arena);
        EXPECT_EQ_U64(apply_batch_end(entries, count), 1);
        EXPECT_OK(apply_all(&node, entries, count, APPLY_STEADY, &err), err);
        Ns ns;
        EXPECT_OK(ns_parse(STR("d.v"), &ns, &err), err);
        Catalog *catalog = catalog_acquire(node.fx.service.catalog);
        const View *view = catalog_find_view(catalog, &ns);
        EXPECT_STR(view != NULL ? view->view_on.text : "none",
                   STEPS[i].view_on != NULL ? STEPS[i].view_on : "none");
        catalog_release(catalog);
    }
    apply_node_close(&node);
    arena_done(&arena);
}

TEST(batches_end_before_what_has_to_be_alone) {
    static const struct {
        const char *entries;
        size_t end;
    } ROWS[] = {
        {"[" INSERT("U1", "{'_id': 1}") ", " DELETE("U1", "1") "]", 2},
        {"[" INSERT("U1", "{'_id': 1}") ", " COMMAND("U1", "{'drop': 'a'}") ", " INSERT(
             "U1", "{'_id': 1}") "]",
         1},
        {"[" COMMAND("U1", "{'drop': 'a'}") ", " INSERT("U1", "{'_id': 1}") "]", 1},
        {"[{'op': 'n', 'ns': '', 'o': {}}, {'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': "
         "[" INSERT("U1", "{'_id': 1}") "]}}, " INSERT("U1", "{'_id': 1}") "]",
         3},
        {"[" INSERT("U1", "{'_id': 1}") ", {'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': "
                                        "[" COMMAND("U1", "{'drop': 'a'}") "]}}]",
         1},
        {"[" INSERT("U1", "{'_id': 1}") ", {'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': [], "
                                        "'prepare': true}}]",
         1},
        {"[" INSERT("U1", "{'_id': 1}") ", {'op': 'i', 'ns': 'd.system.views', 'o': {'_id': 1}}]",
         1},
        {"[{'op': 'i', 'ns': 'd.x.system.views', 'o': {'_id': 1}}, " INSERT("U1", "{'_id': 1}") "]",
         2},
    };
    Arena arena;
    arena_init(&arena, 65536);
    uint64_t ts = 1;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        Doc entries[8];
        size_t count = entries_of(ROWS[i].entries, &ts, entries, 8, &arena);
        EXPECT_EQ_U64(apply_batch_end(entries, count), ROWS[i].end);
    }
    arena_done(&arena);
}

/* ---- timestamps ---- */

static size_t count_at(TestNode *node, const char *name, uint64_t ts, bool *ret_is_multikey) {
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 65536);
    Ns ns;
    EXPECT_OK(ns_parse(str_from(name), &ns, &err), err);
    OpCtx *op = node->fx.other;
    ru_set_read_source(op->ru, READ_PROVIDED, ts);
    size_t count = 0;
    *ret_is_multikey = false;
    {
        CLEANUP(access_done) CollAccess access = {0};
        EXPECT_OK(access_read(op, &ns, &access, &err), err);
        if (access.coll != NULL) {
            xfree(test_read_all(op, access.coll, &arena, &count));
            Doc entry = DOC_NONE;
            EXPECT_OK(catalog_read_entry(op, access.coll->catalog_id, &arena, &entry, &err), err);
            *ret_is_multikey = elem_is_truthy(doc_get_path(entry, "md.indexes.1.multikey")) ||
                               (access.coll->index_count > 1 &&
                                strstr(shell_text_of_doc(entry, &arena), "multikey: true") != NULL);
        }
    }
    ru_set_read_source(op->ru, READ_LATEST, 0);
    arena_done(&arena);
    return count;
}

TEST(each_document_has_the_timestamp_of_its_entry) {
    /* Goal: inserts that go together are visible one by one at their own timestamps; the catalog
     * knows of arrays from the first one on, so that any checkpoint has both. */
    enum { DOCS = 100 };
    Arena arena;
    arena_init(&arena, 65536);
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        CLEANUP(error_reset) Error err = {0};
        TestNode node;
        apply_node_open(&node, threads);
        uint64_t ts = UINT64_C(1000) << 32;
        Doc entries[DOCS + 2];
        size_t count = entries_of(
            "[" CREATE("a", "U1") ", " COMMAND(
                "U1", "{'createIndexes': 'a', 'v': 2, 'key': {'x': 1}, 'name': 'x_1'}") "]",
            &ts, entries, 2, &arena);
        EXPECT_OK(apply_all(&node, entries, count, APPLY_STEADY, &err), err);
        for (int i = 0; i < DOCS; i++) {
            char *text = arena_printf(&arena, "[" INSERT("U1", "{'_id': %d, 'x': %s}") "]", i,
                                      i == DOCS / 2 ? "[1, 2]" : "1");
            EXPECT_EQ_U64(entries_of(text, &ts, &entries[i], 1, &arena), 1);
        }
        EXPECT_OK(apply_all(&node, entries, DOCS, APPLY_STEADY, &err), err);
        uint64_t first = ts - DOCS + 1;
        bool is_multikey;
        for (uint64_t i = 0; i < DOCS; i++) {
            EXPECT_EQ_U64(count_at(&node, "d.a", first + i, &is_multikey), i + 1);
            EXPECT(is_multikey);
        }
        EXPECT_EQ_U64(count_at(&node, "d.a", first - 1, &is_multikey), 0);
        EXPECT(!is_multikey);
        apply_node_close(&node);
    }
    arena_done(&arena);
}

/* ---- speed ---- */

static void build_inserts(uint64_t *ts, const Uuid *uuid, uint32_t *next_id, Doc *entries,
                          size_t count, Buffer *buf) {
    buffer_clear(buf);
    size_t *offsets = xcalloc(count, sizeof(*offsets));
    for (size_t i = 0; i < count; i++) {
        DocBuilder b;
        doc_builder_init(&b, buf);
        offsets[i] = b.start;
        build_cstr(&b, "op", "i");
        build_cstr(&b, "ns", "d.a");
        build_uuid(&b, "ui", uuid);
        size_t o = build_open_doc(&b, "o");
        Oid oid = {{0}};
        for (int k = 0; k < 4; k++) /* rising, as drivers make them */
            oid.bytes[8 + k] = (uint8_t)(*next_id >> (24 - 8 * k));
        build_oid(&b, "_id", &oid);
        build_i32(&b, "n", (int32_t)*next_id);
        build_cstr(&b, "text", "a small document of about a hundred bytes, as they often are");
        build_close(&b, o);
        size_t o2 = build_open_doc(&b, "o2");
        build_oid(&b, "_id", &oid);
        build_close(&b, o2);
        build_timestamp(&b, "ts", ++*ts);
        build_i64(&b, "t", 1);
        build_i64(&b, "v", 2);
        build_date(&b, "wall", 0);
        (void)doc_builder_end(&b);
        ++*next_id;
    }
    for (size_t i = 0; i < count; i++)
        entries[i] = (Doc){buf->data + offsets[i]};
    xfree(offsets);
}

/* The same documents on a primary, without a network: what a secondary has to keep up with. */
static void measure_primary(int64_t total) {
    enum { BATCH = 500 };
    CLEANUP(error_reset) Error err = {0};
    TestNode node;
    test_node_open(&node, /* has_oplog= */ true);
    EXPECT_OK(oplog_begin_term(node.oplog, node.op, 1, &err), err);
    Ns ns;
    EXPECT_OK(ns_parse(STR("d.a"), &ns, &err), err);
    EXPECT_OK(ddl_ensure_collection(node.op, &ns, &err), err);
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    uint64_t ts = 1;
    uint32_t next_id = 0;
    Uuid uuid = uuid_of(STR("U1"));
    int64_t spent_us = 0;
    for (int64_t done = 0; done < total; done += BATCH) {
        Doc docs[BATCH];
        build_inserts(&ts, &uuid, &next_id, docs, BATCH, &buf);
        for (size_t i = 0; i < BATCH; i++)
            docs[i] = elem_doc(doc_get_lit(docs[i], "o"));
        int64_t start_us = clock_mono_us();
        CLEANUP(access_done) CollAccess access = {0};
        EXPECT_OK(access_write(node.op, &ns, LOCK_IX, &access, &err), err);
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(node.op, &uow, &err), err);
        EXPECT_OK(collection_insert(node.op, access.coll, docs, BATCH, &scratch, &err), err);
        EXPECT_OK(uow_commit(&uow, &err), err);
        uow_done(&uow);
        access_done(&access);
        spent_us += clock_mono_us() - start_us;
        uint64_t stable = oplog_applied(node.oplog).ts;
        EXPECT_OK(storage_set_stable_and_oldest(node.fx.engine, stable, stable, &err), err);
    }
    printf("written by a primary: %" PRId64 " entries/s\n", total * 1000000 / (spent_us + 1));
    test_node_close(&node);
}

TEST(a_run_uses_all_threads) {
    /* Goal: nothing is lost between threads. With SHERD_APPLY_ENTRIES=1000000 also a measurement:
     * inserts per second with 1, 2 and 4 threads, in batches of a secondary. */
    enum { BATCH = 5000 };
    const char *wanted = getenv("SHERD_APPLY_ENTRIES");
    int64_t total = wanted != NULL ? atoll(wanted) : 2 * BATCH;
    if (wanted != NULL)
        measure_primary(total);
    static const uint32_t THREADS[] = {1, 2, 4};
    for (size_t t = 0; t < ARRAY_LEN(THREADS); t++) {
        CLEANUP(error_reset) Error err = {0};
        Arena arena;
        arena_init(&arena, 65536);
        TestNode node;
        apply_node_open(&node, THREADS[t]);
        uint64_t ts = UINT64_C(1000) << 32;
        Doc *entries = xcalloc(BATCH, sizeof(*entries));
        size_t count = entries_of("[" CREATE("a", "U1") "]", &ts, entries, 1, &arena);
        EXPECT_OK(apply_all(&node, entries, count, APPLY_STEADY, &err), err);
        Uuid uuid = uuid_of(STR("U1"));
        CLEANUP(buffer_done) Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        uint32_t next_id = 0;
        int64_t spent_us = 0;
        for (int64_t done = 0; done < total; done += BATCH) {
            build_inserts(&ts, &uuid, &next_id, entries, BATCH, &buf);
            int64_t start_us = clock_mono_us();
            EXPECT_OK(apply_all(&node, entries, BATCH, APPLY_STEADY, &err), err);
            spent_us += clock_mono_us() - start_us;
            EXPECT_OK(storage_set_stable_and_oldest(node.fx.engine, ts, ts, &err), err);
        }
        bool is_multikey;
        EXPECT_EQ_U64(count_at(&node, "d.a", ts, &is_multikey), next_id);
        if (wanted != NULL)
            printf("applied with %u threads: %" PRId64 " entries/s\n", THREADS[t],
                   total * 1000000 / (spent_us + 1));
        xfree(entries);
        apply_node_close(&node);
        arena_done(&arena);
    }
}

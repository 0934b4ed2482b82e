/*
 * validate_test.c - validate finds planted faults, names them, and repair mends them (DUR-5).
 *
 * Method: a healthy collection of ten documents with indexes on a and b (unique); each case damages
 * its tables behind the back of the catalog. Wrong order cannot be planted: WiredTiger keeps keys
 * sorted.
 */
#include <string.h>

#include "base/alloc.h"
#include "bson/json.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/key_gen.h"
#include "index/validate.h"
#include "storage/fixture_test.h"

enum {
    DOCS = 10,
};

typedef struct Patient {
    StorageFixture fx;
    Arena arena;
    Ns ns;
} Patient;

static Doc doc_of(Patient *p, int32_t id, bool has_array) {
    DocBuilder b = doc_builder_in_arena(&p->arena);
    build_i32(&b, "_id", id);
    build_i32(&b, "a", id % 3);
    if (has_array) {
        size_t array = build_open_array(&b, "b");
        build_i32(&b, "0", id);
        build_i32(&b, "1", id + 100);
        build_close(&b, array);
    } else {
        build_i32(&b, "b", id);
    }
    return doc_builder_end(&b);
}

static void create_index(Patient *p, const char *field, bool is_unique) {
    DocBuilder b = doc_builder_in_arena(&p->arena);
    size_t key = build_open_doc(&b, "key");
    build_i32(&b, field, 1);
    build_close(&b, key);
    build_cstr(&b, "name", field);
    if (is_unique)
        build_bool(&b, "unique", true);
    Doc spec = doc_builder_end(&b);
    CreateIndexesResult result;
    Error err = {0};
    EXPECT_OK(ddl_create_indexes(p->fx.op, &p->ns, &spec, 1, &result, &err), err);
}

static void patient_init(Patient *p) {
    fixture_init(&p->fx);
    arena_init(&p->arena, 4096);
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(p->fx.op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
    EXPECT_OK(ns_parse(STR("db.patient"), &p->ns, &err), err);
    EXPECT_OK(ddl_create_collection(p->fx.op, &p->ns, DOC_EMPTY, NULL, &err), err);
    create_index(p, "a", /* is_unique= */ false);
    create_index(p, "b", /* is_unique= */ true);
    Doc docs[DOCS];
    for (int32_t i = 0; i < DOCS; i++)
        docs[i] = doc_of(p, i, false);
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(p->fx.op, &p->ns, LOCK_IX, &access, &err), err);
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(p->fx.op, &uow, &err), err);
    EXPECT_OK(collection_insert(p->fx.op, access.coll, docs, DOCS, &scratch, &err), err);
    EXPECT_OK(uow_commit(&uow, &err), err);
}

static void patient_done(Patient *p) {
    catalog_service_free(p->fx.service.catalog);
    p->fx.service.catalog = NULL;
    arena_done(&p->arena);
    fixture_close(&p->fx);
}

/* The report, in the patient's arena. */
static Doc examine(Patient *p, const ValidateOptions *options) {
    DocBuilder b = doc_builder_in_arena_sized(&p->arena, 1024);
    Error err = {0};
    CLEANUP(repair_lock_done) RepairLock lock = {0};
    if (options->is_repair)
        EXPECT_OK(ddl_lock_for_repair(p->fx.op, &p->ns, &lock, &err), err);
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(p->fx.op, &p->ns, LOCK_X, &access, &err), err);
    EXPECT_OK(collection_validate(&access, options, /* is_locked= */ true, &b, &err), err);
    return doc_builder_end(&b);
}

static bool flag(Doc report, const char *name) {
    return elem_is_truthy(doc_get(report, str_from(name)));
}

static int64_t number(Doc report, const char *name) {
    return elem_as_i64(doc_get(report, str_from(name)));
}

static uint32_t rows(Doc report, const char *name) {
    return doc_count(elem_doc(doc_get(report, str_from(name))));
}

typedef void (*Plant)(Patient *p, const Collection *coll, Error *err);

static void damage(Patient *p, Plant plant) {
    Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(p->fx.op, &p->ns, LOCK_X, &access, &err), err);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(p->fx.op, &uow, &err), err);
    plant(p, access.coll, &err);
    EXPECT_OK(uow_commit(&uow, &err), err);
}

static IndexKey key_of(const Collection *coll, const char *name, Doc doc, KeySet *keys) {
    Error err = {0};
    key_set_init(keys);
    EXPECT_OK(index_keys_of(collection_find_index(coll, str_from(name)), doc, keys, &err), err);
    return key_set_get(keys, 0);
}

static void plant_missing_key(Patient *p, const Collection *coll, Error *err) {
    KeySet keys;
    IndexKey key = key_of(coll, "a", doc_of(p, 4, false), &keys);
    bool is_found;
    EXPECT_OK(ordered_index_remove(p->fx.op, collection_find_index(coll, STR("a"))->store, key,
                                   record_id_num(5), &is_found, err),
              *err);
    EXPECT(is_found);
    key_set_done(&keys);
}

static void plant_extra_key(Patient *p, const Collection *coll, Error *err) {
    KeySet keys;
    IndexKey key = key_of(coll, "b", doc_of(p, 77, false), &keys);
    bool is_duplicate;
    EXPECT_OK(ordered_index_insert(p->fx.op, collection_find_index(coll, STR("b"))->store, key,
                                   record_id_num(3), true, &is_duplicate, err),
              *err);
    key_set_done(&keys);
}

/* A document with an array and all its keys, but without telling the catalog. */
static void plant_wrong_multikey(Patient *p, const Collection *coll, Error *err) {
    Doc doc = doc_of(p, 50, true);
    RecordId rid = record_id_num(50);
    EXPECT_OK(record_insert(p->fx.op, coll->records, rid,
                            (Str){(const char *)doc.data, doc_size(doc)}, err),
              *err);
    for (uint32_t i = 0; i < coll->index_count; i++) {
        KeySet keys;
        (void)key_of(coll, coll->indexes[i]->name, doc, &keys);
        bool is_duplicate;
        for (uint32_t k = 0; k < keys.count; k++)
            EXPECT_OK(ordered_index_insert(p->fx.op, coll->indexes[i]->store, key_set_get(&keys, k),
                                           rid, true, &is_duplicate, err),
                      *err);
        key_set_done(&keys);
    }
}

static void plant_bad_bson(Patient *p, const Collection *coll, Error *err) {
    static const char BYTES[] = "\x10\0\0\0this is no BSON";
    EXPECT_OK(record_update(p->fx.op, coll->records, record_id_num(7), (Str){BYTES, 16},
                            doc_size(doc_of(p, 6, false)), err),
              *err);
}

static void plant_wrong_count(Patient *p, const Collection *coll, Error *err) {
    (void)p, (void)err;
    record_store_set_counts(coll->records, 99, 99);
}

TEST(validate_finds_planted_faults_and_repair_mends_them) {
    static const ValidateOptions FULL = {.is_conformance = true, .is_fast_count_enforced = true};
    static const ValidateOptions REPAIR = {.is_repair = true};
    static const struct {
        const char *name;
        Plant plant;
        const char *list; /* which list of the report names it; NULL: the index or the errors do */
        const char *mended;
        int64_t mended_count;
    } CASES[] = {
        {"a missing key", plant_missing_key, "missingIndexEntries",
         "numInsertedMissingIndexEntries", 1},
        {"an extra key", plant_extra_key, "extraIndexEntries", "numRemovedExtraIndexEntries", 1},
        {"a wrong multikey flag", plant_wrong_multikey, NULL, "repaired", 1},
        {"bad BSON", plant_bad_bson, "corruptRecords", "numRemovedCorruptRecords", 1},
        {"a wrong count", plant_wrong_count, "errors", NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Patient p = {0};
        patient_init(&p);
        Doc healthy = examine(&p, &FULL);
        EXPECT(flag(healthy, "valid"));
        EXPECT_EQ_I64(number(healthy, "nrecords"), DOCS);
        damage(&p, CASES[i].plant);
        Doc report = examine(&p, &FULL);
        if (flag(report, "valid"))
            test_fail(__FILE__, __LINE__, "%s is not found", CASES[i].name);
        if (CASES[i].list != NULL)
            EXPECT_EQ_I64(rows(report, CASES[i].list), 1);
        Doc repaired = examine(&p, &REPAIR);
        if (!flag(repaired, "valid"))
            test_fail(__FILE__, __LINE__, "%s is not mended: %s", CASES[i].name,
                      shell_text_of_doc(repaired, &p.arena));
        if (CASES[i].mended != NULL)
            EXPECT_EQ_I64(elem_is_truthy(doc_get(repaired, str_from(CASES[i].mended))),
                          CASES[i].mended_count);
        Doc after = examine(&p, &FULL);
        if (!flag(after, "valid"))
            test_fail(__FILE__, __LINE__, "%s comes back after the repair: %s", CASES[i].name,
                      shell_text_of_doc(after, &p.arena));
        EXPECT(!flag(examine(&p, &REPAIR), "repaired"));
        patient_done(&p);
    }
}

/* A record with the keys that nobody else has, under a record id beyond the others. */
static void plant_record(Patient *p, const Collection *coll, int64_t num, int32_t id, int32_t b) {
    Error err = {0};
    DocBuilder builder = doc_builder_in_arena(&p->arena);
    build_i32(&builder, "_id", id);
    build_i32(&builder, "a", 0);
    build_i32(&builder, "b", b);
    Doc doc = doc_builder_end(&builder);
    RecordId rid = record_id_num(num);
    EXPECT_OK(record_insert(p->fx.op, coll->records, rid,
                            (Str){(const char *)doc.data, doc_size(doc)}, &err),
              err);
    for (uint32_t i = 0; i < coll->index_count; i++) {
        KeySet keys;
        IndexKey key = key_of(coll, coll->indexes[i]->name, doc, &keys);
        bool is_duplicate;
        EXPECT_OK(ordered_index_insert(p->fx.op, coll->indexes[i]->store, key, rid,
                                       /* is_dup_allowed= */ false, &is_duplicate, &err),
                  err);
        key_set_done(&keys);
    }
}

static void plant_duplicates(Patient *p, const Collection *coll, Error *err) {
    (void)err;
    plant_record(p, coll, 60, /* id= */ 60, /* b= */ 4); /* b of another one */
    plant_record(p, coll, 61, /* id= */ 3, /* b= */ 61); /* _id of another one */
    plant_record(p, coll, 62, /* id= */ 3, /* b= */ 5);  /* both */
}

/* All documents of a collection as text, in the order of their record ids. */
static const char *texts_of(Patient *p, const Ns *ns) {
    Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_read(p->fx.op, ns, &access, &err), err);
    if (access.coll == NULL)
        return "";
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    EXPECT_OK(record_cursor_open(p->fx.op, access.coll->records, true, &cursor, &err), err);
    const char *text = "";
    for (;;) {
        bool is_found;
        RecordId rid;
        Str data;
        EXPECT_OK(record_cursor_next(&cursor, &is_found, &rid, &data, &err), err);
        if (!is_found)
            return text;
        Doc doc = {(const uint8_t *)data.data};
        Elem inner = doc_get_lit(doc, "document"); /* of those with an _id made for them */
        text = arena_printf(
            &p->arena, "%s%s%s;", text, elem_is_present(inner) ? "in " : "",
            shell_text_of_doc(elem_is_present(inner) ? elem_doc(inner) : doc, &p->arena));
    }
}

TEST(repair_moves_documents_with_duplicate_keys_to_the_lost_and_found) {
    /* Goal: what cannot have its unique key leaves with all its other keys, is kept elsewhere even
     * if its _id is there already, and takes nothing from the document that has the key. */
    static const ValidateOptions FULL = {.is_conformance = true, .is_fast_count_enforced = true};
    static const ValidateOptions STAY = {.is_repair = true};
    static const ValidateOptions MOVE = {.is_repair = true,
                                         .ensure_collection = ddl_ensure_collection};
    Patient p = {0};
    patient_init(&p);
    const char *before = texts_of(&p, &p.ns);
    damage(&p, plant_duplicates);
    Doc report = examine(&p, &FULL);
    EXPECT(!flag(report, "valid"));
    EXPECT_EQ_I64(rows(report, "missingIndexEntries"), 4);
    Uuid uuid;
    EXPECT(uuid_from_elem(doc_get_lit(report, "uuid"), &uuid));
    Ns lost;
    Error err = {0};
    EXPECT_OK(lost_and_found_ns(&uuid, &lost, &err), err);

    Doc stayed = examine(&p, &STAY); /* nowhere to put them */
    EXPECT(!flag(stayed, "valid"));
    EXPECT(!flag(stayed, "repaired"));
    EXPECT_EQ_I64(number(stayed, "nrecords"), DOCS + 3);
    EXPECT_STR(texts_of(&p, &lost), "");

    Doc moved = examine(&p, &MOVE);
    EXPECT(flag(moved, "valid"));
    EXPECT(flag(moved, "repaired"));
    EXPECT_EQ_I64(number(moved, "nrecords"), DOCS);
    EXPECT_EQ_I64(number(moved, "numDocumentsMovedToLostAndFound"), 3);
    EXPECT_EQ_I64(number(moved, "numOutdatedMissingIndexEntry"), 1);
    EXPECT_EQ_I64(number(moved, "numInsertedMissingIndexEntries"), 0);
    const char *kept = texts_of(&p, &lost);
    static const char *const KEPT[] = {"{ _id: 60, a: 0, b: 4 };", "{ _id: 3, a: 0, b: 61 };",
                                       "{ _id: 3, a: 0, b: 5 };", ";in { _id: 3,"};
    for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
        if (strstr(kept, KEPT[i]) == NULL)
            test_fail(__FILE__, __LINE__, "%s is not in %s", KEPT[i], kept);
    EXPECT_STR(texts_of(&p, &p.ns), before);
    Doc after = examine(&p, &FULL);
    if (!flag(after, "valid"))
        test_fail(__FILE__, __LINE__, "not sound: %s", shell_text_of_doc(after, &p.arena));
    EXPECT(!flag(examine(&p, &MOVE), "repaired"));
    patient_done(&p);
}

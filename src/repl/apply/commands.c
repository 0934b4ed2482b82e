/*
 * commands.c - entries that change the catalog (op: "c"), one at a time.
 *
 * Collections are found by UUID: after an initial sync, or on data that are newer than the entry,
 * the name may belong to another one. A collection that occupies a needed name then stems from a
 * later entry: it gets a temporary name until the entry that renames or drops it is applied.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/json.h"
#include "ddl/ddl.h"
#include "repl/apply/apply_internal.h"

enum {
    FINE_MAX = 4,
};

typedef struct Command {
    OpCtx *op;
    ApplyWriter *writer;
    const ApplyOp *entry;
    ApplyMode mode;
    int depth;
    Str db;
    Elem first; /* the field that names the command */
} Command;

typedef struct CommandRow {
    const char *name;
    ErrCode (*apply)(const Command *command, Error *err); /* NULL: known, not supported */
    /* Errors that mean that its effect already exists, or is undone later. */
    ErrCode fine[FINE_MAX];
    ErrCode fine_early[FINE_MAX]; /* likewise, while data may be ahead of the entry */
} CommandRow;

static ErrCode apply_create(const Command *command, Error *err);
static ErrCode apply_drop(const Command *command, Error *err);
static void hang_after_drop(Str db);
static ErrCode apply_drop_database(const Command *command, Error *err);
static ErrCode apply_rename(const Command *command, Error *err);
static ErrCode apply_coll_mod(const Command *command, Error *err);
static ErrCode apply_create_indexes(const Command *command, Error *err);
static ErrCode apply_drop_indexes(const Command *command, Error *err);
static ErrCode apply_ops(const Command *command, Error *err);
static ErrCode apply_start_build(const Command *command, Error *err);
static ErrCode apply_commit_build(const Command *command, Error *err);
static ErrCode apply_abort_build(const Command *command, Error *err);
static ErrCode apply_nothing(const Command *command, Error *err);

/* To add a command: a row here and its function below. */
static const CommandRow COMMANDS[] = {
    {"abortIndexBuild", apply_abort_build, {ERR_NAMESPACE_NOT_FOUND}, {0}},
    {"applyOps", apply_ops, {0}, {0}},
    {"collMod",
     apply_coll_mod,
     {ERR_NAMESPACE_NOT_FOUND, ERR_INDEX_NOT_FOUND},
     {ERR_INVALID_OPTIONS}},
    {"commitIndexBuild",
     apply_commit_build,
     {ERR_NAMESPACE_NOT_FOUND, ERR_INDEX_ALREADY_EXISTS},
     {ERR_INDEX_OPTIONS_CONFLICT, ERR_INDEX_KEY_SPECS_CONFLICT, ERR_CANNOT_CREATE_INDEX}},
    {"convertToCapped", NULL, {0}, {0}},
    {"create", apply_create, {ERR_NAMESPACE_EXISTS}, {0}},
    {"createIndexes",
     apply_create_indexes,
     {ERR_NAMESPACE_NOT_FOUND, ERR_INDEX_ALREADY_EXISTS},
     {ERR_INDEX_OPTIONS_CONFLICT, ERR_INDEX_KEY_SPECS_CONFLICT, ERR_CANNOT_CREATE_INDEX}},
    {"dbCheck", apply_nothing, {0}, {0}},
    {"drop", apply_drop, {ERR_NAMESPACE_NOT_FOUND}, {0}},
    {"dropDatabase", apply_drop_database, {ERR_NAMESPACE_NOT_FOUND}, {0}},
    {"dropIndexes", apply_drop_indexes, {ERR_NAMESPACE_NOT_FOUND, ERR_INDEX_NOT_FOUND}, {0}},
    {"emptycapped", NULL, {0}, {0}},
    {"importCollection", NULL, {0}, {0}},
    {"renameCollection", apply_rename, {ERR_NAMESPACE_NOT_FOUND, ERR_NAMESPACE_EXISTS}, {0}},
    {"startIndexBuild",
     apply_start_build,
     {ERR_NAMESPACE_NOT_FOUND, ERR_INDEX_ALREADY_EXISTS},
     {ERR_INDEX_OPTIONS_CONFLICT, ERR_INDEX_KEY_SPECS_CONFLICT, ERR_CANNOT_CREATE_INDEX}},
};

static bool is_listed(const ErrCode *codes, ErrCode code) {
    for (size_t i = 0; i < FINE_MAX && codes[i] != ERR_OK; i++)
        if (codes[i] == code)
            return true;
    return false;
}

static ErrCode prepare(Command *command, Error *err) {
    Str ns = command->entry->ns;
    const char *dot = memchr(ns.data, '.', ns.size);
    command->db = (Str){ns.data, dot != NULL ? (size_t)(dot - ns.data) : ns.size};
    if (dot == NULL || !str_is((Str){dot + 1, ns.size - command->db.size - 1}, "$cmd"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "oplog entry: a command needs a namespace like \"db.$cmd\"");
    TRY(db_name_check(command->db, err));
    if (str_is(command->db, "local"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "oplog entry for \"local\", which is not replicated");
    DocIter iter = doc_iter(command->entry->o);
    if (!doc_iter_next(&iter, &command->first))
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'o' names no command");
    return ERR_OK;
}

/* Changes of the catalog, by which operators find what changed when. */
static void log_command(const CommandRow *row, const ApplyOp *entry, ApplyMode mode) {
    if (row->apply == apply_nothing || row->apply == apply_ops)
        return;
    CLEANUP(buffer_done) Buffer text;
    buffer_init(&text, BUFFER_UNBOUNDED);
    const LogAttr attr = json_log_attr("oplogEntry", entry->entry, &text);
    /* MongoDB tells it twice; here it is one thread that takes an entry alone and applies it. */
    if (mode == APPLY_STEADY)
        LOG_INFO(LOG_REPL, 7360109, "Processing DDL command oplog entry in OplogBatcher", attr);
    LOG_INFO(LOG_REPL, 7360110, "Applying DDL command oplog entry", attr);
}

ErrCode apply_command(OpCtx *op, ApplyWriter *writer, const ApplyOp *entry, ApplyMode mode,
                      int depth, Error *err) {
    Command command = {op, writer, entry, mode, depth, {NULL, 0}, ELEM_MISSING};
    TRY(prepare(&command, err));
    const char *name = elem_name(command.first);
    const CommandRow *row = NULL;
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS) && row == NULL; i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            row = &COMMANDS[i];
    if (row == NULL)
        return error_set(err, ERR_BAD_VALUE, "oplog entry: unknown command '%.40s'", name);
    if (row->apply == NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED, "oplog entry: command '%s' is not supported yet",
                         name);
    log_command(row, entry, mode);
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.apply_ts = apply_has_timestamps(mode) ? entry->ts : 0;
    ErrCode rc = row->apply(&command, err);
    bool is_fine =
        is_listed(row->fine, rc) || (mode != APPLY_STEADY && is_listed(row->fine_early, rc));
    if (rc == ERR_OK || !is_fine)
        return rc;
    LOG_DEBUG(LOG_REPL, 2170004, "A command of the oplog had nothing to do",
              LOG_STR("command", name), LOG_STR("error", error_message(err)));
    error_reset(err);
    return ERR_OK;
}

/* ---- finding ---- */

/* The current name of the collection with that UUID. */
static bool find_uuid(OpCtx *op, const Uuid *uuid, Ns *ret_ns) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find_uuid(catalog, uuid);
    if (coll != NULL)
        *ret_ns = coll->ns;
    catalog_release(catalog);
    return coll != NULL;
}

/* The collection that currently has that name. */
static bool find_name(OpCtx *op, const Ns *ns, Uuid *ret_uuid) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, ns);
    if (coll != NULL)
        *ret_uuid = coll->uuid;
    catalog_release(catalog);
    return coll != NULL;
}

/* The target of the command, by UUID if there is one. */
static ErrCode find_target(const Command *command, Ns *ret_ns, Error *err) {
    if (elem_type(command->first) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: '%s' must be a string",
                         elem_name(command->first));
    Uuid uuid;
    TRY(ns_make(command->db, elem_str(command->first), ret_ns, err));
    bool is_found = command->entry->has_uuid ? find_uuid(command->op, &command->entry->uuid, ret_ns)
                                             : find_name(command->op, ret_ns, &uuid);
    if (!ns_is_replicated(ret_ns))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "oplog entry for \"%s\", which is not replicated", ret_ns->text);
    if (!is_found)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist",
                         ret_ns->text);
    return ERR_OK;
}

/* Without some of the fields, in the operation's arena. */
static Doc without(Doc doc, OpCtx *op, const char *first, const char *second) {
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, doc_size(doc));
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (strcmp(elem_name(elem), first) != 0 && strcmp(elem_name(elem), second) != 0)
            build_elem(&b, elem);
    return doc_builder_end(&b);
}

/* The name is taken by a collection of a later entry, which will be renamed or dropped by another
 * one. */
static ErrCode move_aside(const Command *command, const Ns *ns, const char *suffix, Error *err) {
    Ns aside;
    TRY(ddl_temp_ns(command->op, ns_db(ns), suffix, &aside, err));
    LOG_INFO(LOG_REPL, 2170005, "A collection is in the way of an oplog entry",
             LOG_STR("namespace", ns->text), LOG_STR("renamedTo", aside.text));
    return ddl_rename(command->op, ns, &aside, /* is_drop_target= */ false, err);
}

/* ---- collections ---- */

static ErrCode apply_create(const Command *command, Error *err) {
    OpCtx *op = command->op;
    if (elem_type(command->first) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'create' must be a string");
    Ns ns;
    TRY(ns_make(command->db, elem_str(command->first), &ns, err));
    if (!ns_is_replicated(&ns))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "oplog entry for \"%s\", which is not replicated", ns.text);
    Doc options = without(command->entry->o, op, "create", "create");
    if (!command->entry->has_uuid)
        return ddl_create_collection(op, &ns, options, NULL, err);
    const Uuid *uuid = &command->entry->uuid;
    Ns present;
    bool is_there = find_uuid(op, uuid, &present);
    if (is_there && ns_equal(&present, &ns))
        return ERR_OK;
    Uuid other;
    if (find_name(op, &ns, &other))
        TRY(move_aside(command, &ns, "create", err));
    if (is_there) /* renamed by a later entry that has already been applied */
        return ddl_rename(op, &present, &ns, /* is_drop_target= */ false, err);
    return ddl_create_collection(op, &ns, options, uuid, err);
}

static ErrCode apply_drop(const Command *command, Error *err) {
    Ns ns;
    TRY(find_target(command, &ns, err));
    DropResult result;
    TRY(ddl_drop(command->op, &ns, NULL, &result, err));
    if (UNLIKELY(failpoint_is_set(FP_HANG_AFTER_APPLYING_DROP)))
        hang_after_drop(command->db);
    return ERR_OK;
}

/* In the database that the failpoint's data name; without data in any. */
static void hang_after_drop(Str db) {
    FailpointConfig config = failpoint_config(FP_HANG_AFTER_APPLYING_DROP);
    Elem name = config.data != NULL ? doc_get_lit((Doc){config.data}, "dbName") : ELEM_MISSING;
    bool is_other = elem_type(name) == BT_STRING && !str_equal(elem_str(name), db);
    xfree(config.data);
    if (!is_other)
        failpoint_hang(FP_HANG_AFTER_APPLYING_DROP);
}

static ErrCode apply_drop_database(const Command *command, Error *err) {
    bool existed;
    return ddl_drop_database(command->op, command->db, &existed, err);
}

static ErrCode drop_uuid(OpCtx *op, const Uuid *uuid, Error *err) {
    Ns ns;
    DropResult result;
    return find_uuid(op, uuid, &ns) ? ddl_drop(op, &ns, NULL, &result, err) : ERR_OK;
}

typedef struct Rename {
    Ns from;
    Ns to;
    bool has_dropped;
    Uuid dropped; /* what the target was */
    bool stays_temp;
} Rename;

static ErrCode parse_rename(const Command *command, Rename *ret_rename, Error *err) {
    Doc o = command->entry->o;
    Elem to = doc_get_lit(o, "to");
    if (elem_type(command->first) != BT_STRING || elem_type(to) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "oplog entry: 'renameCollection' and 'to' must be strings");
    *ret_rename = (Rename){0};
    TRY(ns_parse(elem_str(command->first), &ret_rename->from, err));
    TRY(ns_parse(elem_str(to), &ret_rename->to, err));
    ret_rename->stays_temp = elem_is_truthy(doc_get_lit(o, "stayTemp"));
    Elem drop = doc_get_lit(o, "dropTarget");
    ret_rename->has_dropped = uuid_from_elem(drop, &ret_rename->dropped);
    if (elem_is_present(drop) && !ret_rename->has_dropped && elem_type(drop) != BT_BOOL)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'dropTarget' must be a UUID");
    if (elem_type(drop) == BT_BOOL && elem_bool(drop))
        ret_rename->has_dropped = find_name(command->op, &ret_rename->to, &ret_rename->dropped);
    if (!str_equal(ns_db(&ret_rename->from), ns_db(&ret_rename->to)) ||
        !ns_is_replicated(&ret_rename->from) || !ns_is_replicated(&ret_rename->to))
        return error_set(err, ERR_ILLEGAL_OPERATION, "oplog entry: cannot rename \"%s\" to \"%s\"",
                         ret_rename->from.text, ret_rename->to.text);
    return ERR_OK;
}

static ErrCode apply_rename(const Command *command, Error *err) {
    OpCtx *op = command->op;
    Rename rename;
    TRY(parse_rename(command, &rename, err));
    Uuid source, target;
    bool has_source = command->entry->has_uuid ? find_uuid(op, &command->entry->uuid, &rename.from)
                                               : find_name(op, &rename.from, &source);
    if (command->entry->has_uuid)
        source = command->entry->uuid;
    if (!has_source) /* dropped later; what remains is to drop what it replaced */
        return rename.has_dropped ? drop_uuid(op, &rename.dropped, err)
                                  : error_set(err, ERR_NAMESPACE_NOT_FOUND,
                                              "collection \"%s\" does not exist", rename.from.text);
    if (!str_equal(ns_db(&rename.from), ns_db(&rename.to)))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "oplog entry: the collection to be renamed is \"%s\"", rename.from.text);
    bool has_target = find_name(op, &rename.to, &target);
    if (has_target && uuid_equal(&target, &source))
        return rename.has_dropped ? drop_uuid(op, &rename.dropped, err) : ERR_OK;
    bool is_replaced = has_target && rename.has_dropped && uuid_equal(&target, &rename.dropped);
    if (rename.has_dropped && !is_replaced)
        TRY(drop_uuid(op, &rename.dropped, err));
    if (has_target && !is_replaced)
        TRY(move_aside(command, &rename.to, "renameCollection", err));
    return rename.stays_temp ? ddl_rename_as_temp(op, &rename.from, &rename.to, is_replaced, err)
                             : ddl_rename(op, &rename.from, &rename.to, is_replaced, err);
}

static bool skips_indexes(const Command *command) {
    return atomic_load_explicit(&command->writer->skips_indexes, memory_order_relaxed);
}

static ErrCode apply_coll_mod(const Command *command, Error *err) {
    Ns ns;
    TRY(find_target(command, &ns, err));
    Doc o = command->entry->o;
    Elem index = doc_get_lit(o, "index");
    if (elem_is_present(index) && elem_type(index) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'index' must be a document");
    CollModChange change = {
        .validator = doc_get_lit(o, "validator"),
        .validation_level = doc_get_lit(o, "validationLevel"),
        .validation_action = doc_get_lit(o, "validationAction"),
        .capped_size = doc_get_lit(o, "cappedSize"),
        .capped_max = doc_get_lit(o, "cappedMax"),
        .view_on = ELEM_MISSING,
        .pipeline = ELEM_MISSING,
        .expire_after = doc_get_lit(o, "expireAfterSeconds"),
        .pre_images = doc_get_lit(o, "changeStreamPreAndPostImages"),
        .index = elem_is_present(index) ? elem_doc(index) : DOC_NONE,
    };
    /* Not there: the rest of the change must happen all the same. */
    if (skips_indexes(command))
        change.index = DOC_NONE;
    CollModResult result;
    return ddl_coll_mod(command->op, &ns, &change, &result, err);
}

/* ---- indexes ---- */

/* In the foreground, whatever the size of the collection: nothing else of the oplog runs
 * meanwhile. */
static ErrCode build_indexes(const Command *command, const Doc *specs, uint32_t count, Error *err) {
    Ns ns;
    TRY(find_target(command, &ns, err));
    if (skips_indexes(command))
        return ERR_OK;
    CreateIndexesResult result;
    return ddl_create_indexes(command->op, &ns, specs, count, &result, err);
}

static ErrCode apply_create_indexes(const Command *command, Error *err) {
    Doc spec = without(command->entry->o, command->op, "createIndexes", "createIndexes");
    return build_indexes(command, &spec, 1, err);
}

/* The content of the entries of two-phase builds. */
typedef struct BuildEntry {
    Ns ns;
    Uuid uuid;
    Doc specs[COLLECTION_INDEXES_MAX];
    uint32_t count;
} BuildEntry;

static ErrCode parse_build(const Command *command, BuildEntry *ret_build, Error *err) {
    if (!uuid_from_elem(doc_get_lit(command->entry->o, "indexBuildUUID"), &ret_build->uuid))
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'indexBuildUUID' must be a UUID");
    Elem rows = doc_get_lit(command->entry->o, "indexes");
    if (elem_type(rows) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'indexes' must be an array");
    ret_build->count = doc_count(elem_doc(rows));
    if (ret_build->count == 0 || ret_build->count > COLLECTION_INDEXES_MAX)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'indexes' has %u elements",
                         ret_build->count);
    DocIter iter = doc_iter(elem_doc(rows));
    Elem row;
    for (uint32_t i = 0; doc_iter_next(&iter, &row); i++) {
        if (elem_type(row) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "oplog entry: 'indexes' must hold documents");
        ret_build->specs[i] = elem_doc(row);
    }
    return find_target(command, &ret_build->ns, err);
}

/* In the background, until the entry that ends it. Not during an initial sync: data may be ahead of
 * the entry, and the copy checks at its end which builds exist. */
static ErrCode apply_start_build(const Command *command, Error *err) {
    BuildEntry build;
    TRY(parse_build(command, &build, err));
    if (command->mode == APPLY_INITIAL_SYNC || skips_indexes(command))
        return ERR_OK;
    return ddl_start_index_build_of(command->op, &build.ns, &build.uuid, build.specs, build.count,
                                    err);
}

/* Waits for the build. If there is none, or it has failed, the indexes are built in the foreground:
 * the primary has decided that they exist. */
static ErrCode apply_commit_build(const Command *command, Error *err) {
    BuildEntry build;
    TRY(parse_build(command, &build, err));
    TRY(ddl_end_index_build(command->op, &build.ns, &build.uuid, /* is_commit= */ true, err));
    return build_indexes(command, build.specs, build.count, err);
}

static ErrCode apply_abort_build(const Command *command, Error *err) {
    BuildEntry build;
    TRY(parse_build(command, &build, err));
    return ddl_end_index_build(command->op, &build.ns, &build.uuid, /* is_commit= */ false, err);
}

static ErrCode apply_drop_indexes(const Command *command, Error *err) {
    Ns ns;
    TRY(find_target(command, &ns, err));
    Elem name = doc_get_lit(command->entry->o, "index");
    if (elem_type(name) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'index' must be a string");
    uint32_t count_before;
    return ddl_drop_indexes(command->op, &ns, name, &count_before, err);
}

static ErrCode apply_nothing(const Command *command, Error *err) {
    (void)command, (void)err;
    return ERR_OK;
}

/* ---- several together ---- */

/* With commands inside, or writes of views: applied sequentially, all with one timestamp, so that
 * no reader sees a part. An applyOps of documents alone is partitioned instead and does not come
 * here. */
static ErrCode apply_ops(const Command *command, Error *err) {
    Doc o = command->entry->o;
    /* Those of a chain come here only within another applyOps, which nothing writes. */
    static const char *const REFUSED[] = {"prepare", "partialTxn", "count"};
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
        if (elem_is_truthy(doc_get(o, str_from(REFUSED[i]))))
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "oplog entry: applyOps with '%s' is not supported yet", REFUSED[i]);
    if (elem_type(command->first) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'applyOps' must be an array");
    if (command->depth >= APPLY_NESTING_MAX)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: applyOps is nested too deeply");
    return apply_rows(command->op, command->writer, elem_doc(command->first), command->entry->ts,
                      command->entry->place, command->mode, command->depth, err);
}

ErrCode apply_rows(OpCtx *op, ApplyWriter *writer, Doc rows, uint64_t ts, ApplyPlace place,
                   ApplyMode mode, int depth, Error *err) {
    DocIter iter = doc_iter(rows);
    for (Elem row; doc_iter_next(&iter, &row); place.index++) {
        if (elem_type(row) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "oplog entry: 'applyOps' must hold documents");
        ApplyOp inner;
        TRY(apply_parse(elem_doc(row), ts, &inner, err));
        inner.place = place;
        if (inner.kind == APPLY_NOOP)
            continue;
        if (inner.kind == APPLY_COMMAND)
            TRY(apply_command(op, writer, &inner, mode, depth + 1, err));
        else
            TRY(apply_write_alone(op, writer, &inner, mode, err));
    }
    return ERR_OK;
}

#include "change_stream/change.h"

#include "bson/compare.h"
#include "catalog/write_group.h"
#include "query/update/update_delta.h"

static const char *const KIND_NAMES[CHANGE_KIND_COUNT] = {
    [CHANGE_NONE] = "",
    [CHANGE_INSERT] = "insert",
    [CHANGE_UPDATE] = "update",
    [CHANGE_REPLACE] = "replace",
    [CHANGE_DELETE] = "delete",
    [CHANGE_DROP] = "drop",
    [CHANGE_RENAME] = "rename",
    [CHANGE_DROP_DATABASE] = "dropDatabase",
    [CHANGE_INVALIDATE] = "invalidate",
    [CHANGE_CREATE] = "create",
    [CHANGE_CREATE_INDEXES] = "createIndexes",
    [CHANGE_DROP_INDEXES] = "dropIndexes",
    [CHANGE_MODIFY] = "modify",
    [CHANGE_AWAY] = "",
};

/* Commands of the oplog by the first field of `o`. */
typedef struct CommandRow {
    Str name;
    ChangeKind kind;
} CommandRow;

static const CommandRow COMMANDS[] = {
    {STR("create"), CHANGE_CREATE},
    {STR("drop"), CHANGE_DROP},
    {STR("renameCollection"), CHANGE_RENAME},
    {STR("dropDatabase"), CHANGE_DROP_DATABASE},
    {STR("createIndexes"), CHANGE_CREATE_INDEXES},
    {STR("commitIndexBuild"), CHANGE_CREATE_INDEXES},
    {STR("dropIndexes"), CHANGE_DROP_INDEXES},
    {STR("collMod"), CHANGE_MODIFY},
};

const char *change_kind_name(ChangeKind kind) {
    return KIND_NAMES[kind];
}

Elem change_document_key(const StreamChange *change) {
    if (!change_is_of_document(change->kind))
        return ELEM_MISSING;
    return change->kind == CHANGE_DELETE ? change->o : change->o2;
}

/* ---- reading entries ---- */

static void split_ns(Str full, Str *ret_db, Str *ret_coll) {
    const char *dot = memchr(full.data, '.', full.size);
    size_t db_size = dot != NULL ? (size_t)(dot - full.data) : full.size;
    *ret_db = (Str){full.data, db_size};
    *ret_coll = dot != NULL ? (Str){dot + 1, full.size - db_size - 1} : (Str){"", 0};
}

static void read_command(StreamChange *change) {
    Elem first;
    DocIter iter = doc_iter(elem_doc(change->o));
    change->kind = CHANGE_NONE;
    if (!doc_iter_next(&iter, &first))
        return;
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (elem_name_is(first, COMMANDS[i].name))
            change->kind = COMMANDS[i].kind;
    if (change->kind == CHANGE_DROP_DATABASE) {
        change->coll = (Str){"", 0};
        return;
    }
    if (elem_type(first) != BT_STRING) {
        change->kind = CHANGE_NONE;
        return;
    }
    change->is_commit_build = elem_name_is(first, STR("commitIndexBuild"));
    change->coll = elem_str(first);
    if (change->kind != CHANGE_RENAME)
        return;
    split_ns(elem_str(first), &change->db, &change->coll);
    Elem to = doc_get_lit(elem_doc(change->o), "to");
    if (elem_type(to) == BT_STRING)
        split_ns(elem_str(to), &change->to_db, &change->to_coll);
    else
        change->kind = CHANGE_NONE;
}

/* What a shard says by a no-op, in o2 (sharding/ddl): {shardCollection: ns}, or of a database
 * {movePrimary or dropDatabase: name, databaseVersion}. */
static bool is_mark(Elem o2, bool *ret_is_of_database) {
    if (elem_type(o2) != BT_DOC)
        return false;
    Elem first;
    DocIter iter = doc_iter(elem_doc(o2));
    if (!doc_iter_next(&iter, &first))
        return false;
    *ret_is_of_database =
        elem_name_is(first, STR("movePrimary")) || elem_name_is(first, STR("dropDatabase"));
    return *ret_is_of_database || elem_name_is(first, STR("shardCollection"));
}

static void read_mark(StreamChange *change) {
    bool is_of_database;
    if (!is_mark(change->o2, &is_of_database))
        return;
    change->kind = CHANGE_AWAY;
    if (is_of_database)
        change->coll = (Str){"", 0};
}

/* The document of a view has its whole name as _id. */
static void read_view(StreamChange *change) {
    static const ChangeKind KINDS[CHANGE_KIND_COUNT] = {
        [CHANGE_INSERT] = CHANGE_CREATE,
        [CHANGE_UPDATE] = CHANGE_MODIFY,
        [CHANGE_REPLACE] = CHANGE_MODIFY,
        [CHANGE_DELETE] = CHANGE_DROP,
    };
    Elem key = change_document_key(change);
    Elem name = elem_type(key) == BT_DOC ? doc_get_lit(elem_doc(key), "_id") : ELEM_MISSING;
    if (elem_type(name) != BT_STRING)
        return;
    change->kind = KINDS[change->kind];
    change->is_view = true;
    change->uuid = ELEM_MISSING;
    split_ns(elem_str(name), &change->db, &change->coll);
}

void change_read(Doc row, bool shows_views, StreamChange *ret_change) {
    StreamChange change = {
        .write = row, .o = ELEM_MISSING, .o2 = ELEM_MISSING, .uuid = ELEM_MISSING};
    char op = '\0';
    Str ns = {"", 0};
    bool is_from_migrate = false;
    DocIter iter = doc_iter(row);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_name_is(elem, STR("op")) && elem_type(elem) == BT_STRING)
            op = elem_str(elem).data[0];
        else if (elem_name_is(elem, STR("ns")) && elem_type(elem) == BT_STRING)
            ns = elem_str(elem);
        else if (elem_name_is(elem, STR("ui")))
            change.uuid = elem;
        else if (elem_name_is(elem, STR("o")) && elem_type(elem) == BT_DOC)
            change.o = elem;
        else if (elem_name_is(elem, STR("o2")) && elem_type(elem) == BT_DOC)
            change.o2 = elem;
        else if (elem_name_is(elem, STR("fromMigrate")))
            is_from_migrate = elem_is_truthy(elem);
    }
    split_ns(ns, &change.db, &change.coll);
    *ret_change = change;
    if (!elem_is_present(change.o) || is_from_migrate)
        return;
    if (op == 'c')
        read_command(&change);
    else if (op == 'n')
        read_mark(&change);
    else if (op == 'i')
        change.kind = CHANGE_INSERT;
    else if (op == 'd')
        change.kind = CHANGE_DELETE;
    else if (op == 'u')
        change.kind = doc_is_present(update_delta_of_entry(elem_doc(change.o))) ? CHANGE_UPDATE
                                                                                : CHANGE_REPLACE;
    if (change_is_of_document(change.kind) && elem_type(change_document_key(&change)) != BT_DOC)
        change.kind = CHANGE_NONE;
    if (shows_views && change_is_of_document(change.kind) && str_is(change.coll, "system.views"))
        read_view(&change);
    *ret_change = change;
}

EntryForm entry_form(Doc entry) {
    Elem op = doc_get_lit(entry, "op");
    if (elem_type(op) != BT_STRING)
        return ENTRY_FORM_NOTHING;
    switch (elem_str(op).data[0]) {
    case 'i':
    case 'u':
    case 'd':
        return ENTRY_FORM_ONE;
    case 'c':
        break;
    case 'n': {
        bool is_of_database;
        return is_mark(doc_get_lit(entry, "o2"), &is_of_database) ? ENTRY_FORM_ONE
                                                                  : ENTRY_FORM_NOTHING;
    }
    default:
        return ENTRY_FORM_NOTHING;
    }
    Elem o = doc_get_lit(entry, "o");
    if (elem_type(o) != BT_DOC)
        return ENTRY_FORM_NOTHING;
    Elem first;
    DocIter iter = doc_iter(elem_doc(o));
    if (!doc_iter_next(&iter, &first))
        return ENTRY_FORM_NOTHING;
    if (elem_name_is(first, STR("commitTransaction")))
        return ENTRY_FORM_COMMIT;
    if (elem_name_is(first, STR("dropDatabase")) &&
        elem_type(doc_get_path(entry, "o2.collections")) == BT_DOC)
        return ENTRY_FORM_DROPS;
    if (!elem_name_is(first, STR("applyOps")))
        return ENTRY_FORM_ONE;
    if (entry_part(entry) == ENTRY_PARTIAL || elem_type(first) != BT_ARRAY ||
        elem_is_truthy(doc_get_lit(elem_doc(o), "prepare")))
        return ENTRY_FORM_NOTHING;
    return ENTRY_FORM_UNIT;
}

/* ---- what a stream shows ---- */

static bool is_system(Str coll) {
    return coll.size >= 7 && memcmp(coll.data, "system.", 7) == 0;
}

static bool is_in_scope(const StreamFilter *filter, Str db, Str coll) {
    if (filter->scope == SCOPE_CLUSTER)
        return !db_is_internal(db) && (filter->shows_system || !is_system(coll));
    if (!str_equal(db, ns_db(&filter->ns)))
        return false;
    if (filter->scope == SCOPE_DATABASE)
        return filter->shows_system || !is_system(coll);
    return str_equal(coll, ns_coll(&filter->ns));
}

static bool is_same_version(Doc a, Elem b) {
    static const char *const FIELDS[] = {"uuid", "timestamp", "lastMod"};
    if (elem_type(b) != BT_DOC)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++)
        if (!elem_equal(doc_get(a, str_from(FIELDS[i])), doc_get(elem_doc(b), str_from(FIELDS[i])),
                        NULL))
            return false;
    return true;
}

/* A router sends a stream to the one shard that has all of what is watched. A mark about a database
 * is for those that came by the version which ends with it: one that came later, and begins before
 * it, was checked when it came (stream_source.c). */
static bool takes_mark(const StreamFilter *filter, const StreamChange *change) {
    if (!doc_is_present(filter->database_version) || !str_equal(change->db, ns_db(&filter->ns)))
        return false;
    if (change->coll.size == 0)
        return is_same_version(filter->database_version,
                               doc_get_lit(elem_doc(change->o2), "databaseVersion"));
    return filter->scope != SCOPE_COLLECTION || str_equal(change->coll, ns_coll(&filter->ns));
}

bool filter_takes(const StreamFilter *filter, const StreamChange *change) {
    if (change->kind == CHANGE_NONE)
        return false;
    if (change->kind == CHANGE_AWAY)
        return takes_mark(filter, change);
    if (!filter->shows_expanded && change->kind > CHANGE_INVALIDATE)
        return false;
    if (change->is_view && (!filter->shows_expanded || filter->scope == SCOPE_COLLECTION))
        return false;
    /* A collection sees its own drop; only a dropDatabase that does not list them stands for it. */
    if (change->kind == CHANGE_DROP_DATABASE && filter->scope == SCOPE_COLLECTION)
        return !elem_is_present(change->o2) && str_equal(change->db, ns_db(&filter->ns));
    if (is_in_scope(filter, change->db, change->coll))
        return true;
    return change->kind == CHANGE_RENAME && is_in_scope(filter, change->to_db, change->to_coll);
}

bool filter_is_ended_by(const StreamFilter *filter, const StreamChange *change) {
    if (change->kind == CHANGE_AWAY)
        return true;
    switch (filter->scope) {
    case SCOPE_COLLECTION:
        return change->kind == CHANGE_DROP || change->kind == CHANGE_RENAME ||
               change->kind == CHANGE_DROP_DATABASE;
    case SCOPE_DATABASE:
        return change->kind == CHANGE_DROP_DATABASE;
    case SCOPE_CLUSTER:
        break;
    }
    return false;
}

/* Its drops have other types than itself: only the database counts. */
static bool may_concern_drops(const StreamFilter *filter, Doc entry) {
    StreamChange change;
    change_read(entry, /* shows_views= */ false, &change);
    if (filter->scope != SCOPE_COLLECTION)
        return filter_takes(filter, &change);
    return str_equal(change.db, ns_db(&filter->ns)) &&
           elem_is_present(doc_get(elem_doc(doc_get_lit(elem_doc(change.o2), "collections")),
                                   ns_coll(&filter->ns)));
}

bool filter_may_concern_write(const StreamFilter *filter, Doc row) {
    StreamChange change;
    change_read(row, filter->shows_expanded, &change);
    return filter_takes(filter, &change) && filter_may_match(filter, &change, DOC_NONE);
}

bool filter_may_concern(const StreamFilter *filter, Doc entry) {
    switch (entry_form(entry)) {
    case ENTRY_FORM_NOTHING:
        return false;
    case ENTRY_FORM_ONE:
        return filter_may_concern_write(filter, entry);
    case ENTRY_FORM_COMMIT:
        return true;
    case ENTRY_FORM_DROPS:
        return may_concern_drops(filter, entry);
    case ENTRY_FORM_UNIT:
        break;
    }
    if (entry_part(entry) == ENTRY_LAST)
        return true;
    DocIter iter = doc_iter(elem_doc(doc_get_path(entry, "o.applyOps")));
    Elem row;
    while (doc_iter_next(&iter, &row))
        if (elem_type(row) == BT_DOC && filter_may_concern_write(filter, elem_doc(row)))
            return true;
    return false;
}

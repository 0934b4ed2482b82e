#include "catalog/collection.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/collator.h"
#include "query/expr/expr.h"
#include "storage/engine.h"

static void split_path(const char *dotted, Arena *arena, IndexField *ret_field);
static CollectionShared *shared_ref(CollectionShared *shared);
static void shared_unref(CollectionShared *shared);
enum { LOCATION_MISSING_FIELD = 40414, LOCATION_UNKNOWN_FIELD = 40415 };

static ErrCode parse_clustered(Elem elem, Arena *arena, CollectionOptions *options, Error *err);
static ErrCode parse_validation_enum(Elem elem, const char *const *names, size_t name_count,
                                     int *ret_value, Error *err);
static ErrCode check_validator_place(const Ns *ns, Error *err);

Collection *collection_ref(Collection *coll) {
    atomic_fetch_add_explicit(&coll->refs, 1, memory_order_relaxed);
    return coll;
}

void collection_unref(Collection *coll) {
    if (coll == NULL || atomic_fetch_sub_explicit(&coll->refs, 1, memory_order_acq_rel) > 1)
        return;
    CollectionExtra *plan_cache = atomic_load(&coll->plan_cache);
    if (plan_cache != NULL)
        plan_cache->free(plan_cache);
    for (uint32_t i = 0; i < coll->index_count; i++)
        index_desc_unref(coll->indexes[i]);
    xfree(coll->indexes);
    record_store_unref(coll->records);
    shared_unref(coll->shared);
    arena_done(&coll->arena);
    xfree(coll);
}

void collection_unref_ptr(Collection **coll) {
    collection_unref(*coll);
}

Collection *collection_clone(const Collection *coll) {
    Collection *copy = NEW(Collection);
    copy->refs = 1;
    arena_init(&copy->arena, 1024);
    copy->ns = coll->ns;
    copy->uuid = coll->uuid;
    copy->catalog_id = coll->catalog_id;
    copy->records = record_store_ref(coll->records);
    copy->indexes = xcalloc(coll->index_count + 1, sizeof(*copy->indexes));
    copy->index_count = coll->index_count;
    for (uint32_t i = 0; i < coll->index_count; i++)
        copy->indexes[i] = index_desc_ref(coll->indexes[i]);
    copy->shared = shared_ref(coll->shared);
    Error err = {0};
    /* They were accepted before, so they parse. */
    invariant(collection_set_options(copy, coll->options.doc, &err) == ERR_OK);
    return copy;
}

ErrCode collection_set_options(Collection *coll, Doc options, Error *err) {
    Doc copy = doc_copy(options, &coll->arena);
    TRY(collection_options_parse(copy, &coll->arena, &coll->options, err));
    coll->validator = NULL;
    if (doc_is_present(coll->options.validator)) {
        TRY(check_validator_place(&coll->ns, err));
        MatchExpr *validator;
        TRY(collection_parse_validator(coll, &coll->arena, &validator, err));
        coll->validator = match_optimize(validator, &coll->arena);
    }
    if (coll->shared == NULL) {
        coll->shared = NEW(CollectionShared);
        coll->shared->refs = 1;
        mutex_init(&coll->shared->mu, LOCK_RANK_CAPPED_WAITERS);
        list_init(&coll->shared->capped_waiters);
    }
    return ERR_OK;
}

static ErrCode check_validator_place(const Ns *ns, Error *err) {
    if (str_is(ns_str(ns), "config.settings")) /* the config server's own (sharding/config) */
        return ERR_OK;
    Str db = ns_db(ns);
    if (db_is_internal(db))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Document validators are not allowed on collection %s in the %.*s "
                         "internal database",
                         ns->text, (int)db.size, db.data);
    Str coll = ns_coll(ns);
    if (coll.size > 7 && memcmp(coll.data, "system.", 7) == 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Document validators are not allowed on system collection %s", ns->text);
    return ERR_OK;
}

ErrCode collection_parse_validator(const Collection *coll, Arena *arena, MatchExpr **ret_filter,
                                   Error *err) {
    ExprMatchHook *hook = ARENA_NEW(arena, ExprMatchHook); /* lives as long as the tree */
    hook->parse.collator = coll->options.collator;
    MatchParseContext ctx = {.collator = coll->options.collator,
                             .expr_hook = expr_match_hook(hook),
                             .is_validator = true};
    return match_parse(coll->options.validator, &ctx, arena, ret_filter, err);
}

void collection_add_index(Collection *coll, IndexDesc *take_index) {
    coll->indexes = xrealloc(coll->indexes, (coll->index_count + 1) * sizeof(*coll->indexes));
    coll->indexes[coll->index_count++] = take_index;
}

void collection_remove_index(Collection *coll, uint32_t position) {
    invariant(position < coll->index_count);
    index_desc_unref(coll->indexes[position]);
    memmove(&coll->indexes[position], &coll->indexes[position + 1],
            (coll->index_count - position - 1) * sizeof(*coll->indexes));
    coll->index_count--;
}

const IndexDesc *collection_find_index(const Collection *coll, Str name) {
    int position = collection_index_position(coll, name);
    return position < 0 ? NULL : coll->indexes[position];
}

int collection_index_position(const Collection *coll, Str name) {
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (str_is(name, coll->indexes[i]->name))
            return (int)i;
    return -1;
}

const IndexDesc *collection_id_index(const Collection *coll) {
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->is_id)
            return coll->indexes[i];
    return NULL;
}

ErrCode collection_options_parse(Doc doc, Arena *arena, CollectionOptions *ret_options,
                                 Error *err) {
    static const char *const LEVELS[] = {"strict", "moderate", "off"};
    static const char *const ACTIONS[] = {"error", "warn"};
    CollectionOptions options = {.doc = doc, .expire_after_s = -1};
    DocIter iter = doc_iter(doc);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        const char *name = elem_name(elem);
        int value = 0;
        if (strcmp(name, "capped") == 0) {
            if (elem_type(elem) != BT_BOOL && !elem_is_number(elem))
                return error_set(
                    err, ERR_TYPE_MISMATCH,
                    "BSON field 'create.capped' is the wrong type '%s', expected types "
                    "'[bool, long, int, decimal, double]'",
                    bson_type_name(elem_type(elem)));
            options.is_capped = elem_is_truthy(elem);
        } else if (strcmp(name, "size") == 0) {
            options.capped_size = elem_as_i64(elem);
        } else if (strcmp(name, "max") == 0) {
            options.capped_max = elem_as_i64(elem);
        } else if (strcmp(name, "temp") == 0) {
            options.is_temp = elem_is_truthy(elem);
        } else if (strcmp(name, "autoIndexId") == 0) {
            options.is_without_id_index = !elem_is_truthy(elem);
        } else if (strcmp(name, "idIndex") == 0) {
            Elem version =
                elem_type(elem) == BT_DOC ? doc_get_lit(elem_doc(elem), "v") : ELEM_MISSING;
            options.has_v1_id_index = elem_is_number(version) && elem_as_i64(version) == 1;
        } else if (strcmp(name, "clusteredIndex") == 0) {
            TRY(parse_clustered(elem, arena, &options, err));
        } else if (strcmp(name, "validator") == 0) {
            if (elem_type(elem) != BT_DOC)
                return error_set(err, ERR_TYPE_MISMATCH, "\"validator\" has to be a document.");
            if (!doc_is_empty(elem_doc(elem)))
                options.validator = elem_doc(elem);
        } else if (strcmp(name, "validationLevel") == 0) {
            TRY(parse_validation_enum(elem, LEVELS, ARRAY_LEN(LEVELS), &value, err));
            options.validation_level = (ValidationLevel)value;
        } else if (strcmp(name, "validationAction") == 0) {
            TRY(parse_validation_enum(elem, ACTIONS, ARRAY_LEN(ACTIONS), &value, err));
            options.validation_action = (ValidationAction)value;
        } else if (strcmp(name, "collation") == 0) {
            TRY(collator_parse_elem(elem, "create.collation", &options.collator, err));
        } else if (strcmp(name, "expireAfterSeconds") == 0) {
            TRY(expire_after_parse(elem, ERR_INVALID_OPTIONS, &options.expire_after_s, err));
        } else if (strcmp(name, "changeStreamPreAndPostImages") == 0) {
            TRY(pre_images_parse(elem, &options.has_pre_images, err));
        } else {
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "collection option \"%s\" is not supported yet", name);
        }
    }
    if (options.is_capped && options.capped_size <= 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the 'size' field is required when 'capped' is true");
    if (!options.is_capped && (options.capped_size > 0 || options.capped_max > 0))
        return error_set(
            err, ERR_INVALID_OPTIONS,
            "the 'capped' field needs to be true when either the 'size' or 'max' fields "
            "are present");
    if (options.has_v1_id_index && options.collator != NULL)
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "an index with v=1 cannot have a collation, which the collection has");
    if (options.is_capped && options.is_clustered)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot create a clustered collection that is also capped");
    if (options.expire_after_s >= 0 && !options.is_clustered)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'expireAfterSeconds' is only supported on time-series collections or "
                         "when the 'clusteredIndex' option is specified");
    *ret_options = options;
    return ERR_OK;
}

ErrCode pre_images_parse(Elem elem, bool *ret_is_enabled, Error *err) {
    static const char NAME[] = "changeStreamPreAndPostImages";
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s' is the wrong type '%s', expected type 'object'", NAME,
                         bson_type_name(elem_type(elem)));
    Elem enabled = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem member; doc_iter_next(&iter, &member);) {
        if (!elem_name_is(member, STR("enabled")))
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field '%s.%s' is an unknown field.", NAME, elem_name(member));
        enabled = member;
    }
    if (!elem_is_present(enabled))
        return error_set(err, (ErrCode)LOCATION_MISSING_FIELD,
                         "BSON field '%s.enabled' is missing but a required field", NAME);
    if (elem_type(enabled) != BT_BOOL)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.enabled' is the wrong type '%s', expected type 'bool'",
                         NAME, bson_type_name(elem_type(enabled)));
    *ret_is_enabled = elem_bool(enabled);
    return ERR_OK;
}

Doc collection_options_normalize(const CollectionOptions *options, Arena *arena) {
    Doc doc = options->doc;
    Elem clustered = doc_get_lit(doc, "clusteredIndex");
    Elem collation = doc_get_lit(doc, "collation");
    Elem id_index = doc_get_lit(doc, "idIndex");
    if (elem_type(clustered) != BT_DOC && !elem_is_present(collation) && !elem_is_present(id_index))
        return doc;
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(doc) + 512);
    DocIter iter = doc_iter(doc);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (elem.data == id_index.data)
            continue;
        if (elem.data == collation.data) {
            if (options->collator != NULL)
                build_doc(&b, "collation", options->collator->spec);
            continue;
        }
        if (elem.data != clustered.data || elem_type(clustered) != BT_DOC) {
            build_elem(&b, elem);
            continue;
        }
        size_t opened = build_open_doc(&b, "clusteredIndex");
        build_i32(&b, "v", 2);
        build_elem(&b, doc_get_lit(elem_doc(clustered), "key"));
        Elem name = doc_get_lit(elem_doc(clustered), "name");
        build_cstr(&b, "name", elem_type(name) == BT_STRING ? elem_str(name).data : "_id_");
        build_bool(&b, "unique", true);
        build_close(&b, opened);
    }
    return doc_builder_end(&b);
}

/* ---- indexes ---- */

ErrCode index_desc_new(struct StorageEngine *engine, Doc spec, const char *ident, bool is_clustered,
                       bool is_ready, IndexState *state, IndexDesc **ret_index, Error *err) {
    IndexDesc *index = NEW(IndexDesc);
    index->refs = 1;
    arena_init(&index->arena, 1024);
    index->spec = doc_copy(spec, &index->arena);
    index->key_pattern = elem_doc(doc_get_lit(index->spec, "key"));
    index->name = elem_str(doc_get_lit(index->spec, "name")).data;
    index->ident = arena_strdup(&index->arena, ident);
    index->is_ready = is_ready;
    index->is_unique = elem_is_truthy(doc_get_lit(index->spec, "unique"));
    index->is_sparse = elem_is_truthy(doc_get_lit(index->spec, "sparse"));
    index->is_hidden = elem_is_truthy(doc_get_lit(index->spec, "hidden"));

    uint32_t field_count = doc_count(index->key_pattern);
    invariant(field_count <= INDEX_FIELDS_MAX);
    index->fields = ARENA_ARRAY(&index->arena, IndexField, field_count);
    DocIter iter = doc_iter(index->key_pattern);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        IndexField *field = &index->fields[index->field_count];
        split_path(elem_name(elem), &index->arena, field);
        field->is_descending = elem_is_number(elem) && elem_as_f64(elem) < 0;
        if (wildcard_is_field(elem_name_str(elem))) {
            index->kind = INDEX_KIND_WILDCARD;
            index->special_field = index->field_count;
        } else if (elem_type(elem) == BT_STRING && str_is(elem_str(elem), "hashed")) {
            index->kind = INDEX_KIND_HASHED;
            index->special_field = index->field_count;
        }
        /* The path of a wildcard stands before its value. */
        uint32_t place = index->field_count + (index->kind == INDEX_KIND_WILDCARD);
        if (field->is_descending)
            index->order |= UINT32_C(1) << place;
        index->field_count++;
    }
    index->is_id = index->field_count == 1 && strcmp(index->fields[0].path, "_id") == 0 &&
                   strcmp(index->name, "_id_") == 0;
    if (index->is_id)
        index->is_unique = true;

    if (state != NULL) {
        atomic_fetch_add_explicit(&state->refs, 1, memory_order_relaxed);
        index->state = state;
    } else {
        index->state = NEW(IndexState);
        index->state->refs = 1;
        index->state->since_wall_ms = clock_wall_ms();
    }

    ErrCode rc = ERR_OK;
    if (index->kind == INDEX_KIND_WILDCARD) {
        Elem projection = doc_get_lit(index->spec, "wildcardProjection");
        WildcardPaths *wildcard = NULL;
        rc = wildcard_paths_parse(str_from(index->fields[index->special_field].path),
                                  elem_type(projection) == BT_DOC ? elem_doc(projection) : DOC_NONE,
                                  &index->arena, &wildcard, err);
        index->wildcard = wildcard;
    }
    index->is_prepare_unique = elem_is_truthy(doc_get_lit(index->spec, "prepareUnique"));
    index->expire_after_s = -1;
    Elem expire = doc_get_lit(index->spec, "expireAfterSeconds");
    if (rc == ERR_OK && elem_is_present(expire))
        rc = expire_after_parse(expire, ERR_CANNOT_CREATE_INDEX, &index->expire_after_s, err);
    Elem collation = doc_get_lit(index->spec, "collation");
    if (rc == ERR_OK && elem_is_present(collation))
        rc = collator_parse_elem(collation, "collation", &index->collator, err);
    if (index->collator != NULL) {
        index->collation = index->collator->spec;
        char version[COLLATOR_VERSION_SIZE];
        collator_data_version(index->collator, version);
        index->sort_key_version = arena_strdup(&index->arena, version);
    }
    Elem partial = doc_get_lit(index->spec, "partialFilterExpression");
    if (rc == ERR_OK && elem_type(partial) == BT_DOC) {
        MatchExpr *filter;
        MatchParseContext ctx = {.collator = index->collator};
        index->partial_filter_doc = elem_doc(partial);
        rc = match_parse(index->partial_filter_doc, &ctx, &index->arena, &filter, err);
        if (rc == ERR_OK)
            index->partial_filter = match_optimize(filter, &index->arena);
    }
    bool has_table = false;
    if (rc == ERR_OK)
        rc = storage_find_table(engine, ident, &has_table, err);
    if (rc == ERR_OK && has_table) {
        IndexFormat format = index->is_id                                   ? INDEX_ID
                             : index->is_unique || index->is_prepare_unique ? INDEX_UNIQUE
                                                                            : INDEX_PLAIN;
        rc = ordered_index_open(engine, ident, format, is_clustered, &index->store, err);
    }
    if (rc != ERR_OK) {
        index_desc_unref(index);
        return rc;
    }
    *ret_index = index;
    return ERR_OK;
}

ErrCode index_desc_create(StorageEngine *engine, const Ns *ns, Doc spec, bool is_clustered,
                          bool is_ready, IndexDesc **ret_index, Error *err) {
    CLEANUP(xfree_ptr) char *ident = storage_new_ident(engine, "index");
    ErrCode rc = storage_create_table(engine, ident, TABLE_INDEX,
                                      storage_log_config(engine, ns_is_replicated(ns)), err);
    if (rc == ERR_OK)
        rc = index_desc_new(engine, spec, ident, is_clustered, is_ready, NULL, ret_index, err);
    if (rc != ERR_OK)
        storage_discard_table(engine, ident);
    return rc;
}

IndexDesc *index_desc_ref(IndexDesc *index) {
    IndexDesc *counted = index->whole != NULL ? index->whole : index;
    atomic_fetch_add_explicit(&counted->refs, 1, memory_order_relaxed);
    return index;
}

void index_desc_unref(IndexDesc *index) {
    if (index != NULL && index->whole != NULL)
        index = index->whole;
    if (index == NULL || atomic_fetch_sub_explicit(&index->refs, 1, memory_order_acq_rel) > 1)
        return;
    ordered_index_unref(index->store);
    record_store_unref(index->side_writes);
    if (atomic_fetch_sub_explicit(&index->state->refs, 1, memory_order_acq_rel) == 1)
        xfree(index->state);
    arena_done(&index->arena);
    xfree(index);
}

bool index_is_multikey(const IndexDesc *index) {
    return atomic_load_explicit(&index->state->is_multikey, memory_order_acquire);
}

uint32_t index_multikey_paths(const IndexDesc *index, uint32_t field) {
    return atomic_load_explicit(&index->state->multikey_paths[field], memory_order_acquire);
}

ErrCode expire_after_parse(Elem elem, ErrCode code, int64_t *ret_seconds, Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, code,
                         "TTL index 'expireAfterSeconds' option must be numeric, but received a "
                         "type of '%s'",
                         bson_type_name(elem_type(elem)));
    double seconds = elem_as_f64(elem);
    if (isnan(seconds)) {
        *ret_seconds = -1;
        return ERR_OK;
    }
    if (seconds < 0)
        return error_set(err, code, "TTL index 'expireAfterSeconds' option cannot be less than 0");
    if (seconds > EXPIRE_AFTER_S_MAX)
        return error_set(err, code,
                         "TTL index 'expireAfterSeconds' option must be within an acceptable "
                         "range, try a different number than %lld",
                         (long long)elem_as_i64(elem));
    *ret_seconds = (int64_t)seconds;
    return ERR_OK;
}

/* ---- capped waiters ---- */

typedef struct CappedWaiter {
    ListNode node;
    OpCtx *op;
    const CollectionShared *shared;
    uint64_t seen;
    const _Atomic bool *is_due;
} CappedWaiter;

uint64_t collection_capped_version(const Collection *coll) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&coll->shared->mu);
    return coll->shared->capped_version;
}

void collection_capped_notify(const Collection *coll, bool is_dropped) {
    CollectionShared *shared = coll->shared;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shared->mu);
    shared->capped_version++;
    shared->is_dropped |= is_dropped;
    LIST_FOR_EACH (&shared->capped_waiters, node)
        op_signal(CONTAINER_OF(node, CappedWaiter, node)->op);
}

static bool is_capped_wait_over(void *arg) {
    const CappedWaiter *waiter = arg;
    return waiter->shared->capped_version != waiter->seen || waiter->shared->is_dropped ||
           (waiter->is_due != NULL && atomic_load(waiter->is_due));
}

ErrCode collection_capped_wait(const Collection *coll, OpCtx *op, uint64_t seen,
                               const _Atomic bool *is_due, int64_t deadline_us, Error *err) {
    CollectionShared *shared = coll->shared;
    CappedWaiter waiter = {.op = op, .shared = shared, .seen = seen, .is_due = is_due};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shared->mu);
    list_push_back(&shared->capped_waiters, &waiter.node);
    bool is_met;
    ErrCode rc =
        op_wait_until(op, &shared->mu, is_capped_wait_over, &waiter, deadline_us, &is_met, err);
    list_remove(&waiter.node);
    return rc;
}

/* ---- helpers ---- */

static void split_path(const char *dotted, Arena *arena, IndexField *ret_field) {
    ret_field->path = arena_strdup(arena, dotted);
    uint32_t count = 1;
    for (const char *at = dotted; *at != '\0'; at++)
        count += *at == '.';
    ret_field->parts = ARENA_ARRAY(arena, Str, count);
    const char *start = ret_field->path;
    for (uint32_t i = 0; i < count; i++) {
        size_t size = strcspn(start, ".");
        ret_field->parts[i] = (Str){start, size};
        start += size + 1;
    }
    ret_field->part_count = count;
}

static CollectionShared *shared_ref(CollectionShared *shared) {
    atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
    return shared;
}

static void shared_unref(CollectionShared *shared) {
    if (shared == NULL || atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) > 1)
        return;
    CollectionExtra *index_filters = atomic_load(&shared->index_filters);
    if (index_filters != NULL)
        index_filters->free(index_filters);
    mutex_done(&shared->mu);
    xfree(shared);
}

static ErrCode parse_clustered(Elem elem, Arena *arena, CollectionOptions *options, Error *err) {
    options->clustered_name = "_id_";
    if (elem_type(elem) == BT_BOOL) {
        options->is_clustered = elem_bool(elem);
        return ERR_OK;
    }
    if (elem_type(elem) != BT_DOC)
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field 'create.clusteredIndex' is the wrong type '%s', expected types "
            "'[bool, object]'",
            bson_type_name(elem_type(elem)));
    DocIter iter = doc_iter(elem_doc(elem));
    Elem member;
    bool has_key = false;
    Elem unique = ELEM_MISSING;
    while (doc_iter_next(&iter, &member)) {
        if (elem_name_is(member, STR("key"))) {
            Elem id =
                elem_type(member) == BT_DOC ? doc_get_lit(elem_doc(member), "_id") : ELEM_MISSING;
            has_key =
                elem_is_number(id) && elem_as_i64(id) == 1 && doc_count(elem_doc(member)) == 1;
        } else if (elem_name_is(member, STR("unique"))) {
            unique = member;
        } else if (elem_name_is(member, STR("name")) && elem_type(member) == BT_STRING) {
            options->clustered_name = arena_strdup(arena, elem_str(member).data);
        } else if (elem_name_is(member, STR("v"))) {
            if (!elem_is_number(member) || elem_as_i64(member) != 2)
                return error_set(err, (ErrCode)5979704, "a clustered index must have v=2");
        } else {
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field 'clusteredIndex.%s' is an unknown field.",
                             elem_name(member));
        }
    }
    if (!elem_is_present(unique))
        return error_set(err, (ErrCode)LOCATION_MISSING_FIELD,
                         "BSON field 'clusteredIndex.unique' is missing but a required field");
    if (!elem_is_truthy(unique))
        return error_set(err, (ErrCode)5979700,
                         "The clusteredIndex option requires unique: true to be specified");
    if (!has_key)
        return error_set(err, ERR_INVALID_INDEX_SPECIFICATION_OPTION,
                         "The clusteredIndex option requires key: {_id: 1}");
    options->is_clustered = true;
    return ERR_OK;
}

static ErrCode parse_validation_enum(Elem elem, const char *const *names, size_t name_count,
                                     int *ret_value, Error *err) {
    if (elem_type(elem) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "'%s' has to be a string.", elem_name(elem));
    for (size_t i = 0; i < name_count; i++) {
        if (str_is(elem_str(elem), names[i])) {
            *ret_value = (int)i;
            return ERR_OK;
        }
    }
    return error_set(err, ERR_BAD_VALUE,
                     "Enumeration value '%s' for field '%s' is not a valid value.",
                     elem_str(elem).data, elem_name(elem));
}

ErrCode capped_number_check(const char *command, Elem elem, int64_t least, Error *err) {
    enum { LOCATION_OUT_OF_RANGE = 51024, PETABYTE_LOG2 = 50 };
    if (!elem_is_present(elem))
        return ERR_OK;
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.%s' is the wrong type '%s', expected types '[long, int, "
                         "decimal, double]'",
                         command, elem_name(elem), bson_type_name(elem_type(elem)));
    int64_t value = elem_as_i64(elem);
    if (value < least)
        return error_set(err, (ErrCode)LOCATION_OUT_OF_RANGE,
                         "BSON field '%s' value must be >= %lld, actual value '%lld'",
                         elem_name(elem), (long long)least, (long long)value);
    if (value > INT64_C(1) << PETABYTE_LOG2)
        return error_set(err, (ErrCode)LOCATION_OUT_OF_RANGE,
                         "BSON field '%s' value must be <= %lld, actual value '%lld'",
                         elem_name(elem), (long long)(INT64_C(1) << PETABYTE_LOG2),
                         (long long)value);
    return ERR_OK;
}

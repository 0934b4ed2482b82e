#include "index/spec.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "bson/builder.h"
#include "bson/collator.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "bson/number.h"
#include "index/spec_same.h"

typedef enum OptionRule {
    OPTION_KEEP_BOOL, /* bool or number, kept as given */
    OPTION_KEEP_DOC,
    OPTION_DROP,         /* accepted, not stored */
    OPTION_KEEP_SECONDS, /* kept as an int */
    OPTION_KEEP_ENGINE,  /* {wiredTiger: {}}: without settings for the table */
    OPTION_SPECIAL,      /* handled by name */
    OPTION_REFUSED,      /* known, not supported yet */
} OptionRule;

static const struct {
    const char *name;
    OptionRule rule;
} OPTIONS[] = {
    {"v", OPTION_SPECIAL},
    {"key", OPTION_SPECIAL},
    {"name", OPTION_SPECIAL},
    {"ns", OPTION_DROP},
    {"background", OPTION_DROP},
    {"unique", OPTION_KEEP_BOOL},
    {"sparse", OPTION_KEEP_BOOL},
    {"hidden", OPTION_KEEP_BOOL},
    {"partialFilterExpression", OPTION_KEEP_DOC},
    {"storageEngine", OPTION_KEEP_ENGINE},
    {"collation", OPTION_KEEP_DOC},
    {"expireAfterSeconds", OPTION_KEEP_SECONDS},
    {"prepareUnique", OPTION_KEEP_BOOL},
    {"clustered", OPTION_SPECIAL},
    {"weights", OPTION_REFUSED},
    {"default_language", OPTION_REFUSED},
    {"language_override", OPTION_REFUSED},
    {"textIndexVersion", OPTION_REFUSED},
    {"2dsphereIndexVersion", OPTION_REFUSED},
    {"bits", OPTION_REFUSED},
    {"min", OPTION_REFUSED},
    {"max", OPTION_REFUSED},
    {"bucketSize", OPTION_REFUSED},
    {"wildcardProjection", OPTION_KEEP_DOC},
    {"columnstoreProjection", OPTION_REFUSED},
    {"dropDups", OPTION_DROP},
};

typedef struct KindCount {
    uint32_t hashed;
    uint32_t wildcard;
    Str wildcard_field;
} KindCount;

static ErrCode check_key(Doc key, Error *err);
static ErrCode check_wildcard(Doc spec, const KindCount *count, Arena *arena, Error *err);
static ErrCode refuse_kind(Str kind, Error *err);
static ErrCode check_partial_filter(const MatchExpr *filter, uint32_t depth, Error *err);
static ErrCode check_special(Elem elem, Error *err);
static ErrCode check_option(Elem elem, bool *ret_is_kept, Error *err);
static KindCount count_kinds(Doc key);
static ErrCode check_kind(Doc spec, Arena *arena, Error *err);
static bool same_collation(Doc a, Doc b);
static bool same_options(Doc a, Doc b);

/* `unique` belongs to the key of a clustered collection, which is told like an index. */
static bool is_of_id_index(Elem option, Doc spec) {
    static const char *const NAMES[] = {"key", "name", "ns", "v", "collation", "clustered"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(elem_name(option), NAMES[i]) == 0)
            return true;
    return elem_name_is(option, STR("unique")) && elem_is_truthy(doc_get_lit(spec, "clustered"));
}

ErrCode index_spec_check(Doc spec, Arena *arena, Doc *ret_spec, Error *err) {
    Elem key = doc_get_lit(spec, "key");
    if (elem_type(key) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'key' field is a required property of an index specification");
    TRY(check_key(elem_doc(key), err));
    Elem name = doc_get_lit(spec, "name");
    if (!elem_is_present(name))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'name' field is a required property of an index specification");
    if (elem_type(name) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "The field 'name' must be a string, but got %s",
                         bson_type_name(elem_type(name)));
    if (str_has_char(elem_str(name), '\0'))
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "The name of an index cannot contain an embedded null byte");
    Elem id_only = doc_get_lit(elem_doc(key), "_id");
    int64_t direction = elem_is_number(id_only) ? elem_as_i64(id_only) : 0;
    bool is_id = doc_count(elem_doc(key)) == 1 && (direction == 1 || direction == -1);
    if (is_id && !(elem_is_number(id_only) && elem_as_f64(id_only) == 1))
        return error_set(err, ERR_BAD_VALUE,
                         "The field 'key' for an _id index must be {_id: 1}, but got %s",
                         shell_text_of_doc(elem_doc(key), arena));
    if (elem_str(name).size == 0 || str_is(elem_str(name), "*"))
        return error_set(err, elem_str(name).size == 0 ? ERR_CANNOT_CREATE_INDEX : ERR_BAD_VALUE,
                         "The index name '%s' is not valid", elem_str(name).data);
    if (str_is(elem_str(name), "_id_") && !is_id)
        return error_set(err, ERR_BAD_VALUE,
                         "The index name '_id_' is reserved for the _id index, which must have key "
                         "pattern {_id: 1}, found key: %s",
                         shell_text_of_doc(elem_doc(key), arena));

    if (elem_is_truthy(doc_get_lit(spec, "clustered")) && !is_id)
        return error_set(err, (ErrCode)INDEX_LOCATION_NOT_CLUSTERED,
                         "the index option 'clustered' is for the key of a clustered collection");

    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, 256, BSON_DOC_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, buf);
    Elem version = doc_get_lit(spec, "v");
    bool is_v1 = elem_is_number(version) && elem_as_i64(version) == 1;
    build_i32(&b, "v", is_v1 ? 1 : 2);
    build_doc(&b, "key", elem_doc(key));
    build_cstr(&b, "name", is_id ? "_id_" : elem_str(name).data);
    DocIter iter = doc_iter(spec);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        bool is_kept = false;
        TRY(check_option(elem, &is_kept, err));
        bool is_collation = elem_name_is(elem, STR("collation"));
        if (is_id && !is_of_id_index(elem, spec))
            return error_set(err, ERR_INVALID_INDEX_SPECIFICATION_OPTION,
                             "The field '%s' is not valid for an _id index specification. "
                             "Specification: %s",
                             elem_name(elem), shell_text_of_doc(spec, arena));
        if (is_collation) {
            if (doc_is_empty(elem_doc(elem)))
                return error_set(err, ERR_BAD_VALUE,
                                 "The field 'collation' cannot be an empty object.");
            const Collator *collator; /* checked here, completed by index_spec_complete */
            TRY(collator_parse(elem_doc(elem), &collator, err));
        }
        if (is_kept && elem_name_is(elem, STR("expireAfterSeconds"))) {
            /* What never expires is stored as what expires too late to matter. */
            int64_t seconds;
            TRY(expire_after_parse(elem, ERR_CANNOT_CREATE_INDEX, &seconds, err));
            build_i32(&b, "expireAfterSeconds",
                      seconds < 0 ? EXPIRE_AFTER_S_MAX : (int32_t)seconds);
        } else if (is_kept && (!is_id || is_collation)) {
            build_elem(&b, elem);
        }
    }
    TRY(doc_builder_finish(&b, "the index specification", ret_spec, err));
    TRY(check_kind(*ret_spec, arena, err));
    if (is_v1 && count_kinds(elem_doc(key)).wildcard > 0)
        return error_set(err, ERR_CANNOT_CREATE_INDEX, "a wildcard index must have v=2");
    if (elem_is_truthy(doc_get_lit(*ret_spec, "sparse")) &&
        elem_is_present(doc_get_lit(*ret_spec, "partialFilterExpression")))
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "cannot mix \"partialFilterExpression\" and \"sparse\" options");
    Elem partial = doc_get_lit(*ret_spec, "partialFilterExpression");
    if (elem_is_present(partial)) {
        MatchExpr *filter;
        MatchParseContext ctx = {0};
        TRY(match_parse(elem_doc(partial), &ctx, arena, &filter, err));
        TRY(check_partial_filter(filter, 0, err));
    }
    return ERR_OK;
}

Doc index_spec_known(Doc spec, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        bool is_known = false;
        for (size_t i = 0; i < ARRAY_LEN(OPTIONS); i++)
            is_known |= strcmp(OPTIONS[i].name, elem_name(elem)) == 0;
        if (is_known)
            build_elem(&b, elem);
    }
    return doc_builder_end(&b);
}

ErrCode index_spec_complete(Doc spec, const Collator *coll_collator, bool is_stored, Arena *arena,
                            Doc *ret_spec, Error *err) {
    Elem given = doc_get_lit(spec, "collation");
    bool is_id = str_is(elem_str(doc_get_lit(spec, "name")), "_id_");
    bool is_v1 = elem_as_i64(doc_get_lit(spec, "v")) == 1; /* such an index inherits none */
    const Collator *collator = is_v1 || (is_stored && !is_id) ? NULL : coll_collator;
    if (elem_is_present(given))
        TRY(collator_parse(elem_doc(given), &collator, err));
    if (collator != NULL && is_v1)
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "an index with v=1 cannot have a collation: %s",
                         shell_text_of_doc(spec, arena));
    if (is_id && collator != coll_collator)
        return error_set(
            err, ERR_BAD_VALUE,
            "The _id index must have the same collation as the collection. Index collation: %s, "
            "collection collation: %s",
            collator != NULL ? shell_text_of_doc(collator->spec, arena) : "{}",
            coll_collator != NULL ? shell_text_of_doc(coll_collator->spec, arena) : "{}");
    Elem key;
    for (DocIter iter = doc_iter(elem_doc(doc_get_lit(spec, "key"))); doc_iter_next(&iter, &key);)
        if (collator != NULL && elem_type(key) == BT_STRING &&
            (str_is(elem_str(key), "text") || str_is(elem_str(key), "2d")))
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "Index type '%s' does not support collation: %s", elem_str(key).data,
                             shell_text_of_doc(collator->spec, arena));
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, doc_size(spec) + 256, BSON_DOC_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, buf);
    Elem elem;
    for (DocIter iter = doc_iter(spec); doc_iter_next(&iter, &elem);)
        if (elem.data != given.data)
            build_elem(&b, elem);
    if (collator != NULL)
        build_doc(&b, "collation", collator->spec);
    return doc_builder_finish(&b, "the index specification", ret_spec, err);
}

char *index_default_name(Doc key, Arena *arena) {
    Buffer buf;
    buffer_init_arena(&buf, arena, 64, BUFFER_UNBOUNDED);
    DocIter iter = doc_iter(key);
    Elem elem;
    bool is_first = true;
    while (doc_iter_next(&iter, &elem)) {
        buffer_printf(&buf, "%s%s_", is_first ? "" : "_", elem_name(elem));
        if (elem_type(elem) == BT_STRING)
            buffer_printf(&buf, "%s", elem_str(elem).data);
        else
            buffer_printf(&buf, "%lld", (long long)elem_as_i64(elem));
        is_first = false;
    }
    buffer_append_byte(&buf, '\0');
    return (char *)buf.data;
}

static ErrCode conflict(ErrCode code, const char *what, Doc requested, Doc existing, Error *err) {
    Arena arena;
    arena_init(&arena, 1024);
    ErrCode rc =
        error_set(err, code, "%s. Requested index: %s, existing index: %s", what,
                  shell_text_of_doc(requested, &arena), shell_text_of_doc(existing, &arena));
    arena_done(&arena);
    return rc;
}

ErrCode index_spec_find_conflict(const Collection *coll, Doc spec, bool *ret_exists, Error *err) {
    *ret_exists = false;
    if (coll->options.is_capped && elem_is_present(doc_get_lit(spec, "expireAfterSeconds")))
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "Cannot create TTL index on a capped collection");
    Str name = elem_str(doc_get_lit(spec, "name"));
    Doc key = elem_doc(doc_get_lit(spec, "key"));
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        bool is_same_name = str_is(name, index->name);
        bool is_same_index =
            doc_compare(index->key_pattern, key, NULL) == 0 && same_options(index->spec, spec);
        bool is_same_expiry = elem_compare(doc_get_lit(index->spec, "expireAfterSeconds"),
                                           doc_get_lit(spec, "expireAfterSeconds"), NULL) == 0;
        if (is_same_name && is_same_index && is_same_expiry) {
            *ret_exists = true;
            return ERR_OK;
        }
        if (is_same_name && is_same_index)
            return conflict(ERR_INDEX_OPTIONS_CONFLICT,
                            "An equivalent index already exists with the same name but different "
                            "options",
                            spec, index->spec, err);
        if (is_same_name)
            return conflict(ERR_INDEX_KEY_SPECS_CONFLICT,
                            "An existing index has the same name as the requested index. When "
                            "index names are not specified, they are auto generated and can cause "
                            "conflicts",
                            spec, index->spec, err);
        if (is_same_index)
            return error_set(err, ERR_INDEX_OPTIONS_CONFLICT,
                             "Index already exists with a different name: %s", index->name);
    }
    return ERR_OK;
}

Doc index_id_spec(const Collator *coll_collator, bool is_v1, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i32(&b, "v", is_v1 ? 1 : 2);
    size_t key = build_open_doc(&b, "key");
    build_i32(&b, "_id", 1);
    build_close(&b, key);
    build_cstr(&b, "name", "_id_");
    if (coll_collator != NULL)
        build_doc(&b, "collation", coll_collator->spec);
    return doc_builder_end(&b);
}

static ErrCode refuse_kind(Str kind, Error *err) {
    static const char *const KNOWN[] = {"text", "2d", "2dsphere", "columnstore"};
    for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++)
        if (str_is(kind, KNOWN[i]))
            return error_set(err, ERR_NOT_IMPLEMENTED, "%s indexes are not supported yet",
                             KNOWN[i]);
    return error_set(err, ERR_CANNOT_CREATE_INDEX, "Unknown index plugin '%.*s'", (int)kind.size,
                     kind.data);
}

/* What a partial index may be restricted by: conditions that a query can be seen to imply. */
static ErrCode check_partial_filter(const MatchExpr *filter, uint32_t depth, Error *err) {
    switch (filter->kind) {
    case MATCH_AND:
    case MATCH_OR:
        if (depth > 4)
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "partialFilterExpression is nested too deep");
        for (uint32_t i = 0; i < filter->child_count; i++)
            TRY(check_partial_filter(filter->children[i], depth + 1, err));
        return ERR_OK;
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
    case MATCH_IN:
    case MATCH_EXISTS:
    case MATCH_TYPE:
        return ERR_OK;
    default:
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "Expression not supported in partial index: only equality, $exists: true, "
                         "$gt, $gte, $lt, $lte, $type, $in, $and and $or may be used");
    }
}

static KindCount count_kinds(Doc key) {
    KindCount count = {0};
    DocIter iter = doc_iter(key);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        count.hashed += elem_type(elem) == BT_STRING && str_is(elem_str(elem), "hashed");
        if (wildcard_is_field(elem_name_str(elem))) {
            count.wildcard++;
            count.wildcard_field = elem_name_str(elem);
        }
    }
    return count;
}

/* What hashed, wildcard and TTL indexes cannot be. */
static ErrCode check_kind(Doc spec, Arena *arena, Error *err) {
    Doc key = elem_doc(doc_get_lit(spec, "key"));
    KindCount count = count_kinds(key);
    bool is_unique = elem_is_truthy(doc_get_lit(spec, "unique"));
    bool is_ttl = elem_is_present(doc_get_lit(spec, "expireAfterSeconds"));
    if (count.hashed > 1)
        return error_set(err, (ErrCode)31303,
                         "A maximum of one index field is allowed to be hashed but found %u for "
                         "'key' %s",
                         count.hashed, shell_text_of_doc(key, arena));
    is_unique |= elem_is_truthy(doc_get_lit(spec, "prepareUnique"));
    if (count.hashed > 0 && is_unique)
        return error_set(err, (ErrCode)16764,
                         "Currently hashed indexes cannot guarantee uniqueness. Use a regular "
                         "index.");
    if (is_ttl && doc_count(key) > 1)
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "TTL indexes are single-field indexes, compound indexes do not support "
                         "TTL. Index spec: %s",
                         shell_text_of_doc(spec, arena));
    if (is_ttl && count.hashed > 0)
        return error_set(err, ERR_CANNOT_CREATE_INDEX, "Index type 'hashed' cannot be a TTL index");
    return check_wildcard(spec, &count, arena, err);
}

static ErrCode check_wildcard(Doc spec, const KindCount *count, Arena *arena, Error *err) {
    Doc key = elem_doc(doc_get_lit(spec, "key"));
    Elem projection = doc_get_lit(spec, "wildcardProjection");
    if (count->wildcard == 0)
        return elem_is_present(projection)
                   ? error_set(err, ERR_BAD_VALUE,
                               "The field 'wildcardProjection' is only allowed in an 'wildcard' "
                               "index")
                   : ERR_OK;
    if (count->wildcard > 1 || count->hashed > 0)
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "wildcard indexes do not allow more than one wildcard field, nor hashed "
                         "fields: %s",
                         shell_text_of_doc(key, arena));
    static const char *const REFUSED[] = {"unique", "sparse", "prepareUnique"};
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
        if (elem_is_truthy(doc_get(spec, str_from(REFUSED[i]))))
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "Index type 'wildcard' does not support the %s option", REFUSED[i]);
    if (elem_is_present(doc_get_lit(spec, "expireAfterSeconds")))
        return error_set(err, ERR_CANNOT_CREATE_INDEX,
                         "Index type 'wildcard' cannot be a TTL index");
    if (doc_count(key) >= INDEX_FIELDS_MAX) /* path and value take two places in the keys */
        return error_set(err, (ErrCode)13103, "too many compound keys with a wildcard");
    if (elem_is_present(projection) && !str_is(count->wildcard_field, "$**"))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The field 'wildcardProjection' is only allowed when 'key' is "
                         "{\"$**\": ±1}");
    if (elem_is_present(projection) && doc_is_empty(elem_doc(projection)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The 'wildcardProjection' field can't be an empty object");
    WildcardPaths *paths;
    TRY(wildcard_paths_parse(count->wildcard_field,
                             elem_is_present(projection) ? elem_doc(projection) : DOC_NONE, arena,
                             &paths, err));
    DocIter iter = doc_iter(key);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!wildcard_is_field(elem_name_str(elem)) &&
            wildcard_reach(paths, elem_name_str(elem)) != WILDCARD_OUTSIDE)
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "the field '%s' of a compound wildcard index is also reached by its "
                             "wildcard; leave it out by a wildcardProjection",
                             elem_name(elem));
    return ERR_OK;
}

/* Where a component begins with $; those of references may, unless they are the first. */
static const char *find_illegal_dollar(const char *path) {
    static const char *const ALLOWED[] = {"$ref", "$id", "$db"};
    if (path[0] == '$')
        return path;
    for (const char *at = strstr(path, ".$"); at != NULL; at = strstr(at + 1, ".$")) {
        size_t size = strcspn(at + 1, ".");
        bool is_allowed = false;
        for (size_t i = 0; i < ARRAY_LEN(ALLOWED); i++)
            is_allowed |= size == strlen(ALLOWED[i]) && memcmp(at + 1, ALLOWED[i], size) == 0;
        if (!is_allowed)
            return at;
    }
    return NULL;
}

static ErrCode check_key(Doc key, Error *err) {
    if (doc_is_empty(key))
        return error_set(err, ERR_CANNOT_CREATE_INDEX, "Index keys cannot be an empty field.");
    if (doc_count(key) > INDEX_FIELDS_MAX)
        return error_set(err, (ErrCode)13103, "too many compound keys, the limit is %d",
                         INDEX_FIELDS_MAX);
    DocIter iter = doc_iter(key);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        const char *path = elem_name(elem);
        size_t size = elem.name_size;
        if (size == 0)
            return error_set(err, ERR_CANNOT_CREATE_INDEX, "Index keys cannot be an empty field.");
        if (path[0] == '.' || path[size - 1] == '.' || strstr(path, "..") != NULL)
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "Index keys cannot contain an empty field.");
        const char *dollar = find_illegal_dollar(path);
        bool is_wildcard = wildcard_is_field(elem_name_str(elem));
        if (dollar != NULL && !(is_wildcard && dollar == path + size - (size > 3 ? 4 : 3)))
            return error_set(
                err, ERR_CANNOT_CREATE_INDEX,
                "Index key contains an illegal field name: field name starts with '$'.");
        if (elem_type(elem) == BT_STRING && !is_wildcard && str_is(elem_str(elem), "hashed"))
            continue;
        if (elem_type(elem) == BT_STRING)
            return refuse_kind(elem_str(elem), err);
        if (!elem_is_number(elem))
            return error_set(
                err, ERR_CANNOT_CREATE_INDEX,
                "Values in v:2 index key pattern cannot be of type %s. Only numbers > 0, "
                "numbers < 0, and strings are allowed.",
                bson_type_name(elem_type(elem)));
        double direction = elem_as_f64(elem);
        if (direction == 0 || isnan(direction))
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "Values in the index key pattern cannot be 0.");
        DocIter rest = iter;
        Elem other;
        while (doc_iter_next(&rest, &other))
            if (elem_name_is(other, elem_name_str(elem)))
                return error_set(err, ERR_CANNOT_CREATE_INDEX,
                                 "Index key pattern has the field '%s' twice", path);
    }
    return ERR_OK;
}

static ErrCode check_engine(Elem elem, Error *err) {
    DocIter iter = doc_iter(elem_type(elem) == BT_DOC ? elem_doc(elem) : DOC_EMPTY);
    Elem engine, other;
    bool is_plain = doc_iter_next(&iter, &engine) && elem_name_is(engine, STR("wiredTiger")) &&
                    elem_type(engine) == BT_DOC && doc_is_empty(elem_doc(engine)) &&
                    !doc_iter_next(&iter, &other);
    if (is_plain || (elem_type(elem) == BT_DOC && doc_is_empty(elem_doc(elem))))
        return ERR_OK;
    return error_set(err, ERR_NOT_IMPLEMENTED,
                     "index option 'storageEngine' is supported only as {wiredTiger: {}}");
}

static ErrCode check_option(Elem elem, bool *ret_is_kept, Error *err) {
    for (size_t i = 0; i < ARRAY_LEN(OPTIONS); i++) {
        if (strcmp(OPTIONS[i].name, elem_name(elem)) != 0)
            continue;
        switch (OPTIONS[i].rule) {
        case OPTION_KEEP_BOOL:
            if (elem_type(elem) != BT_BOOL && !elem_is_number(elem))
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "The field '%s' has value %s, which is not convertible to bool",
                                 elem_name(elem), bson_type_name(elem_type(elem)));
            *ret_is_kept = true;
            return ERR_OK;
        case OPTION_KEEP_DOC:
            if (elem_type(elem) != BT_DOC)
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "The field '%s' must be an object, but got %s", elem_name(elem),
                                 bson_type_name(elem_type(elem)));
            *ret_is_kept = true;
            return ERR_OK;
        case OPTION_KEEP_SECONDS: {
            int64_t seconds;
            *ret_is_kept = true;
            return expire_after_parse(elem, ERR_CANNOT_CREATE_INDEX, &seconds, err);
        }
        case OPTION_KEEP_ENGINE:
            *ret_is_kept = true;
            return check_engine(elem, err);
        case OPTION_DROP:
            return ERR_OK;
        case OPTION_SPECIAL:
            return check_special(elem, err);
        case OPTION_REFUSED:
            return error_set(err, ERR_NOT_IMPLEMENTED, "index option '%s' is not supported yet",
                             elem_name(elem));
        }
    }
    return error_set(err, ERR_INVALID_INDEX_SPECIFICATION_OPTION,
                     "The field '%s' is not valid for an index specification.", elem_name(elem));
}

static ErrCode check_special(Elem elem, Error *err) {
    if (elem_name_is(elem, STR("clustered"))) {
        if (elem_type(elem) != BT_BOOL && !elem_is_number(elem))
            return error_set(err, ERR_TYPE_MISMATCH,
                             "The field 'clustered' has value %s, which is not convertible to bool",
                             bson_type_name(elem_type(elem)));
        if (!elem_is_truthy(elem))
            return error_set(err, (ErrCode)6492800,
                             "the index option 'clustered' can only be true");
        return ERR_OK;
    }
    if (elem_name_is(elem, STR("v"))) {
        int64_t version;
        if (!elem_is_number(elem) || !number_is_exact_i64(number_from_elem(elem), &version))
            return error_set(err, ERR_TYPE_MISMATCH, "The field 'v' must be a number");
        if (version != 1 && version != 2)
            return error_set(err, ERR_CANNOT_CREATE_INDEX,
                             "Invalid index specification; cannot create "
                             "an index with v=%lld",
                             (long long)version);
    }
    return ERR_OK;
}

/* Complete collations are equal exactly when their documents are. */
static bool same_collation(Doc a, Doc b) {
    return elem_compare(doc_get_lit(a, "collation"), doc_get_lit(b, "collation"), NULL) == 0;
}

/* unique, sparse, collation, filter and projection make another index; hidden does not. */
static bool same_options(Doc a, Doc b) {
    return elem_is_truthy(doc_get_lit(a, "unique")) == elem_is_truthy(doc_get_lit(b, "unique")) &&
           elem_is_truthy(doc_get_lit(a, "sparse")) == elem_is_truthy(doc_get_lit(b, "sparse")) &&
           same_collation(a, b) && index_same_wildcard(a, b) && index_same_partial_filter(a, b);
}

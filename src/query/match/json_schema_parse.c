/*
 * json_schema_parse.c - from a schema document to rules, and the entry of $jsonSchema into filters.
 */
#include "bson/number.h"
#include "query/match/json_schema.h"

static const SchemaKeyword KEYWORDS[] = {
#define SCHEMA_KEYWORD(name, applies, parse, eval, explain)                                        \
    {STR(name), applies, schema_parse_##parse, schema_eval_##eval, schema_explain_##explain},
#include "query/match/json_schema_keywords.def"
#undef SCHEMA_KEYWORD
};

/* Keywords of the standard or of encryption that a schema here may not have. */
static const char *const UNSUPPORTED[] = {"$ref",        "$schema", "default",
                                          "definitions", "format",  "id"};

typedef struct SchemaCustom {
    MatchCustom base;
    const JsonSchema *schema;
} SchemaCustom;

static ErrCode check_names(Doc spec, Error *err);
static ErrCode parse_rules(SchemaParser *p, JsonSchema *schema, Error *err);
static ErrCode parse_sub_schema(SchemaParser *p, Elem spec, const char *what,
                                const JsonSchema **ret_schema, Error *err);
static ErrCode check_name_list(Elem list, const char *keyword, Error *err);
static ErrCode wrong_type(const SchemaRule *rule, const char *expected, Error *err);

/* ---- $jsonSchema as an operator ---- */

static ErrCode custom_eval(const MatchCustom *base, Doc doc, bool *ret_is_match, Error *err) {
    SchemaRun run = {.err = err};
    *ret_is_match =
        schema_fits(((const SchemaCustom *)base)->schema, (SchemaValue){BT_DOC, doc.data}, &run);
    return run.rc;
}

static void custom_to_bson(const MatchCustom *base, DocBuilder *b) {
    build_doc(b, "$jsonSchema", ((const SchemaCustom *)base)->schema->spec);
}

static void custom_explain(const MatchCustom *base, Doc doc, bool is_inverted, DocBuilder *b) {
    const JsonSchema *schema = ((const SchemaCustom *)base)->schema;
    build_cstr(b, "operatorName", "$jsonSchema");
    if (is_inverted) {
        size_t given = build_open_doc(b, "specifiedAs");
        custom_to_bson(base, b);
        build_close(b, given);
        build_cstr(b, "reason", "schema matched");
        return;
    }
    if (elem_is_present(schema->title))
        build_elem(b, schema->title);
    if (elem_is_present(schema->description))
        build_elem(b, schema->description);
    size_t rules = build_open_array(b, "schemaRulesNotSatisfied");
    schema_explain(schema, (SchemaValue){BT_DOC, doc.data}, b);
    build_close(b, rules);
}

ErrCode json_schema_new(Elem operand, Arena *arena, MatchCustom **ret_custom, Error *err) {
    if (elem_type(operand) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "$jsonSchema must be an object");
    SchemaParser parser = {.arena = arena};
    JsonSchema *schema;
    TRY(schema_parse(&parser, elem_doc(operand), &schema, err));
    SchemaCustom *custom = ARENA_NEW(arena, SchemaCustom);
    custom->base = (MatchCustom){custom_eval, custom_to_bson, custom_explain};
    custom->schema = schema;
    *ret_custom = &custom->base;
    return ERR_OK;
}

/* ---- schemas ---- */

ErrCode schema_parse(SchemaParser *p, Doc spec, JsonSchema **ret_schema, Error *err) {
    if (++p->depth > MATCH_DEPTH_MAX)
        return error_set(err, ERR_BAD_VALUE, "Maximum nesting depth of $jsonSchema exceeded: %d",
                         MATCH_DEPTH_MAX);
    TRY(check_names(spec, err));
    JsonSchema *schema = ARENA_NEW(p->arena, JsonSchema);
    schema->spec = spec;
    schema->title = doc_get_lit(spec, "title");
    schema->description = doc_get_lit(spec, "description");
    const Elem texts[] = {schema->title, schema->description};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (elem_is_present(texts[i]) && elem_type(texts[i]) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "$jsonSchema keyword '%s' must be of type string",
                             elem_name(texts[i]));
    TRY(parse_rules(p, schema, err));
    p->depth--;
    *ret_schema = schema;
    return ERR_OK;
}

static const SchemaKeyword *find_keyword(Str name) {
    for (size_t i = 0; i < ARRAY_LEN(KEYWORDS); i++)
        if (str_equal(KEYWORDS[i].name, name))
            return &KEYWORDS[i];
    return NULL;
}

static ErrCode check_names(Doc spec, Error *err) {
    static const char *const OTHERS[] = {"title", "description", "exclusiveMinimum",
                                         "exclusiveMaximum"};
    DocIter iter = doc_iter(spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str name = elem_name_str(elem);
        bool is_known = find_keyword(name) != NULL;
        for (size_t i = 0; i < ARRAY_LEN(OTHERS); i++)
            is_known |= str_is(name, OTHERS[i]);
        if (is_known)
            continue;
        for (size_t i = 0; i < ARRAY_LEN(UNSUPPORTED); i++)
            if (str_is(name, UNSUPPORTED[i]))
                return error_set(err, ERR_FAILED_TO_PARSE,
                                 "$jsonSchema keyword '%s' is not currently supported",
                                 elem_name(elem));
        if (str_is(name, "encrypt") || str_is(name, "encryptMetadata"))
            return error_set(err, ERR_NOT_IMPLEMENTED, "$jsonSchema keyword '%s' is not supported",
                             elem_name(elem));
        return error_set(err, ERR_FAILED_TO_PARSE, "Unknown $jsonSchema keyword: %s",
                         elem_name(elem));
    }
    if (elem_is_present(doc_get_lit(spec, "type")) &&
        elem_is_present(doc_get_lit(spec, "bsonType")))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'");
    static const char *const PAIRS[][2] = {{"exclusiveMinimum", "minimum"},
                                           {"exclusiveMaximum", "maximum"}};
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        Elem exclusive = doc_get(spec, str_from(PAIRS[i][0]));
        if (elem_is_present(exclusive) && elem_type(exclusive) != BT_BOOL)
            return error_set(err, ERR_TYPE_MISMATCH, "$jsonSchema keyword '%s' must be a boolean",
                             PAIRS[i][0]);
        if (elem_is_present(exclusive) && !elem_is_present(doc_get(spec, str_from(PAIRS[i][1]))))
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "$jsonSchema keyword '%s' must be a present if %s is present",
                             PAIRS[i][1], PAIRS[i][0]);
    }
    return ERR_OK;
}

static ErrCode parse_rules(SchemaParser *p, JsonSchema *schema, Error *err) {
    schema->rules = ARENA_ARRAY(p->arena, SchemaRule, ARRAY_LEN(KEYWORDS));
    for (size_t i = 0; i < ARRAY_LEN(KEYWORDS); i++) {
        Elem spec = doc_get(schema->spec, KEYWORDS[i].name);
        if (!elem_is_present(spec))
            continue;
        SchemaRule *rule = &schema->rules[schema->rule_count];
        *rule = (SchemaRule){.keyword = &KEYWORDS[i], .owner = schema, .spec = spec};
        TRY(KEYWORDS[i].parse(p, rule, err));
        schema->rule_count++;
    }
    return ERR_OK;
}

static ErrCode parse_sub_schema(SchemaParser *p, Elem spec, const char *what,
                                const JsonSchema **ret_schema, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "%s '%s' must be an object, but found type %s",
                         what, elem_name(spec), bson_type_name(elem_type(spec)));
    JsonSchema *schema;
    TRY(schema_parse(p, elem_doc(spec), &schema, err));
    *ret_schema = schema;
    return ERR_OK;
}

static ErrCode wrong_type(const SchemaRule *rule, const char *expected, Error *err) {
    return error_set(err, ERR_TYPE_MISMATCH,
                     "$jsonSchema keyword '%s' must be %s, but found an element of type %s",
                     elem_name(rule->spec), expected, bson_type_name(elem_type(rule->spec)));
}

/* ---- keywords: types and values ---- */

static ErrCode add_bson_type(Str alias, uint32_t *type_set, Error *err) {
    if (str_is(alias, "number")) {
        *type_set |= 1u << BT_DOUBLE | 1u << BT_INT32 | 1u << BT_INT64 | 1u << BT_DECIMAL;
        return ERR_OK;
    }
    int type = bson_type_from_name(alias);
    if (type < 0)
        return error_set(err, ERR_BAD_VALUE, "Unknown type name alias: %.*s", (int)alias.size,
                         alias.data);
    *type_set |= 1u << match_type_bit((BsonType)type);
    return ERR_OK;
}

static ErrCode add_json_type(Str name, uint32_t *type_set, Error *err) {
    static const struct {
        const char *name;
        uint32_t types;
    } ROWS[] = {
        {"array", 1u << BT_ARRAY},
        {"boolean", 1u << BT_BOOL},
        {"null", 1u << BT_NULL},
        {"number", 1u << BT_DOUBLE | 1u << BT_INT32 | 1u << BT_INT64 | 1u << BT_DECIMAL},
        {"object", 1u << BT_DOC},
        {"string", 1u << BT_STRING},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        if (str_is(name, ROWS[i].name)) {
            *type_set |= ROWS[i].types;
            return ERR_OK;
        }
    }
    if (str_is(name, "integer"))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema type 'integer' is not currently supported.");
    return error_set(err, ERR_BAD_VALUE, "Unknown type name alias: %.*s", (int)name.size,
                     name.data);
}

static ErrCode parse_types(SchemaRule *rule, ErrCode (*add)(Str name, uint32_t *set, Error *err),
                           Error *err) {
    if (elem_type(rule->spec) == BT_STRING)
        return add(elem_str(rule->spec), &rule->type_set, err);
    if (elem_type(rule->spec) != BT_ARRAY)
        return wrong_type(rule, "either a string or an array of strings", err);
    if (doc_is_empty(elem_doc(rule->spec)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword '%s' must name at least one type",
                         elem_name(rule->spec));
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "$jsonSchema keyword '%s' array elements must be strings",
                             elem_name(rule->spec));
        uint32_t before = rule->type_set;
        TRY(add(elem_str(elem), &rule->type_set, err));
        if (rule->type_set == before)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "$jsonSchema keyword '%s' has duplicate value: %s",
                             elem_name(rule->spec), elem_str(elem).data);
    }
    return ERR_OK;
}

ErrCode schema_parse_bson_type(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    return parse_types(rule, add_bson_type, err);
}

ErrCode schema_parse_json_type(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    return parse_types(rule, add_json_type, err);
}

ErrCode schema_parse_enum(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    if (elem_type(rule->spec) != BT_ARRAY)
        return wrong_type(rule, "an array", err);
    if (doc_is_empty(elem_doc(rule->spec)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword 'enum' cannot be an empty array");
    if (elem_is_present(schema_find_duplicate(elem_doc(rule->spec))))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword 'enum' array cannot contain duplicate values.");
    return ERR_OK;
}

ErrCode schema_parse_multiple_of(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    if (!elem_is_number(rule->spec))
        return wrong_type(rule, "a number", err);
    Number divisor = number_from_elem(rule->spec);
    if (number_is_nan(divisor) || number_compare(divisor, number_i32(0)) <= 0)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword 'multipleOf' must have a positive value");
    return ERR_OK;
}

ErrCode schema_parse_bound(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    if (!elem_is_number(rule->spec))
        return wrong_type(rule, "a number", err);
    bool is_minimum = elem_name_is(rule->spec, STR("minimum"));
    rule->exclusive =
        doc_get(rule->owner->spec, is_minimum ? STR("exclusiveMinimum") : STR("exclusiveMaximum"));
    rule->flag = elem_is_present(rule->exclusive) && elem_bool(rule->exclusive);
    return ERR_OK;
}

ErrCode schema_parse_count(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    if (!elem_is_number(rule->spec))
        return wrong_type(rule, "a number", err);
    if (!number_is_exact_i64(number_from_elem(rule->spec), &rule->count) || rule->count < 0)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword '%s' must be a non-negative integer",
                         elem_name(rule->spec));
    return ERR_OK;
}

ErrCode schema_parse_pattern(SchemaParser *p, SchemaRule *rule, Error *err) {
    if (elem_type(rule->spec) != BT_STRING)
        return wrong_type(rule, "a string", err);
    MatchRegex *regex;
    TRY(regex_compile(elem_str(rule->spec), STR(""), p->arena, &regex, err));
    rule->regex = regex;
    return ERR_OK;
}

/* ---- keywords: arrays ---- */

ErrCode schema_parse_unique_items(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    if (elem_type(rule->spec) != BT_BOOL)
        return wrong_type(rule, "a boolean", err);
    rule->flag = elem_bool(rule->spec);
    return ERR_OK;
}

ErrCode schema_parse_items(SchemaParser *p, SchemaRule *rule, Error *err) {
    if (elem_type(rule->spec) == BT_DOC)
        return parse_sub_schema(p, rule->spec, "$jsonSchema keyword", &rule->schema, err);
    if (elem_type(rule->spec) != BT_ARRAY)
        return wrong_type(rule, "an array or an object", err);
    rule->entries = ARENA_ARRAY(p->arena, SchemaEntry, doc_count(elem_doc(rule->spec)));
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem); rule->entry_count++)
        TRY(parse_sub_schema(p, elem, "$jsonSchema keyword 'items' entry",
                             &rule->entries[rule->entry_count].schema, err));
    return ERR_OK;
}

/* additionalItems and additionalProperties: true, false or a schema. */
ErrCode schema_parse_additional(SchemaParser *p, SchemaRule *rule, Error *err) {
    if (elem_type(rule->spec) == BT_DOC)
        return parse_sub_schema(p, rule->spec, "$jsonSchema keyword", &rule->schema, err);
    if (elem_type(rule->spec) != BT_BOOL)
        return wrong_type(rule, "either an object or a boolean", err);
    rule->flag = elem_bool(rule->spec);
    return ERR_OK;
}

/* ---- keywords: objects ---- */

static ErrCode begin_entries(SchemaParser *p, SchemaRule *rule, Error *err) {
    if (elem_type(rule->spec) != BT_DOC)
        return wrong_type(rule, "an object", err);
    rule->entries = ARENA_ARRAY(p->arena, SchemaEntry, doc_count(elem_doc(rule->spec)));
    return ERR_OK;
}

ErrCode schema_parse_properties(SchemaParser *p, SchemaRule *rule, Error *err) {
    TRY(begin_entries(p, rule, err));
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem); rule->entry_count++) {
        SchemaEntry *entry = &rule->entries[rule->entry_count];
        entry->name = elem_name_str(elem);
        TRY(parse_sub_schema(p, elem, "Nested schema for $jsonSchema property", &entry->schema,
                             err));
    }
    schema_index_names(rule, p->arena);
    return ERR_OK;
}

ErrCode schema_parse_pattern_properties(SchemaParser *p, SchemaRule *rule, Error *err) {
    TRY(begin_entries(p, rule, err));
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem); rule->entry_count++) {
        SchemaEntry *entry = &rule->entries[rule->entry_count];
        entry->name = elem_name_str(elem);
        MatchRegex *regex;
        TRY(regex_compile(entry->name, STR(""), p->arena, &regex, err));
        entry->regex = regex;
        TRY(parse_sub_schema(p, elem, "Nested schema for $jsonSchema pattern", &entry->schema,
                             err));
    }
    return ERR_OK;
}

ErrCode schema_parse_required(SchemaParser *p, SchemaRule *rule, Error *err) {
    (void)p;
    if (elem_type(rule->spec) != BT_ARRAY)
        return wrong_type(rule, "an array", err);
    return check_name_list(rule->spec, "required", err);
}

ErrCode schema_parse_dependencies(SchemaParser *p, SchemaRule *rule, Error *err) {
    TRY(begin_entries(p, rule, err));
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem); rule->entry_count++) {
        SchemaEntry *entry = &rule->entries[rule->entry_count];
        entry->name = elem_name_str(elem);
        if (elem_type(elem) == BT_ARRAY) {
            TRY(check_name_list(elem, "dependencies", err));
            entry->names = elem_doc(elem);
        } else {
            TRY(parse_sub_schema(p, elem, "$jsonSchema dependency", &entry->schema, err));
        }
    }
    schema_index_names(rule, p->arena);
    return ERR_OK;
}

static ErrCode check_name_list(Elem list, const char *keyword, Error *err) {
    if (doc_is_empty(elem_doc(list)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword '%s' cannot be an empty array", keyword);
    DocIter iter = doc_iter(elem_doc(list));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem_type(elem) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "$jsonSchema keyword '%s' must be an array of strings, but found an "
                             "element of type: %s",
                             keyword, bson_type_name(elem_type(elem)));
    Elem twice = schema_find_duplicate(elem_doc(list));
    if (elem_is_present(twice))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$jsonSchema keyword '%s' array cannot contain duplicate values. Found "
                         "duplicate: %s",
                         keyword, elem_str(twice).data);
    return ERR_OK;
}

/* ---- keywords: logic ---- */

ErrCode schema_parse_schemas(SchemaParser *p, SchemaRule *rule, Error *err) {
    if (elem_type(rule->spec) != BT_ARRAY)
        return wrong_type(rule, "an array", err);
    if (doc_is_empty(elem_doc(rule->spec)))
        return error_set(err, ERR_BAD_VALUE, "$jsonSchema keyword '%s' must be a non-empty array",
                         elem_name(rule->spec));
    rule->entries = ARENA_ARRAY(p->arena, SchemaEntry, doc_count(elem_doc(rule->spec)));
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem); rule->entry_count++)
        TRY(parse_sub_schema(p, elem, "$jsonSchema keyword array entry",
                             &rule->entries[rule->entry_count].schema, err));
    return ERR_OK;
}

ErrCode schema_parse_schema(SchemaParser *p, SchemaRule *rule, Error *err) {
    if (elem_type(rule->spec) != BT_DOC)
        return wrong_type(rule, "an object", err);
    return parse_sub_schema(p, rule->spec, "$jsonSchema keyword", &rule->schema, err);
}

/*
 * json_schema_explain.c - why a value does not fit a schema, as a validation error tells it.
 *
 * Called only for rules that are broken. What a regular expression could not decide counts as not
 * found here; the verdict was reached before.
 */
#include "query/match/json_schema.h"

static Doc doc_of(SchemaValue value) {
    return (Doc){value.at};
}

static bool fits(const JsonSchema *schema, SchemaValue value) {
    SchemaRun run = {0};
    return schema_fits(schema, value, &run);
}

void schema_explain(const JsonSchema *schema, SchemaValue value, DocBuilder *b) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < schema->rule_count; i++) {
        const SchemaRule *rule = &schema->rules[i];
        SchemaRun run = {0};
        if (schema_rule_fits(rule, value, &run))
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_str(b, "operatorName", rule->keyword->name);
        rule->keyword->explain(rule, value, b);
        build_close(b, row);
    }
}

/* ---- parts of reports ---- */

static void build_specified(const SchemaRule *rule, DocBuilder *b) {
    size_t opened = build_open_doc(b, "specifiedAs");
    build_elem(b, rule->spec);
    if (elem_is_present(rule->exclusive))
        build_elem(b, rule->exclusive);
    build_close(b, opened);
}

static void build_considered(SchemaValue value, DocBuilder *b) {
    uint32_t size = value_size(value.type, value.at);
    uint8_t *at = build_value(b, value.type, STR("consideredValue"), size);
    if (at != NULL)
        memcpy(at, value.at, size);
}

/* specifiedAs, reason, consideredValue: what most rules tell. */
static void build_plain(const SchemaRule *rule, const char *reason, SchemaValue value,
                        DocBuilder *b) {
    build_specified(rule, b);
    build_cstr(b, "reason", reason);
    build_considered(value, b);
}

static void build_texts(const JsonSchema *schema, DocBuilder *b) {
    if (elem_is_present(schema->title))
        build_elem(b, schema->title);
    if (elem_is_present(schema->description))
        build_elem(b, schema->description);
}

static void build_details(const JsonSchema *schema, SchemaValue value, DocBuilder *b) {
    size_t details = build_open_array(b, "details");
    schema_explain(schema, value, b);
    build_close(b, details);
}

/* ---- types and values ---- */

void schema_explain_type(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "type did not match", value, b);
    build_cstr(b, "consideredType", bson_type_name(value.type));
}

void schema_explain_enum(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "value was not found in enum", value, b);
}

void schema_explain_multiple_of(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "considered value is not a multiple of the specified value", value, b);
}

void schema_explain_bound(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "comparison failed", value, b);
}

void schema_explain_length(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "specified string length was not satisfied", value, b);
}

void schema_explain_pattern(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "regular expression did not match", value, b);
}

/* ---- arrays ---- */

void schema_explain_item_count(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "array did not match specified length", value, b);
}

void schema_explain_unique_items(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_plain(rule, "found a duplicate item", value, b);
    build_elem_as(b, STR("duplicatedValue"), schema_find_duplicate(doc_of(value)));
}

static void build_item(const JsonSchema *schema, uint32_t position, Elem item, DocBuilder *b) {
    build_texts(schema, b);
    build_i32(b, "itemIndex", (int32_t)position);
    build_details(schema, schema_value(item), b);
}

void schema_explain_items(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_cstr(b, "reason", "At least one item did not match the sub-schema");
    uint32_t position = 0;
    DocIter iter = doc_iter(doc_of(value));
    for (Elem item; doc_iter_next(&iter, &item); position++) {
        const JsonSchema *schema = rule->schema;
        if (schema == NULL)
            schema = position < rule->entry_count ? rule->entries[position].schema : NULL;
        if (schema == NULL || fits(schema, schema_value(item)))
            continue;
        build_item(schema, position, item, b);
        return;
    }
}

void schema_explain_additional_items(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    uint32_t listed = schema_listed_items(rule), position = 0, count = 0;
    DocIter iter = doc_iter(doc_of(value));
    if (rule->schema == NULL) {
        build_specified(rule, b);
        build_cstr(b, "reason", "found additional items");
        size_t items = build_open_array(b, "additionalItems");
        for (Elem item; doc_iter_next(&iter, &item); position++) {
            char name[INDEX_NAME_SIZE];
            if (position >= listed)
                build_elem_as(b, index_name(count++, name), item);
        }
        build_close(b, items);
        return;
    }
    build_cstr(b, "reason", "At least one additional item did not match the sub-schema");
    for (Elem item; doc_iter_next(&iter, &item); position++) {
        if (position < listed || fits(rule->schema, schema_value(item)))
            continue;
        build_item(rule->schema, position, item, b);
        return;
    }
}

/* ---- objects ---- */

static void explain_property(const SchemaEntry *entry, Elem elem, uint32_t *count, DocBuilder *b) {
    if (!elem_is_present(elem) || fits(entry->schema, schema_value(elem)))
        return;
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(b, index_name((*count)++, name));
    build_str(b, "propertyName", entry->name);
    build_texts(entry->schema, b);
    build_details(entry->schema, schema_value(elem), b);
    build_close(b, row);
}

/* In the order of the schema or, when it is long, of the document. */
void schema_explain_properties(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    size_t list = build_open_array(b, "propertiesNotSatisfied");
    uint32_t count = 0;
    if (rule->names.slots == NULL) {
        for (uint32_t i = 0; i < rule->entry_count; i++)
            explain_property(&rule->entries[i], doc_get(doc_of(value), rule->entries[i].name),
                             &count, b);
    } else {
        DocIter iter = doc_iter(doc_of(value));
        for (Elem elem; doc_iter_next(&iter, &elem);) {
            const SchemaEntry *entry = schema_find_entry(rule, elem_name_str(elem));
            if (entry != NULL)
                explain_property(entry, elem, &count, b);
        }
    }
    build_close(b, list);
}

void schema_explain_pattern_properties(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    size_t list = build_open_array(b, "details");
    uint32_t count = 0;
    DocIter iter = doc_iter(doc_of(value));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        for (uint32_t i = 0; i < rule->entry_count; i++) {
            const SchemaEntry *entry = &rule->entries[i];
            bool is_match = false;
            CLEANUP(error_reset) Error ignored = {0};
            if (regex_search(entry->regex, elem_name_str(elem), &is_match, &ignored) != ERR_OK ||
                !is_match || fits(entry->schema, schema_value(elem)))
                continue;
            char name[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(b, index_name(count++, name));
            build_str(b, "propertyName", elem_name_str(elem));
            build_texts(entry->schema, b);
            build_str(b, "regexMatched", entry->name);
            build_details(entry->schema, schema_value(elem), b);
            build_close(b, row);
        }
    }
    build_close(b, list);
}

void schema_explain_additional_properties(const SchemaRule *rule, SchemaValue value,
                                          DocBuilder *b) {
    SchemaRun run = {0};
    DocIter iter = doc_iter(doc_of(value));
    if (rule->schema == NULL) {
        build_specified(rule, b);
        size_t list = build_open_array(b, "additionalProperties");
        uint32_t count = 0;
        for (Elem elem; doc_iter_next(&iter, &elem);) {
            char name[INDEX_NAME_SIZE];
            if (!schema_is_known_property(rule, elem, &run))
                build_str(b, index_name(count++, name).data, elem_name_str(elem));
        }
        build_close(b, list);
        return;
    }
    build_cstr(b, "reason", "at least one additional property did not match the subschema");
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (schema_is_known_property(rule, elem, &run) || fits(rule->schema, schema_value(elem)))
            continue;
        build_str(b, "failingProperty", elem_name_str(elem));
        build_details(rule->schema, schema_value(elem), b);
        return;
    }
}

typedef struct NameList {
    DocBuilder *b;
    uint32_t count;
} NameList;

static bool add_name(void *ctx, Elem name) {
    NameList *list = ctx;
    char position[INDEX_NAME_SIZE];
    build_elem_as(list->b, index_name(list->count++, position), name);
    return false;
}

static void build_missing(Doc doc, Doc names, DocBuilder *b) {
    size_t opened = build_open_array(b, "missingProperties");
    NameList list = {b, 0};
    schema_visit_missing(doc, names, add_name, &list);
    build_close(b, opened);
}

void schema_explain_required(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_specified(rule, b);
    build_missing(doc_of(value), elem_doc(rule->spec), b);
}

void schema_explain_property_count(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    build_specified(rule, b);
    build_cstr(b, "reason", "specified number of properties was not satisfied");
    build_i32(b, "numberOfProperties", (int32_t)doc_count(doc_of(value)));
}

void schema_explain_dependencies(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    size_t list = build_open_array(b, "failingDependencies");
    uint32_t count = 0;
    DocIter iter = doc_iter(doc_of(value));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const SchemaEntry *entry = schema_find_entry(rule, elem_name_str(elem));
        if (entry == NULL || schema_dependency_fits(entry, value))
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_str(b, "conditionalProperty", entry->name);
        if (entry->schema != NULL)
            build_details(entry->schema, value, b);
        else
            build_missing(doc_of(value), entry->names, b);
        build_close(b, row);
    }
    build_close(b, list);
}

/* ---- logic ---- */

void schema_explain_schemas(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    size_t list = build_open_array(b, "schemasNotSatisfied");
    uint32_t count = 0;
    for (uint32_t i = 0; i < rule->entry_count; i++) {
        const JsonSchema *schema = rule->entries[i].schema;
        if (fits(schema, value))
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_i32(b, "index", (int32_t)i);
        build_texts(schema, b);
        build_details(schema, value, b);
        build_close(b, row);
    }
    build_close(b, list);
}

void schema_explain_one_of(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rule->entry_count; i++)
        count += fits(rule->entries[i].schema, value);
    if (count == 0) {
        schema_explain_schemas(rule, value, b);
        return;
    }
    build_cstr(b, "reason", "more than one subschema matched");
    size_t list = build_open_array(b, "matchingSchemaIndexes");
    count = 0;
    for (uint32_t i = 0; i < rule->entry_count; i++) {
        char name[INDEX_NAME_SIZE];
        if (fits(rule->entries[i].schema, value))
            build_i32(b, index_name(count++, name).data, (int32_t)i);
    }
    build_close(b, list);
}

void schema_explain_not(const SchemaRule *rule, SchemaValue value, DocBuilder *b) {
    (void)value;
    build_texts(rule->schema, b);
    build_cstr(b, "reason", "child expression matched");
}

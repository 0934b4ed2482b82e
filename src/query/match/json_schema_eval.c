/*
 * json_schema_eval.c - does a value fit a schema?
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "bson/decimal.h"
#include "bson/number.h"
#include "query/match/json_schema.h"

static bool regex_finds(const MatchRegex *regex, Str text, SchemaRun *run);
static bool applies(SchemaApplies applies_to, BsonType type);

bool schema_fits(const JsonSchema *schema, SchemaValue value, SchemaRun *run) {
    for (uint32_t i = 0; i < schema->rule_count; i++)
        if (!schema_rule_fits(&schema->rules[i], value, run))
            return false;
    return true;
}

bool schema_rule_fits(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    return !applies(rule->keyword->applies, value.type) || rule->keyword->eval(rule, value, run);
}

static bool applies(SchemaApplies applies_to, BsonType type) {
    switch (applies_to) {
    case SCHEMA_NUMBER:
        return type_is_number(type);
    case SCHEMA_STRING:
        return type == BT_STRING;
    case SCHEMA_ARRAY:
        return type == BT_ARRAY;
    case SCHEMA_OBJECT:
        return type == BT_DOC;
    case SCHEMA_ANY:
        break;
    }
    return true;
}

static Doc doc_of(SchemaValue value) {
    return (Doc){value.at};
}

static Str text_of(SchemaValue value) {
    return (Str){(const char *)value.at + 4, (size_t)load_i32(value.at) - 1};
}

static bool regex_finds(const MatchRegex *regex, Str text, SchemaRun *run) {
    bool is_match = false;
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = regex_search(regex, text, &is_match, &err);
    if (rc != ERR_OK && run->rc == ERR_OK) {
        run->rc = rc;
        if (run->err != NULL)
            error_move(run->err, &err);
    }
    return is_match;
}

/* ---- types and values ---- */

bool schema_eval_type(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return (rule->type_set >> match_type_bit(value.type) & 1) != 0;
}

bool schema_eval_enum(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    DocIter iter = doc_iter(elem_doc(rule->spec));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (schema_values_equal(value, schema_value(elem)))
            return true;
    return false;
}

static bool compare_number(const SchemaRule *rule, SchemaValue value, int *ret_order) {
    Number number = number_from_value(value.type, value.at), bound = number_from_elem(rule->spec);
    *ret_order = number_compare(number, bound);
    return number_is_nan(number) == number_is_nan(bound); /* NaN compares with itself alone */
}

bool schema_eval_minimum(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    int order;
    return compare_number(rule, value, &order) && (order > 0 || (order == 0 && !rule->flag));
}

bool schema_eval_maximum(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    int order;
    return compare_number(rule, value, &order) && (order < 0 || (order == 0 && !rule->flag));
}

static Decimal decimal_of(Number number) {
    Decimal128 value = number_to_decimal(number);
    return decimal_strip_zeros(decimal_from_value((const uint8_t *)&value));
}

/* Exact: decimals are whole multiples of a power of ten, so that the rest can be taken with
 * integers. */
bool schema_eval_multiple_of(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    Decimal number = decimal_of(number_from_value(value.type, value.at));
    Decimal divisor = decimal_of(number_from_elem(rule->spec));
    if (number.kind != DECIMAL_FINITE || divisor.kind != DECIMAL_FINITE)
        return false;
    if (number.coefficient == 0)
        return true;
    if (divisor.coefficient == 0)
        return false; /* too small for a decimal */
    if (number.exponent < divisor.exponent)
        return false; /* a power of ten does not divide what has no trailing zeros */
    unsigned __int128 rest = number.coefficient % divisor.coefficient;
    /* rest < 10^34, so that ten times as much still fits */
    for (int32_t i = number.exponent; rest != 0 && i > divisor.exponent; i--)
        rest = rest * 10 % divisor.coefficient;
    return rest == 0;
}

static int64_t code_points(SchemaValue value) {
    Str text = text_of(value);
    int64_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((uint8_t)text.data[i] & 0xC0) != 0x80;
    return count;
}

bool schema_eval_min_length(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return code_points(value) >= rule->count;
}

bool schema_eval_max_length(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return code_points(value) <= rule->count;
}

bool schema_eval_pattern(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    return regex_finds(rule->regex, text_of(value), run);
}

/* ---- arrays ---- */

bool schema_eval_min_items(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return (int64_t)doc_count(doc_of(value)) >= rule->count;
}

bool schema_eval_max_items(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return (int64_t)doc_count(doc_of(value)) <= rule->count;
}

bool schema_eval_unique_items(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return !rule->flag || !elem_is_present(schema_find_duplicate(doc_of(value)));
}

bool schema_eval_items(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    DocIter iter = doc_iter(doc_of(value));
    uint32_t position = 0;
    for (Elem elem; doc_iter_next(&iter, &elem); position++) {
        const JsonSchema *schema = rule->schema;
        if (schema == NULL) {
            if (position == rule->entry_count)
                return true;
            schema = rule->entries[position].schema;
        }
        if (!schema_fits(schema, schema_value(elem), run))
            return false;
    }
    return true;
}

uint32_t schema_listed_items(const SchemaRule *rule) {
    const SchemaRule *items = schema_sibling(rule, STR("items"));
    return items == NULL || items->schema != NULL ? UINT32_MAX : items->entry_count;
}

bool schema_eval_additional_items(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    uint32_t listed = schema_listed_items(rule), position = 0;
    if (rule->flag || listed == UINT32_MAX)
        return true;
    DocIter iter = doc_iter(doc_of(value));
    for (Elem elem; doc_iter_next(&iter, &elem); position++)
        if (position >= listed &&
            (rule->schema == NULL || !schema_fits(rule->schema, schema_value(elem), run)))
            return false;
    return true;
}

/* ---- objects ---- */

const SchemaRule *schema_sibling(const SchemaRule *rule, Str keyword) {
    for (uint32_t i = 0; i < rule->owner->rule_count; i++)
        if (str_equal(rule->owner->rules[i].keyword->name, keyword))
            return &rule->owner->rules[i];
    return NULL;
}

bool schema_is_known_property(const SchemaRule *rule, Elem property, SchemaRun *run) {
    const SchemaRule *properties = schema_sibling(rule, STR("properties"));
    if (properties != NULL && schema_find_entry(properties, elem_name_str(property)) != NULL)
        return true;
    const SchemaRule *patterns = schema_sibling(rule, STR("patternProperties"));
    for (uint32_t i = 0; patterns != NULL && i < patterns->entry_count; i++)
        if (regex_finds(patterns->entries[i].regex, elem_name_str(property), run))
            return true;
    return false;
}

/* ---- names ---- */

static uint32_t *find_slot(const SchemaNames *names, Str name, const SchemaEntry *entries) {
    uint64_t hash = hash_bytes(name.data, name.size) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t at = (uint32_t)(hash >> 32) & names->mask;; at = (at + 1) & names->mask) {
        uint32_t *slot = &names->slots[at];
        if (*slot == 0 || str_equal(entries[*slot - 1].name, name))
            return slot;
    }
}

static uint32_t slot_count(uint32_t count) {
    uint32_t slots = 64;
    while (slots < count * 2)
        slots *= 2;
    return slots;
}

/* Of equal names the first counts, as in a lookup one by one. */
static void fill_names(SchemaNames *names, const SchemaEntry *entries, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *slot = find_slot(names, entries[i].name, entries);
        if (*slot == 0)
            *slot = i + 1;
    }
}

void schema_index_names(SchemaRule *rule, Arena *arena) {
    if (rule->entry_count <= SCHEMA_NAMES_SHORT)
        return;
    uint32_t slots = slot_count(rule->entry_count);
    rule->names = (SchemaNames){ARENA_ARRAY(arena, uint32_t, slots), slots - 1};
    fill_names(&rule->names, rule->entries, rule->entry_count);
}

const SchemaEntry *schema_find_entry(const SchemaRule *rule, Str name) {
    if (rule->names.slots != NULL) {
        uint32_t found = *find_slot(&rule->names, name, rule->entries);
        return found != 0 ? &rule->entries[found - 1] : NULL;
    }
    for (uint32_t i = 0; i < rule->entry_count; i++)
        if (str_equal(rule->entries[i].name, name))
            return &rule->entries[i];
    return NULL;
}

/* A long list of names against the fields of a document, which are put in a table first. */
static bool visit_missing_of_many(Doc doc, Doc names, bool (*visit)(void *ctx, Elem name),
                                  void *ctx) {
    uint32_t count = doc_count(doc), slots = slot_count(count), at = 0;
    CLEANUP(xfree_ptr) SchemaEntry *fields = xcalloc(count + 1, sizeof(*fields));
    CLEANUP(xfree_ptr) uint32_t *memory = xcalloc(slots, sizeof(*memory));
    SchemaNames table = {memory, slots - 1};
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        fields[at++].name = elem_name_str(elem);
    fill_names(&table, fields, count);
    iter = doc_iter(names);
    for (Elem name; doc_iter_next(&iter, &name);)
        if (*find_slot(&table, elem_str(name), fields) == 0 && visit(ctx, name))
            return true;
    return false;
}

bool schema_visit_missing(Doc doc, Doc names, bool (*visit)(void *ctx, Elem name), void *ctx) {
    if (doc_count(names) > SCHEMA_NAMES_SHORT)
        return visit_missing_of_many(doc, names, visit, ctx);
    DocIter iter = doc_iter(names);
    for (Elem name; doc_iter_next(&iter, &name);)
        if (!elem_is_present(doc_get(doc, elem_str(name))) && visit(ctx, name))
            return true;
    return false;
}

static bool stop(void *ctx, Elem name) {
    (void)ctx, (void)name;
    return true;
}

static bool has_all(Doc doc, Doc names) {
    return !schema_visit_missing(doc, names, stop, NULL);
}

/* ---- what objects have ---- */

bool schema_eval_properties(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    DocIter iter = doc_iter(doc_of(value));
    if (rule->names.slots != NULL) {
        for (Elem elem; doc_iter_next(&iter, &elem);) {
            const SchemaEntry *entry = schema_find_entry(rule, elem_name_str(elem));
            if (entry != NULL && !schema_fits(entry->schema, schema_value(elem), run))
                return false;
        }
        return true;
    }
    for (uint32_t i = 0; i < rule->entry_count; i++) {
        Elem elem = doc_get(doc_of(value), rule->entries[i].name);
        if (elem_is_present(elem) && !schema_fits(rule->entries[i].schema, schema_value(elem), run))
            return false;
    }
    return true;
}

bool schema_eval_pattern_properties(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    DocIter iter = doc_iter(doc_of(value));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        for (uint32_t i = 0; i < rule->entry_count; i++)
            if (regex_finds(rule->entries[i].regex, elem_name_str(elem), run) &&
                !schema_fits(rule->entries[i].schema, schema_value(elem), run))
                return false;
    return true;
}

bool schema_eval_additional_properties(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    if (rule->flag)
        return true;
    DocIter iter = doc_iter(doc_of(value));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!schema_is_known_property(rule, elem, run) &&
            (rule->schema == NULL || !schema_fits(rule->schema, schema_value(elem), run)))
            return false;
    return true;
}

bool schema_eval_required(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    (void)run;
    return has_all(doc_of(value), elem_doc(rule->spec));
}

bool schema_eval_min_properties(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    return schema_eval_min_items(rule, value, run);
}

bool schema_eval_max_properties(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    return schema_eval_max_items(rule, value, run);
}

static bool dependency_fits(const SchemaEntry *entry, SchemaValue value, SchemaRun *run) {
    return entry->schema != NULL ? schema_fits(entry->schema, value, run)
                                 : has_all(doc_of(value), entry->names);
}

bool schema_dependency_fits(const SchemaEntry *entry, SchemaValue value) {
    SchemaRun run = {0};
    return dependency_fits(entry, value, &run);
}

bool schema_eval_dependencies(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    DocIter iter = doc_iter(doc_of(value));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const SchemaEntry *entry = schema_find_entry(rule, elem_name_str(elem));
        if (entry == NULL)
            continue;
        if (!dependency_fits(entry, value, run))
            return false;
    }
    return true;
}

/* ---- logic ---- */

static uint32_t count_fitting(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rule->entry_count; i++)
        count += schema_fits(rule->entries[i].schema, value, run);
    return count;
}

bool schema_eval_all_of(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    for (uint32_t i = 0; i < rule->entry_count; i++)
        if (!schema_fits(rule->entries[i].schema, value, run))
            return false;
    return true;
}

bool schema_eval_any_of(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    for (uint32_t i = 0; i < rule->entry_count; i++)
        if (schema_fits(rule->entries[i].schema, value, run))
            return true;
    return false;
}

bool schema_eval_one_of(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    return count_fitting(rule, value, run) == 1;
}

bool schema_eval_not(const SchemaRule *rule, SchemaValue value, SchemaRun *run) {
    return !schema_fits(rule->schema, value, run);
}

/* ---- equality without the order of fields ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(elem_name(*(const Elem *)a), elem_name(*(const Elem *)b));
}

static Elem *sorted_fields(Doc doc, uint32_t count) {
    Elem *fields = xcalloc(count + 1, sizeof(*fields));
    uint32_t at = 0;
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        fields[at++] = elem;
    qsort(fields, count, sizeof(*fields), compare_names);
    return fields;
}

static bool has_same_names_in_order(Doc a, Doc b) {
    DocIter x_iter = doc_iter(a), y_iter = doc_iter(b);
    Elem x, y;
    while (doc_iter_next(&x_iter, &x) && doc_iter_next(&y_iter, &y))
        if (!elem_name_is(x, elem_name_str(y)))
            return false;
    return true;
}

/* Recursion is as deep as documents are (BSON_DEPTH_MAX). */
static bool docs_equal(Doc a, Doc b) {
    uint32_t count = doc_count(a);
    if (count != doc_count(b))
        return false;
    if (has_same_names_in_order(a, b)) {
        DocIter x_iter = doc_iter(a), y_iter = doc_iter(b);
        Elem x, y;
        while (doc_iter_next(&x_iter, &x) && doc_iter_next(&y_iter, &y))
            if (!schema_values_equal(schema_value(x), schema_value(y)))
                return false;
        return true;
    }
    CLEANUP(xfree_ptr) Elem *x = sorted_fields(a, count);
    CLEANUP(xfree_ptr) Elem *y = sorted_fields(b, count);
    for (uint32_t i = 0; i < count; i++)
        if (compare_names(&x[i], &y[i]) != 0 ||
            !schema_values_equal(schema_value(x[i]), schema_value(y[i])))
            return false;
    return true;
}

static bool arrays_equal(Doc a, Doc b) {
    DocIter x_iter = doc_iter(a), y_iter = doc_iter(b);
    Elem x, y;
    while (true) {
        bool has_x = doc_iter_next(&x_iter, &x), has_y = doc_iter_next(&y_iter, &y);
        if (!has_x || !has_y)
            return has_x == has_y;
        if (!schema_values_equal(schema_value(x), schema_value(y)))
            return false;
    }
}

bool schema_values_equal(SchemaValue a, SchemaValue b) {
    if (a.type == BT_DOC && b.type == BT_DOC)
        return docs_equal(doc_of(a), doc_of(b));
    if (a.type == BT_ARRAY && b.type == BT_ARRAY)
        return arrays_equal(doc_of(a), doc_of(b));
    return value_compare(a.type, a.at, b.type, b.at, NULL) == 0;
}

static uint64_t hash_unordered(Elem elem) {
    BsonType type = elem_type(elem);
    if (type != BT_DOC && type != BT_ARRAY)
        return elem_hash(elem, NULL);
    uint64_t hash = (uint64_t)type * UINT64_C(0x9E3779B97F4A7C15);
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem inner; doc_iter_next(&iter, &inner);) {
        uint64_t part = hash_unordered(inner);
        if (type == BT_DOC) /* the sum does not know the order */
            hash += (part ^ hash_bytes(elem_name(inner), inner.name_size)) *
                    UINT64_C(0xD6E8FEB86659FD93);
        else
            hash = (hash ^ part) * UINT64_C(0xD6E8FEB86659FD93);
    }
    return hash;
}

typedef struct HashedItem {
    uint64_t hash;
    Elem elem;
} HashedItem;

static int compare_hashes(const void *a, const void *b) {
    uint64_t x = ((const HashedItem *)a)->hash, y = ((const HashedItem *)b)->hash;
    return (x > y) - (x < y);
}

Elem schema_find_duplicate(Doc array) {
    uint32_t count = doc_count(array), at = 0;
    CLEANUP(xfree_ptr) HashedItem *items = xcalloc(count + 1, sizeof(*items));
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        items[at++] = (HashedItem){hash_unordered(elem), elem};
    qsort(items, count, sizeof(*items), compare_hashes);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = i + 1; j < count && items[j].hash == items[i].hash; j++)
            if (schema_values_equal(schema_value(items[i].elem), schema_value(items[j].elem)))
                return items[j].elem;
    return ELEM_MISSING;
}

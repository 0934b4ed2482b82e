/*
 * json_schema.h - $jsonSchema: draft 4 of JSON Schema as MongoDB has it, with bsonType.
 *
 * A schema is a list of rules, one per keyword, in the order of json_schema_keywords.def. A value
 * fits when it fits every rule; a rule for another type of value has nothing to say.
 *
 * Ownership: a schema lives in the arena it was parsed into and borrows the bytes of its document.
 * Threading: constant once parsed.
 */
#pragma once

#include "query/match/match_internal.h"
#include "query/match/regex.h"

typedef struct JsonSchema JsonSchema;
typedef struct SchemaRule SchemaRule;

/* A value without a name: the root is a document that is no element. */
typedef struct SchemaValue {
    BsonType type;
    const uint8_t *at;
} SchemaValue;

static inline SchemaValue schema_value(Elem elem) {
    return (SchemaValue){elem_type(elem), elem_value(elem)};
}

/* The first failure of a regular expression; a verdict is worth nothing after it. */
typedef struct SchemaRun {
    ErrCode rc;
    Error *err;
} SchemaRun;

typedef struct SchemaParser {
    Arena *arena;
    uint32_t depth;
} SchemaParser;

enum {
    SCHEMA_NAMES_SHORT = 16, /* lists up to this size are looked through */
};

typedef enum SchemaApplies {
    SCHEMA_ANY,
    SCHEMA_NUMBER,
    SCHEMA_STRING,
    SCHEMA_ARRAY,
    SCHEMA_OBJECT,
} SchemaApplies;

typedef struct SchemaKeyword {
    Str name;
    SchemaApplies applies;
    ErrCode (*parse)(SchemaParser *p, SchemaRule *rule, Error *err);
    bool (*eval)(const SchemaRule *rule, SchemaValue value, SchemaRun *run);
    /* Appends the members after operatorName to the report of a rule that a value does not fit. */
    void (*explain)(const SchemaRule *rule, SchemaValue value, DocBuilder *b);
} SchemaKeyword;

/* One of several schemas of a rule. */
typedef struct SchemaEntry {
    Str name;                 /* of the property; none for items and allOf and its kin */
    const MatchRegex *regex;  /* patternProperties */
    const JsonSchema *schema; /* NULL: `names` */
    Doc names;                /* dependencies: an array of names */
} SchemaEntry;

/* Names and where they stand in a list: with it a document of many fields meets a schema of many
 * names in one pass. */
typedef struct SchemaNames {
    uint32_t *slots; /* position + 1; 0: free. NULL: the list is short, look through it */
    uint32_t mask;
} SchemaNames;

struct SchemaRule {
    const SchemaKeyword *keyword;
    const JsonSchema *owner;
    Elem spec;      /* the keyword's element */
    Elem exclusive; /* minimum, maximum: exclusiveMinimum or exclusiveMaximum, when given */
    uint32_t type_set;
    int64_t count; /* minLength and its kin; -1: no limit */
    bool flag;     /* uniqueItems; bounds: is exclusive; additional...: may be anything */
    const MatchRegex *regex;
    const JsonSchema *schema; /* the only one; NULL: none */
    SchemaEntry *entries;
    uint32_t entry_count;
    SchemaNames names; /* of entries */
};

struct JsonSchema {
    Doc spec;
    Elem title;
    Elem description;
    SchemaRule *rules;
    uint32_t rule_count;
};

/* Fails with ERR_FAILED_TO_PARSE, ERR_TYPE_MISMATCH and ERR_BAD_VALUE for malformed schemas. */
ErrCode schema_parse(SchemaParser *p, Doc spec, JsonSchema **ret_schema, Error *err) MUST_CHECK;
bool schema_fits(const JsonSchema *schema, SchemaValue value, SchemaRun *run);
/* For a value that does not fit: appends one document per broken rule to the open array. */
void schema_explain(const JsonSchema *schema, SchemaValue value, DocBuilder *b);

bool schema_rule_fits(const SchemaRule *rule, SchemaValue value, SchemaRun *run);
/* To be called when the entries of a rule have their names. */
void schema_index_names(SchemaRule *rule, Arena *arena);
/* The entry of that name, or NULL. */
const SchemaEntry *schema_find_entry(const SchemaRule *rule, Str name);

/* Calls `visit` for each of the names (an array of strings) that is no field of the document, until
 * it returns true; returns that. */
bool schema_visit_missing(Doc doc, Doc names, bool (*visit)(void *ctx, Elem name), void *ctx);

/* Does the object have what the entry of `dependencies` asks of it? */
bool schema_dependency_fits(const SchemaEntry *entry, SchemaValue value);

/* The rule of that keyword in the same schema, or NULL. */
const SchemaRule *schema_sibling(const SchemaRule *rule, Str keyword);
/* Is the name told by properties or patternProperties of the same schema? */
bool schema_is_known_property(const SchemaRule *rule, Elem property, SchemaRun *run);
/* Items that `items` lists one by one: those after it are additional. UINT32_MAX: none are. */
uint32_t schema_listed_items(const SchemaRule *rule);
/* Equality by value in which the order of fields does not count. */
bool schema_values_equal(SchemaValue a, SchemaValue b);
/* An item of the array that occurs twice, or the missing element. */
Elem schema_find_duplicate(Doc array);

/* $jsonSchema as a judge of documents; `operand` is its element. */
ErrCode json_schema_new(Elem operand, Arena *arena, MatchCustom **ret_custom, Error *err)
    MUST_CHECK;

#define SCHEMA_KEYWORD(name, applies, parse, eval, explain)                                        \
    ErrCode schema_parse_##parse(SchemaParser *p, SchemaRule *rule, Error *err);                   \
    bool schema_eval_##eval(const SchemaRule *rule, SchemaValue value, SchemaRun *run);            \
    void schema_explain_##explain(const SchemaRule *rule, SchemaValue value, DocBuilder *b);
#include "query/match/json_schema_keywords.def"
#undef SCHEMA_KEYWORD

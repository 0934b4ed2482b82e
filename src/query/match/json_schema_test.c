/*
 * json_schema_test.c - $jsonSchema: which documents fit, which schemas are refused, what is told.
 */
#include "query/match/json_schema.h"

#include "base/test.h"
#include "bson/json_docs_test.h"

typedef struct FitCase {
    const char *schema;
    const char *doc;
    bool fits;
} FitCase;

static const FitCase FITS[] = {
    {"{}", "{'a': 1}", true},
    {"{'bsonType': 'object'}", "{}", true},
    {"{'type': 'array'}", "{}", false},
    {"{'required': ['a', 'b']}", "{'a': 1, 'b': null}", true},
    {"{'required': ['a', 'b']}", "{'a': 1}", false},
    {"{'properties': {'a': {'bsonType': 'int'}}}", "{'a': 1}", true},
    {"{'properties': {'a': {'bsonType': 'int'}}}", "{'a': 1.5}", false},
    {"{'properties': {'a': {'bsonType': 'int'}}}", "{}", true},
    {"{'properties': {'a': {'bsonType': 'int'}}}", "{'a': [1]}", false},
    {"{'properties': {'a': {'bsonType': ['int', 'string']}}}", "{'a': 'x'}", true},
    {"{'properties': {'a': {'bsonType': 'number'}}}", "{'a': {'$numberDecimal': '1'}}", true},
    {"{'properties': {'a': {'type': 'boolean'}}}", "{'a': true}", true},
    {"{'properties': {'a': {'type': ['null', 'number']}}}", "{'a': 'x'}", false},
    {"{'properties': {'a': {'bsonType': 'minKey'}}}", "{'a': {'$minKey': 1}}", true},
    {"{'properties': {'a': {'minimum': 3}}}", "{'a': 3}", true},
    {"{'properties': {'a': {'minimum': 3}}}", "{'a': 2.5}", false},
    {"{'properties': {'a': {'minimum': 3}}}", "{'a': 'x'}", true},
    {"{'properties': {'a': {'minimum': 3, 'exclusiveMinimum': true}}}", "{'a': 3}", false},
    {"{'properties': {'a': {'maximum': 3}}}", "{'a': 3}", true},
    {"{'properties': {'a': {'maximum': 3, 'exclusiveMaximum': true}}}", "{'a': 3}", false},
    {"{'properties': {'a': {'maximum': 3}}}", "{'a': {'$numberDouble': 'NaN'}}", false},
    {"{'properties': {'a': {'multipleOf': 3}}}", "{'a': 9}", true},
    {"{'properties': {'a': {'multipleOf': 3}}}", "{'a': 10}", false},
    {"{'properties': {'a': {'multipleOf': 0.1}}}", "{'a': 0.3}", true},
    {"{'properties': {'a': {'multipleOf': 0.01}}}", "{'a': 0.125}", false},
    {"{'properties': {'a': {'multipleOf': 7}}}", "{'a': 700}", true},
    {"{'properties': {'a': {'multipleOf': 30}}}", "{'a': 3}", false},
    {"{'properties': {'a': {'multipleOf': 3}}}", "{'a': {'$numberDecimal': '3E+400'}}", true},
    {"{'properties': {'a': {'multipleOf': 2.5}}}", "{'a': {'$numberDecimal': '1E+30'}}", true},
    {"{'properties': {'a': {'multipleOf': 3}}}", "{'a': {'$numberDouble': 'Infinity'}}", false},
    {"{'properties': {'a': {'minLength': 2}}}", "{'a': 'éé'}", true},
    {"{'properties': {'a': {'minLength': 3}}}", "{'a': 'éé'}", false},
    {"{'properties': {'a': {'maxLength': 2}}}", "{'a': 'éé'}", true},
    {"{'properties': {'a': {'maxLength': 1}}}", "{'a': 'éé'}", false},
    {"{'properties': {'a': {'pattern': '^x.z$'}}}", "{'a': 'xyz'}", true},
    {"{'properties': {'a': {'pattern': '^x.z$'}}}", "{'a': 'xy'}", false},
    {"{'properties': {'a': {'pattern': '^x'}}}", "{'a': 5}", true},
    {"{'properties': {'a': {'enum': [1, 'x', {'p': 1, 'q': 2}]}}}", "{'a': {'q': 2, 'p': 1}}",
     true},
    {"{'properties': {'a': {'enum': [1, 'x']}}}", "{'a': 1.0}", true},
    {"{'properties': {'a': {'enum': [1, 'x']}}}", "{'a': 'X'}", false},
    {"{'properties': {'a': {'enum': [[1, 2]]}}}", "{'a': [1, 2]}", true},
    {"{'properties': {'a': {'enum': [1]}}}", "{'a': [1]}", false},
    {"{'properties': {'a': {'minItems': 2}}}", "{'a': [1]}", false},
    {"{'properties': {'a': {'maxItems': 1}}}", "{'a': [1, 2]}", false},
    {"{'properties': {'a': {'uniqueItems': true}}}", "{'a': [1, 2, 1.0]}", false},
    {"{'properties': {'a': {'uniqueItems': true}}}",
     "{'a': [{'p': 1, 'q': [2]}, {'q': [2.0], 'p': 1}]}", false},
    {"{'properties': {'a': {'uniqueItems': true}}}", "{'a': [[1, 2], [2, 1]]}", true},
    {"{'properties': {'a': {'uniqueItems': false}}}", "{'a': [1, 1]}", true},
    {"{'properties': {'a': {'items': {'type': 'number'}}}}", "{'a': [1, 2]}", true},
    {"{'properties': {'a': {'items': {'type': 'number'}}}}", "{'a': [1, 'x']}", false},
    {"{'properties': {'a': {'items': {'type': 'number'}}}}", "{'a': 'no array'}", true},
    {"{'properties': {'a': {'items': [{'type': 'number'}, {'type': 'string'}]}}}", "{'a': [1]}",
     true},
    {"{'properties': {'a': {'items': [{'type': 'number'}]}}}", "{'a': [1, 'x']}", true},
    {"{'properties': {'a': {'items': [{'type': 'number'}], 'additionalItems': false}}}",
     "{'a': [1, 'x']}", false},
    {"{'properties': {'a': {'items': [{}], 'additionalItems': {'type': 'string'}}}}",
     "{'a': [1, 'x']}", true},
    {"{'properties': {'a': {'items': [{}], 'additionalItems': {'type': 'string'}}}}",
     "{'a': [1, 'x', 2]}", false},
    {"{'properties': {'a': {'items': {}, 'additionalItems': false}}}", "{'a': [1, 2]}", true},
    {"{'patternProperties': {'^s': {'type': 'string'}}}", "{'s1': 'x', 't': 1}", true},
    {"{'patternProperties': {'^s': {'type': 'string'}}}", "{'s1': 'x', 's2': 1}", false},
    {"{'properties': {'a': {}}, 'additionalProperties': false}", "{'a': 1}", true},
    {"{'properties': {'a': {}}, 'additionalProperties': false}", "{'a': 1, 'b': 1}", false},
    {"{'properties': {'a': {}}, 'patternProperties': {'^b': {}}, 'additionalProperties': false}",
     "{'a': 1, 'bb': 1}", true},
    {"{'additionalProperties': {'type': 'number'}}", "{'a': 1}", true},
    {"{'additionalProperties': {'type': 'number'}}", "{'a': 'x'}", false},
    {"{'minProperties': 2}", "{'a': 1}", false},
    {"{'maxProperties': 1}", "{'a': 1, 'b': 2}", false},
    {"{'dependencies': {'a': ['b']}}", "{'a': 1}", false},
    {"{'dependencies': {'a': ['b']}}", "{'b': 1}", true},
    {"{'dependencies': {'a': {'required': ['c']}}}", "{'a': 1}", false},
    {"{'dependencies': {'a': {'required': ['c']}}}", "{'a': 1, 'c': 1}", true},
    {"{'allOf': [{'required': ['a']}, {'required': ['b']}]}", "{'a': 1}", false},
    {"{'anyOf': [{'required': ['a']}, {'required': ['b']}]}", "{'a': 1}", true},
    {"{'anyOf': [{'required': ['a']}, {'required': ['b']}]}", "{'c': 1}", false},
    {"{'oneOf': [{'required': ['a']}, {'required': ['b']}]}", "{'a': 1}", true},
    {"{'oneOf': [{'required': ['a']}, {'required': ['b']}]}", "{'a': 1, 'b': 1}", false},
    {"{'not': {'required': ['a']}}", "{'a': 1}", false},
    {"{'not': {'required': ['a']}}", "{'b': 1}", true},
    {"{'title': 't', 'description': 'd'}", "{}", true},
    {"{'properties': {'a': {'properties': {'b': {'minimum': 1}}}}}", "{'a': {'b': 0}}", false},
    {"{'properties': {'a': {'properties': {'b': {'minimum': 1}}}}}", "{'a': [{'b': 0}]}", true},
};

static ErrCode parse(const char *schema, Arena *arena, MatchExpr **ret_expr, Error *err) {
    MatchParseContext ctx = {0};
    Doc filter = test_doc(arena_printf(arena, "{'$jsonSchema': %s}", schema), arena);
    return match_parse(filter, &ctx, arena, ret_expr, err);
}

TEST(json_schema_tells_fitting_documents) {
    for (size_t i = 0; i < ARRAY_LEN(FITS); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        MatchExpr *expr = NULL;
        if (parse(FITS[i].schema, &arena, &expr, &err) != ERR_OK)
            test_fail(__FILE__, __LINE__, "%s: %s", FITS[i].schema, error_message(&err));
        else if (match_doc(expr, test_doc(FITS[i].doc, &arena), NULL) != FITS[i].fits)
            test_fail(__FILE__, __LINE__, "%s on %s is not %d", FITS[i].schema, FITS[i].doc,
                      FITS[i].fits);
        arena_done(&arena);
    }
}

static const struct {
    const char *schema;
    int code;
    const char *message; /* a part of it */
} REFUSED[] = {
    {"1", ERR_TYPE_MISMATCH, "$jsonSchema must be an object"},
    {"{'foo': 1}", ERR_FAILED_TO_PARSE, "Unknown $jsonSchema keyword: foo"},
    {"{'properties': {'a': {'bar': 1}}}", ERR_FAILED_TO_PARSE, "Unknown $jsonSchema keyword: bar"},
    {"{'format': 'email'}", ERR_FAILED_TO_PARSE, "'format' is not currently supported"},
    {"{'default': 1}", ERR_FAILED_TO_PARSE, "not currently supported"},
    {"{'id': 'x'}", ERR_FAILED_TO_PARSE, "not currently supported"},
    {"{'encrypt': {}}", ERR_NOT_IMPLEMENTED, "'encrypt'"},
    {"{'type': 'integer'}", ERR_FAILED_TO_PARSE, "'integer' is not currently supported"},
    {"{'type': 'int'}", ERR_BAD_VALUE, "Unknown type name alias: int"},
    {"{'bsonType': 'foo'}", ERR_BAD_VALUE, "Unknown type name alias: foo"},
    {"{'bsonType': 16}", ERR_TYPE_MISMATCH, "'bsonType'"},
    {"{'bsonType': []}", ERR_FAILED_TO_PARSE, "at least one"},
    {"{'bsonType': ['int', 'int']}", ERR_FAILED_TO_PARSE, "duplicate"},
    {"{'bsonType': 'int', 'type': 'number'}", ERR_FAILED_TO_PARSE, "both"},
    {"{'minimum': 'x'}", ERR_TYPE_MISMATCH, "'minimum'"},
    {"{'exclusiveMinimum': true}", ERR_FAILED_TO_PARSE, "'minimum'"},
    {"{'minimum': 1, 'exclusiveMinimum': 1}", ERR_TYPE_MISMATCH, "'exclusiveMinimum'"},
    {"{'multipleOf': 0}", ERR_FAILED_TO_PARSE, "positive"},
    {"{'multipleOf': -1}", ERR_FAILED_TO_PARSE, "positive"},
    {"{'minLength': -1}", ERR_FAILED_TO_PARSE, "non-negative"},
    {"{'minLength': 1.5}", ERR_FAILED_TO_PARSE, "integer"},
    {"{'maxItems': 'x'}", ERR_TYPE_MISMATCH, "'maxItems'"},
    {"{'pattern': 1}", ERR_TYPE_MISMATCH, "'pattern'"},
    {"{'pattern': '('}", 51091, ""},
    {"{'patternProperties': {'(': {}}}", 51091, ""},
    {"{'required': 'a'}", ERR_TYPE_MISMATCH, "'required'"},
    {"{'required': []}", ERR_FAILED_TO_PARSE, "empty"},
    {"{'required': ['a', 'a']}", ERR_FAILED_TO_PARSE, "duplicate"},
    {"{'required': [1]}", ERR_TYPE_MISMATCH, "strings"},
    {"{'enum': []}", ERR_FAILED_TO_PARSE, "empty"},
    {"{'enum': [1, 1.0]}", ERR_FAILED_TO_PARSE, "duplicate"},
    {"{'enum': 1}", ERR_TYPE_MISMATCH, "array"},
    {"{'properties': 1}", ERR_TYPE_MISMATCH, "'properties'"},
    {"{'properties': {'a': 1}}", ERR_TYPE_MISMATCH, "property 'a' must be an object"},
    {"{'additionalProperties': 1}", ERR_TYPE_MISMATCH, "object or a boolean"},
    {"{'uniqueItems': 1}", ERR_TYPE_MISMATCH, "boolean"},
    {"{'items': 1}", ERR_TYPE_MISMATCH, "'items'"},
    {"{'items': [1]}", ERR_TYPE_MISMATCH, "must be an object"},
    {"{'allOf': []}", ERR_BAD_VALUE, "non-empty"},
    {"{'allOf': {}}", ERR_TYPE_MISMATCH, "array"},
    {"{'oneOf': [1]}", ERR_TYPE_MISMATCH, "must be an object"},
    {"{'not': []}", ERR_TYPE_MISMATCH, "object"},
    {"{'dependencies': {'a': []}}", ERR_FAILED_TO_PARSE, "empty"},
    {"{'dependencies': {'a': 1}}", ERR_TYPE_MISMATCH, "object"},
    {"{'title': 1}", ERR_TYPE_MISMATCH, "'title'"},
};

TEST(json_schema_refuses_malformed_schemas) {
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        MatchExpr *expr = NULL;
        int rc = (int)parse(REFUSED[i].schema, &arena, &expr, &err);
        if (rc != REFUSED[i].code || strstr(error_message(&err), REFUSED[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d \"%s\"", REFUSED[i].schema, rc,
                      error_message(&err));
        arena_done(&arena);
    }
}

TEST(json_schema_depth_is_bounded) {
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0};
    DocBuilder b = doc_builder_in_arena_sized(&arena, 4096);
    size_t opened[MATCH_DEPTH_MAX + 1];
    for (size_t i = 0; i < ARRAY_LEN(opened); i++)
        opened[i] = build_open_doc(&b, i == 0 ? "$jsonSchema" : "not");
    for (size_t i = ARRAY_LEN(opened); i-- > 0;)
        build_close(&b, opened[i]);
    MatchParseContext ctx = {0};
    MatchExpr *expr = NULL;
    EXPECT(match_parse(doc_builder_end(&b), &ctx, &arena, &expr, &err) == ERR_BAD_VALUE);
    arena_done(&arena);
}

TEST(json_schemas_of_many_names_are_judged_in_one_pass) {
    /* Goal: a hundred thousand names meet as many fields in time that is worth waiting for.
     * Method: one document that is schema of properties, list of requirements and value at once. */
    Arena arena;
    arena_init(&arena, 1 << 20);
    CLEANUP(error_reset) Error err = {0};
    enum { NAMES = 100000 };
    Buffer buf, doc_buf;
    buffer_init_arena(&buf, &arena, 1 << 22, BUFFER_UNBOUNDED);
    buffer_init_arena(&doc_buf, &arena, 1 << 22, BUFFER_UNBOUNDED);
    DocBuilder b, d;
    doc_builder_init(&b, &buf);
    doc_builder_init(&d, &doc_buf);
    size_t schema = build_open_doc(&b, "$jsonSchema");
    size_t properties = build_open_doc(&b, "properties");
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        size_t opened = build_open_doc(&b, name);
        build_cstr(&b, "type", "number");
        build_close(&b, opened);
        build_i32(&d, name, i);
    }
    build_close(&b, properties);
    build_bool(&b, "additionalProperties", false);
    size_t required = build_open_array(&b, "required");
    for (int i = 0; i < NAMES; i++) {
        char name[16], position[INDEX_NAME_SIZE];
        snprintf(name, sizeof(name), "n%d", i);
        build_cstr(&b, index_name((uint32_t)i, position).data, name);
    }
    build_close(&b, required);
    build_close(&b, schema);
    Doc filter = doc_builder_end(&b), doc = doc_builder_end(&d);
    MatchParseContext ctx = {0};
    MatchExpr *expr = NULL;
    REQUIRE_OK(match_parse(filter, &ctx, &arena, &expr, &err), err);
    EXPECT(match_doc(expr, doc, NULL));
    EXPECT(!match_doc(expr, test_doc("{'n1': 1}", &arena), NULL));
    EXPECT(!match_doc(expr, test_doc("{'n1': 'x'}", &arena), NULL));
    arena_done(&arena);
}

/* ---- what is told of failures ---- */

static const struct {
    const char *filter;
    const char *doc;
    const char *told;
} TOLD[] = {
    {"{'a': {'$gt': 5}}", "{'a': 3}",
     "{ operatorName: \"$gt\", specifiedAs: { a: { $gt: 5 } }, reason: \"comparison failed\", "
     "consideredValue: 3 }"},
    {"{'a': 5}", "{}",
     "{ operatorName: \"$eq\", specifiedAs: { a: 5 }, reason: \"field was missing\" }"},
    {"{'a': {'$lt': 1}}", "{'a': [1, 2]}",
     "{ operatorName: \"$lt\", specifiedAs: { a: { $lt: 1 } }, reason: \"comparison failed\", "
     "consideredValues: [ 1, 2, [ 1, 2 ] ] }"},
    {"{'a': {'$ne': 5}}", "{'a': 5}",
     "{ operatorName: \"$ne\", specifiedAs: { a: { $ne: 5 } }, reason: \"comparison succeeded\", "
     "consideredValue: 5 }"},
    {"{'a': {'$nin': [6, 5]}}", "{'a': 5}",
     "{ operatorName: \"$nin\", specifiedAs: { a: { $nin: [ 6, 5 ] } }, reason: \"matching value "
     "found in array\", consideredValue: 5 }"},
    {"{'a': {'$exists': false}}", "{'a': 5}",
     "{ operatorName: \"$exists\", specifiedAs: { a: { $exists: false } }, reason: \"path does "
     "exist\" }"},
    {"{'a': {'$exists': true}}", "{}",
     "{ operatorName: \"$exists\", specifiedAs: { a: { $exists: true } }, reason: \"path does not "
     "exist\" }"},
    {"{'a': {'$not': {'$gt': 1}}}", "{'a': 5}",
     "{ operatorName: \"$not\", details: { operatorName: \"$gt\", specifiedAs: { a: { $gt: 1 } }, "
     "reason: \"comparison succeeded\", consideredValue: 5 } }"},
    {"{'a': 1, 'b': 2}", "{'a': 1, 'b': 3}",
     "{ operatorName: \"$and\", clausesNotSatisfied: [ { index: 1, details: { operatorName: "
     "\"$eq\", specifiedAs: { b: 2 }, reason: \"comparison failed\", consideredValue: 3 } "
     "} ] }"},
    {"{'$nor': [{'a': 1}, {'b': 1}]}", "{'a': 2, 'b': 1}",
     "{ operatorName: \"$nor\", clausesSatisfied: [ { index: 1, details: { operatorName: \"$eq\", "
     "specifiedAs: { b: 1 }, reason: \"comparison succeeded\", consideredValue: 1 } } ] "
     "}"},
    {"{'$jsonSchema': {'required': ['a', 'b'], 'properties': {'a': {'bsonType': 'string', "
     "'description': 'must be text'}}}}",
     "{'a': 5}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"properties\", "
     "propertiesNotSatisfied: [ { propertyName: \"a\", description: \"must be text\", details: [ { "
     "operatorName: \"bsonType\", specifiedAs: { bsonType: \"string\" }, reason: \"type did not "
     "match\", consideredValue: 5, consideredType: \"int\" } ] } ] }, { operatorName: "
     "\"required\", "
     "specifiedAs: { required: [ \"a\", \"b\" ] }, missingProperties: [ \"b\" ] } ] }"},
    {"{'$jsonSchema': {'properties': {'a': {'minimum': 3, 'exclusiveMinimum': true}}}}", "{'a': 3}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"properties\", "
     "propertiesNotSatisfied: [ { propertyName: \"a\", details: [ { operatorName: \"minimum\", "
     "specifiedAs: { minimum: 3, exclusiveMinimum: true }, reason: \"comparison failed\", "
     "consideredValue: 3 } ] } ] } ] }"},
    {"{'$jsonSchema': {'properties': {'a': {}}, 'additionalProperties': false}}",
     "{'a': 3, 'x': 1, 'y': 1}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: "
     "\"additionalProperties\", specifiedAs: { additionalProperties: false }, "
     "additionalProperties: [ \"x\", \"y\" ] } ] }"},
    {"{'$jsonSchema': {'properties': {'a': {'items': {'type': 'number'}}}}}", "{'a': [1, 'x']}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"properties\", "
     "propertiesNotSatisfied: [ { propertyName: \"a\", details: [ { operatorName: \"items\", "
     "reason: \"At least one item did not match the sub-schema\", itemIndex: 1, details: [ { "
     "operatorName: \"type\", specifiedAs: { type: \"number\" }, reason: \"type did not match\", "
     "consideredValue: \"x\", consideredType: \"string\" } ] } ] } ] } ] }"},
    {"{'$jsonSchema': {'oneOf': [{'required': ['a']}, {'required': ['b']}]}}", "{'a': 1, 'b': 1}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"oneOf\", "
     "reason: \"more than one subschema matched\", matchingSchemaIndexes: [ 0, 1 ] } ] }"},
    {"{'$jsonSchema': {'anyOf': [{'required': ['a']}]}}", "{}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"anyOf\", "
     "schemasNotSatisfied: [ { index: 0, details: [ { operatorName: \"required\", specifiedAs: { "
     "required: [ \"a\" ] }, missingProperties: [ \"a\" ] } ] } ] } ] }"},
    {"{'$jsonSchema': {'dependencies': {'a': ['b', 'c']}}}", "{'a': 1, 'c': 1}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: "
     "\"dependencies\", failingDependencies: [ { conditionalProperty: \"a\", missingProperties: [ "
     "\"b\" ] } ] } ] }"},
    {"{'$jsonSchema': {'not': {'required': ['a']}}}", "{'a': 1}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"not\", reason: "
     "\"child expression matched\" } ] }"},
    {"{'$jsonSchema': {'properties': {'a': {'uniqueItems': true}}}}", "{'a': [1, 1]}",
     "{ operatorName: \"$jsonSchema\", schemaRulesNotSatisfied: [ { operatorName: \"properties\", "
     "propertiesNotSatisfied: [ { propertyName: \"a\", details: [ { operatorName: \"uniqueItems\", "
     "specifiedAs: { uniqueItems: true }, reason: \"found a duplicate item\", consideredValue: [ "
     "1, "
     "1 ], duplicatedValue: 1 } ] } ] } ] }"},
};

TEST(failures_are_told_operator_by_operator) {
    for (size_t i = 0; i < ARRAY_LEN(TOLD); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        CLEANUP(error_reset) Error err = {0};
        MatchParseContext ctx = {0};
        MatchExpr *expr = NULL;
        EXPECT_OK(match_parse(test_doc(TOLD[i].filter, &arena), &ctx, &arena, &expr, &err), err);
        Doc doc = test_doc(TOLD[i].doc, &arena);
        EXPECT(expr != NULL && !match_doc(expr, doc, NULL));
        Buffer buf;
        buffer_init_arena(&buf, &arena, 1024, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        match_explain_failure(expr, doc, &b);
        EXPECT_STR(shell_text_of_doc(doc_builder_end(&b), &arena), TOLD[i].told);
        arena_done(&arena);
    }
}

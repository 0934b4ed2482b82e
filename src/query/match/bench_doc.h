/*
 * bench_doc.h - the document of the benchmarks of filters and updates: ten fields, about 300 bytes,
 * the field "x" in the middle.
 */
#pragma once

#include "bson/json.h"

static inline Doc bench_doc(Arena *arena) {
    Doc doc = DOC_EMPTY;
    Error err = {0};
    ErrCode rc =
        doc_from_json("{'_id': {'$oid': '0102030405060708090a0b0c'}, 'name': 'a name of "
                      "thirty-two characters...', 'address': 'some street, some town, some "
                      "country, some planet', 'created': {'$date': {'$numberLong': "
                      "'1700000000000'}}, 'x': 100, 's': 'abc', 'tags': ['red', 'green', "
                      "'blue'], 'sub': {'a': 1, 'b': 2}, 'text': 'and another text of about "
                      "fifty characters to fill up', 'last': 7.5}",
                      arena, &doc, &err);
    invariant(rc == ERR_OK);
    return doc;
}

#include "bson/optime.h"

#include "bson/number.h"

void build_optime(DocBuilder *b, const char *name, OpTime optime) {
    size_t opened = build_open_doc(b, name);
    build_timestamp(b, "ts", optime.ts);
    build_i64(b, "t", optime.term);
    build_close(b, opened);
}

bool optime_from_elem(Elem elem, OpTime *ret_optime) {
    if (elem_type(elem) != BT_DOC)
        return false;
    Elem ts = doc_get_lit(elem_doc(elem), "ts");
    Elem term = doc_get_lit(elem_doc(elem), "t");
    if (elem_type(ts) != BT_TIMESTAMP || !elem_is_number(term))
        return false;
    *ret_optime = (OpTime){(uint64_t)elem_i64(ts), elem_as_i64(term)};
    return true;
}

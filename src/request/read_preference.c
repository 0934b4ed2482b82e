#include "request/read_preference.h"

static const char *const MODE_NAMES[] = {
    [READ_MODE_PRIMARY] = "primary",     [READ_MODE_PRIMARY_PREFERRED] = "primaryPreferred",
    [READ_MODE_SECONDARY] = "secondary", [READ_MODE_SECONDARY_PREFERRED] = "secondaryPreferred",
    [READ_MODE_NEAREST] = "nearest",
};

const char *read_mode_name(ReadMode mode) {
    return MODE_NAMES[mode];
}

static ErrCode parse_mode(Elem elem, ReadMode *ret_mode, Error *err) {
    if (elem_type(elem) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "$readPreference needs a string 'mode'");
    for (size_t mode = 0; mode < ARRAY_LEN(MODE_NAMES); mode++)
        if (str_is(elem_str(elem), MODE_NAMES[mode])) {
            *ret_mode = (ReadMode)mode;
            return ERR_OK;
        }
    return error_set(err, ERR_FAILED_TO_PARSE, "unknown mode of $readPreference: '%.*s'",
                     (int)elem_str(elem).size, elem_str(elem).data);
}

/* [{name: "value", ...}, ...]; without any set, or with one that everybody fits alone, it means the
 * same as none. */
static ErrCode parse_tags(Elem elem, Doc *ret_tags, Error *err) {
    if (elem_type(elem) != BT_ARRAY)
        return error_set(err, ERR_TYPE_MISMATCH, "tags of $readPreference must be an array");
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem set; doc_iter_next(&iter, &set);)
        if (elem_type(set) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "tags of $readPreference must be documents, one per tag set");
    Doc sets = elem_doc(elem);
    Elem first = doc_get_lit(sets, "0");
    bool is_none = doc_is_empty(sets) || (doc_count(sets) == 1 && elem_type(first) == BT_DOC &&
                                          doc_is_empty(elem_doc(first)));
    if (!is_none)
        *ret_tags = sets;
    return ERR_OK;
}

static ErrCode parse_staleness(Elem elem, int64_t *ret_secs, Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "maxStalenessSeconds of $readPreference must be a number");
    int64_t secs = elem_as_i64(elem);
    if (secs < 0 || secs > INT32_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "maxStalenessSeconds of $readPreference cannot be %lld", (long long)secs);
    if (secs != 0 && secs < STALENESS_SECS_MIN)
        return error_set(err, ERR_MAX_STALENESS_OUT_OF_RANGE,
                         "maxStalenessSeconds of $readPreference must be at least %d",
                         STALENESS_SECS_MIN);
    *ret_secs = secs;
    return ERR_OK;
}

ErrCode read_preference_parse(Elem elem, ReadPreference *ret_preference, Error *err) {
    ReadPreference preference = READ_PREFERENCE_PRIMARY;
    *ret_preference = preference;
    if (!elem_is_present(elem))
        return ERR_OK;
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "$readPreference must be a document");
    Doc doc = elem_doc(elem);
    TRY(parse_mode(doc_get_lit(doc, "mode"), &preference.mode, err));
    Elem tags = doc_get_lit(doc, "tags");
    if (elem_is_present(tags))
        TRY(parse_tags(tags, &preference.tags, err));
    Elem staleness = doc_get_lit(doc, "maxStalenessSeconds");
    if (elem_is_present(staleness))
        TRY(parse_staleness(staleness, &preference.staleness_secs, err));
    bool is_restricted = doc_is_present(preference.tags) || preference.staleness_secs != 0;
    if (preference.mode == READ_MODE_PRIMARY && is_restricted)
        return error_set(err, ERR_BAD_VALUE,
                         "tags and maxStalenessSeconds cannot be used with the mode 'primary'");
    *ret_preference = preference;
    return ERR_OK;
}

void read_preference_build(DocBuilder *b, const char *name, const ReadPreference *preference) {
    size_t opened = build_open_doc(b, name);
    build_cstr(b, "mode", MODE_NAMES[preference->mode]);
    if (doc_is_present(preference->tags))
        build_array(b, "tags", preference->tags);
    if (preference->staleness_secs != 0)
        build_i64(b, "maxStalenessSeconds", preference->staleness_secs);
    build_close(b, opened);
}

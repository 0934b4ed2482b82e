#include "bson/collator.h"

#include <stdatomic.h>
#include <unicode/ucol.h>
#include <unicode/uloc.h>
#include <unicode/ustring.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "bson/builder.h"
#include "bson/json.h"

enum {
    ERR_INCOMPATIBLE_COLLATION_VERSION = 161,
    ERR_MISSING_FIELD = 40414,
    ERR_UNKNOWN_FIELD = 40415,
    TEXT_UNITS_INLINE = 256, /* UTF-16 units of a text that need no allocation */
    LOCALE_SIZE_MAX = 128,
    BUCKETS = 256,
};

typedef struct IcuCollator {
    Collator base; /* spec in its own allocation */
    UCollator *icu;
} IcuCollator;

/* One remembered document; lists only grow, at their head. */
typedef struct Spelling {
    const struct Spelling *next;
    uint64_t hash;
    Doc spec; /* own allocation */
    const Collator *collator;
} Spelling;

typedef struct SpellingTable {
    _Atomic(const Spelling *) heads[BUCKETS]; /* release on push, acquire on walk */
    _Atomic uint32_t count;
} SpellingTable;

/* Kept for the life of the process: a cache, not state. Complete documents identify a collator;
 * documents as clients write them only find it faster. */
static SpellingTable complete_specs;
static SpellingTable given_specs;

typedef enum FieldType { FIELD_TEXT, FIELD_BOOLEAN, FIELD_INTEGER } FieldType;

typedef struct FieldRow {
    Str name;
    FieldType type;
    ErrCode (*apply)(Elem elem, UCollator *icu, Error *err);
} FieldRow;

static ErrCode apply_nothing(Elem elem, UCollator *icu, Error *err);
static ErrCode apply_boolean(Elem elem, UCollator *icu, Error *err);
static ErrCode apply_case_first(Elem elem, UCollator *icu, Error *err);
static ErrCode apply_strength(Elem elem, UCollator *icu, Error *err);
static ErrCode apply_alternate(Elem elem, UCollator *icu, Error *err);
static ErrCode apply_max_variable(Elem elem, UCollator *icu, Error *err);
static ErrCode apply_version(Elem elem, UCollator *icu, Error *err);

static const FieldRow FIELDS[] = {
    {STR("locale"), FIELD_TEXT, apply_nothing},
    {STR("caseLevel"), FIELD_BOOLEAN, apply_boolean},
    {STR("caseFirst"), FIELD_TEXT, apply_case_first},
    {STR("strength"), FIELD_INTEGER, apply_strength},
    {STR("numericOrdering"), FIELD_BOOLEAN, apply_boolean},
    {STR("alternate"), FIELD_TEXT, apply_alternate},
    {STR("maxVariable"), FIELD_TEXT, apply_max_variable},
    {STR("normalization"), FIELD_BOOLEAN, apply_boolean},
    {STR("backwards"), FIELD_BOOLEAN, apply_boolean},
    {STR("version"), FIELD_TEXT, apply_version},
};

/* What the fields of one word are in ICU. */
static const struct {
    const char *name;
    UColAttributeValue value;
} CASE_FIRST[] = {{"off", UCOL_OFF}, {"upper", UCOL_UPPER_FIRST}, {"lower", UCOL_LOWER_FIRST}};

static ErrCode open_icu(Doc spec, Str locale, UCollator **ret_icu, Error *err);
static ErrCode check_types(Doc spec, Error *err);
static ErrCode check_locale(Doc spec, Str locale, const UCollator *icu, Error *err);
static ErrCode check_together(const UCollator *icu, Error *err);
static Doc build_complete(Str locale, const UCollator *icu, Buffer *buf);
static ErrCode intern(UCollator *take_icu, Doc spec, const Collator **ret_collator, Error *err);
static uint64_t hash_of(Doc spec);
static const Spelling *find_spelling(SpellingTable *table, uint64_t hash, Doc spec);
static const Spelling *add_spelling(SpellingTable *table, Spelling *spelling);
static int icu_compare(const Collator *base, Str a, Str b);
static void icu_append_sort_key(const Collator *base, Str text, Buffer *out);

ErrCode collator_parse(Doc spec, const Collator **ret_collator, Error *err) {
    uint64_t hash = hash_of(spec);
    const Spelling *known = find_spelling(&given_specs, hash, spec);
    if (LIKELY(known != NULL)) {
        *ret_collator = known->collator;
        return ERR_OK;
    }
    TRY(check_types(spec, err));
    Str locale = elem_str(doc_get_lit(spec, "locale"));
    const Collator *collator = NULL;
    if (str_is(locale, "simple")) {
        if (doc_count(spec) > 1)
            return error_set(err, ERR_BAD_VALUE,
                             "If 'locale' is 'simple', no other options should be set");
    } else {
        UCollator *icu = NULL;
        TRY(open_icu(spec, locale, &icu, err));
        CLEANUP(buffer_done) Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        Doc complete = build_complete(locale, icu, &buf);
        TRY(intern(icu, complete, &collator, err));
    }
    if (atomic_load_explicit(&given_specs.count, memory_order_relaxed) < COLLATION_SPELLINGS_MAX) {
        Spelling *spelling = NEW(Spelling);
        *spelling =
            (Spelling){.hash = hash, .spec = (Doc){doc_copy_heap(spec)}, .collator = collator};
        (void)add_spelling(&given_specs, spelling);
    }
    *ret_collator = collator;
    return ERR_OK;
}

ErrCode collator_parse_elem(Elem spec, const char *field, const Collator **ret_collator,
                            Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s' is the wrong type '%s', expected type 'object'", field,
                         bson_type_name(elem_type(spec)));
    return collator_parse(elem_doc(spec), ret_collator, err);
}

void collator_data_version(const Collator *collator, char out[COLLATOR_VERSION_SIZE]) {
    UVersionInfo version;
    ucol_getVersion(((const IcuCollator *)collator)->icu, version);
    _Static_assert((int)COLLATOR_VERSION_SIZE >= (int)U_MAX_VERSION_STRING_LENGTH,
                   "room for ICU's text");
    u_versionToString(version, out);
}

/* ---- reading the document ---- */

static const FieldRow *find_field(Str name) {
    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++)
        if (str_equal(FIELDS[i].name, name))
            return &FIELDS[i];
    return NULL;
}

static ErrCode wrong_type(Elem elem, const char *expected, Error *err) {
    return error_set(err, ERR_TYPE_MISMATCH,
                     "BSON field 'collation.%s' is the wrong type '%s', expected %s",
                     elem_name(elem), bson_type_name(elem_type(elem)), expected);
}

static ErrCode check_types(Doc spec, Error *err) {
    uint32_t seen = 0;
    DocIter iter = doc_iter(spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const FieldRow *row = find_field(elem_name_str(elem));
        if (row == NULL)
            return error_set(err, (ErrCode)ERR_UNKNOWN_FIELD,
                             "BSON field 'collation.%s' is an unknown field.", elem_name(elem));
        uint32_t bit = UINT32_C(1) << (row - FIELDS);
        if ((seen & bit) != 0)
            return error_set(err, (ErrCode)40413, "BSON field 'collation.%s' is a duplicate field",
                             elem_name(elem));
        seen |= bit;
        bool is_number = elem_is_number(elem);
        if (row->type == FIELD_TEXT && elem_type(elem) != BT_STRING)
            return wrong_type(elem, "type 'string'", err);
        if (row->type == FIELD_INTEGER && !is_number)
            return wrong_type(elem, "types '[long, int, decimal, double]'", err);
        if (row->type == FIELD_BOOLEAN && elem_type(elem) != BT_BOOL && !is_number)
            return wrong_type(elem, "types '[bool, long, int, decimal, double']", err);
    }
    if (!elem_is_present(doc_get_lit(spec, "locale")))
        return error_set(err, (ErrCode)ERR_MISSING_FIELD,
                         "BSON field 'collation.locale' is missing but a required field");
    return ERR_OK;
}

static ErrCode configure(Doc spec, Str locale, UCollator *icu, Error *err) {
    TRY(check_locale(spec, locale, icu, err));
    DocIter iter = doc_iter(spec);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        TRY(find_field(elem_name_str(elem))->apply(elem, icu, err));
    return check_together(icu, err);
}

static ErrCode open_icu(Doc spec, Str locale, UCollator **ret_icu, Error *err) {
    if (locale.size == 0)
        return error_set(err, ERR_BAD_VALUE, "Field 'locale' cannot be the empty string");
    if (locale.size >= LOCALE_SIZE_MAX || str_has_char(locale, '\0'))
        return error_set(err, ERR_BAD_VALUE, "Field 'locale' is invalid in a collation");
    UErrorCode status = U_ZERO_ERROR;
    UCollator *icu = ucol_open(locale.data, &status);
    if (U_FAILURE(status) || icu == NULL)
        return error_set(err, ERR_BAD_VALUE, "Failed to create collator: %s for locale \"%s\"",
                         u_errorName(status), locale.data);
    ErrCode rc = configure(spec, locale, icu, err);
    if (rc != ERR_OK) {
        ucol_close(icu);
        return rc;
    }
    *ret_icu = icu;
    return ERR_OK;
}

/* ICU answers unknown languages with its root collation; that would hide a typing error. */
static ErrCode check_locale(Doc spec, Str locale, const UCollator *icu, Error *err) {
    Arena arena;
    arena_init(&arena, 512);
    ErrCode rc = ERR_OK;
    char canonical[LOCALE_SIZE_MAX];
    UErrorCode status = U_ZERO_ERROR;
    uloc_getName(locale.data, canonical, sizeof(canonical), &status);
    if (U_FAILURE(status) || status == U_STRING_NOT_TERMINATED_WARNING) {
        rc = error_set(err, ERR_BAD_VALUE, "Field 'locale' is invalid in: %s",
                       shell_text_of_doc(spec, &arena));
    } else if (!str_is(locale, canonical)) {
        rc = error_set(err, ERR_BAD_VALUE, "Field 'locale' is invalid in: %s. Did you mean '%s'?",
                       shell_text_of_doc(spec, &arena), canonical);
    } else {
        status = U_ZERO_ERROR;
        const char *valid = ucol_getLocaleByType(icu, ULOC_VALID_LOCALE, &status);
        if (U_FAILURE(status) || valid == NULL || valid[0] == '\0' || strcmp(valid, "root") == 0)
            rc = error_set(err, ERR_BAD_VALUE, "Field 'locale' is invalid in: %s",
                           shell_text_of_doc(spec, &arena));
    }
    arena_done(&arena);
    return rc;
}

static UColAttributeValue attribute(const UCollator *icu, UColAttribute which) {
    UErrorCode status = U_ZERO_ERROR;
    return ucol_getAttribute(icu, which, &status);
}

static void set_attribute(UCollator *icu, UColAttribute which, UColAttributeValue value) {
    UErrorCode status = U_ZERO_ERROR;
    ucol_setAttribute(icu, which, value, &status);
    invariant(U_SUCCESS(status));
}

static ErrCode check_together(const UCollator *icu, Error *err) {
    UColAttributeValue strength = attribute(icu, UCOL_STRENGTH);
    bool has_case_level = attribute(icu, UCOL_CASE_LEVEL) == UCOL_ON;
    if (attribute(icu, UCOL_FRENCH_COLLATION) == UCOL_ON && strength == UCOL_PRIMARY)
        return error_set(err, ERR_BAD_VALUE, "'backwards' is invalid with 'strength' of 1");
    if (attribute(icu, UCOL_CASE_FIRST) != UCOL_OFF && !has_case_level && strength < UCOL_TERTIARY)
        return error_set(
            err, ERR_BAD_VALUE,
            "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2");
    return ERR_OK;
}

static ErrCode bad_enum(Elem elem, Error *err) {
    if (elem_type(elem) == BT_STRING)
        return error_set(err, ERR_BAD_VALUE,
                         "Enumeration value '%s' for field 'collation.%s' is not a valid value.",
                         elem_str(elem).data, elem_name(elem));
    return error_set(err, ERR_BAD_VALUE,
                     "Enumeration value '%lld' for field 'collation.%s' is not a valid value.",
                     (long long)elem_as_i64(elem), elem_name(elem));
}

static ErrCode apply_nothing(Elem elem, UCollator *icu, Error *err) {
    (void)elem, (void)icu, (void)err;
    return ERR_OK;
}

static ErrCode apply_boolean(Elem elem, UCollator *icu, Error *err) {
    (void)err;
    static const struct {
        const char *name;
        UColAttribute attribute;
    } ROWS[] = {{"caseLevel", UCOL_CASE_LEVEL},
                {"numericOrdering", UCOL_NUMERIC_COLLATION},
                {"normalization", UCOL_NORMALIZATION_MODE},
                {"backwards", UCOL_FRENCH_COLLATION}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        if (strcmp(elem_name(elem), ROWS[i].name) == 0)
            set_attribute(icu, ROWS[i].attribute, elem_is_truthy(elem) ? UCOL_ON : UCOL_OFF);
    return ERR_OK;
}

static ErrCode apply_case_first(Elem elem, UCollator *icu, Error *err) {
    for (size_t i = 0; i < ARRAY_LEN(CASE_FIRST); i++) {
        if (str_is(elem_str(elem), CASE_FIRST[i].name)) {
            set_attribute(icu, UCOL_CASE_FIRST, CASE_FIRST[i].value);
            return ERR_OK;
        }
    }
    return bad_enum(elem, err);
}

/* 1..5: primary, secondary, tertiary, quaternary, identical. */
static const UColAttributeValue STRENGTHS[] = {UCOL_PRIMARY, UCOL_SECONDARY, UCOL_TERTIARY,
                                               UCOL_QUATERNARY, UCOL_IDENTICAL};

static ErrCode apply_strength(Elem elem, UCollator *icu, Error *err) {
    int64_t strength = elem_as_i64(elem);
    if (strength < 1 || strength > (int64_t)ARRAY_LEN(STRENGTHS) ||
        elem_as_f64(elem) != (double)strength)
        return bad_enum(elem, err);
    set_attribute(icu, UCOL_STRENGTH, STRENGTHS[strength - 1]);
    return ERR_OK;
}

static ErrCode apply_alternate(Elem elem, UCollator *icu, Error *err) {
    if (str_is(elem_str(elem), "shifted"))
        set_attribute(icu, UCOL_ALTERNATE_HANDLING, UCOL_SHIFTED);
    else if (str_is(elem_str(elem), "non-ignorable"))
        set_attribute(icu, UCOL_ALTERNATE_HANDLING, UCOL_NON_IGNORABLE);
    else
        return bad_enum(elem, err);
    return ERR_OK;
}

static ErrCode apply_max_variable(Elem elem, UCollator *icu, Error *err) {
    UColReorderCode group;
    if (str_is(elem_str(elem), "punct"))
        group = UCOL_REORDER_CODE_PUNCTUATION;
    else if (str_is(elem_str(elem), "space"))
        group = UCOL_REORDER_CODE_SPACE;
    else
        return bad_enum(elem, err);
    UErrorCode status = U_ZERO_ERROR;
    ucol_setMaxVariable(icu, group, &status);
    invariant(U_SUCCESS(status));
    return ERR_OK;
}

static ErrCode apply_version(Elem elem, UCollator *icu, Error *err) {
    (void)icu;
    if (str_is(elem_str(elem), COLLATION_VERSION))
        return ERR_OK;
    return error_set(err, (ErrCode)ERR_INCOMPATIBLE_COLLATION_VERSION,
                     "Requested collation version '%s', but the only available version is '%s'",
                     elem_str(elem).data, COLLATION_VERSION);
}

/* ---- the complete document ---- */

/* All settings as ICU has them now: locales bring defaults of their own. */
static Doc build_complete(Str locale, const UCollator *icu, Buffer *buf) {
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_str(&b, "locale", locale);
    build_bool(&b, "caseLevel", attribute(icu, UCOL_CASE_LEVEL) == UCOL_ON);
    UColAttributeValue case_first = attribute(icu, UCOL_CASE_FIRST);
    for (size_t i = 0; i < ARRAY_LEN(CASE_FIRST); i++)
        if (CASE_FIRST[i].value == case_first)
            build_cstr(&b, "caseFirst", CASE_FIRST[i].name);
    UColAttributeValue strength = attribute(icu, UCOL_STRENGTH);
    for (size_t i = 0; i < ARRAY_LEN(STRENGTHS); i++)
        if (STRENGTHS[i] == strength)
            build_i32(&b, "strength", (int32_t)i + 1);
    build_bool(&b, "numericOrdering", attribute(icu, UCOL_NUMERIC_COLLATION) == UCOL_ON);
    bool is_shifted = attribute(icu, UCOL_ALTERNATE_HANDLING) == UCOL_SHIFTED;
    build_cstr(&b, "alternate", is_shifted ? "shifted" : "non-ignorable");
    bool is_space = ucol_getMaxVariable(icu) == UCOL_REORDER_CODE_SPACE;
    build_cstr(&b, "maxVariable", is_space ? "space" : "punct");
    build_bool(&b, "normalization", attribute(icu, UCOL_NORMALIZATION_MODE) == UCOL_ON);
    build_bool(&b, "backwards", attribute(icu, UCOL_FRENCH_COLLATION) == UCOL_ON);
    build_cstr(&b, "version", COLLATION_VERSION);
    return doc_builder_end(&b);
}

static ErrCode intern(UCollator *take_icu, Doc spec, const Collator **ret_collator, Error *err) {
    uint64_t hash = hash_of(spec);
    const Spelling *known = find_spelling(&complete_specs, hash, spec);
    if (known != NULL) {
        ucol_close(take_icu);
        *ret_collator = known->collator;
        return ERR_OK;
    }
    if (atomic_load_explicit(&complete_specs.count, memory_order_relaxed) >= COLLATORS_MAX) {
        ucol_close(take_icu);
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "more than %d different collations are in use", COLLATORS_MAX);
    }
    IcuCollator *collator = NEW(IcuCollator);
    collator->base = (Collator){icu_compare, icu_append_sort_key, {doc_copy_heap(spec)}};
    collator->icu = take_icu;
    Spelling *spelling = NEW(Spelling);
    *spelling = (Spelling){.hash = hash, .spec = collator->base.spec, .collator = &collator->base};
    const Spelling *kept = add_spelling(&complete_specs, spelling);
    *ret_collator = kept->collator;
    /* Another thread was faster: add_spelling freed ours with its document. */
    if (kept->collator != &collator->base) {
        ucol_close(take_icu);
        xfree(collator);
    }
    return ERR_OK;
}

/* ---- documents seen ---- */

static uint64_t hash_of(Doc spec) {
    return hash_bytes(spec.data, doc_size(spec));
}

static const Spelling *find_in_list(const Spelling *at, uint64_t hash, Doc spec) {
    for (; at != NULL; at = at->next)
        if (at->hash == hash && doc_equal_bytes(at->spec, spec))
            return at;
    return NULL;
}

static const Spelling *find_spelling(SpellingTable *table, uint64_t hash, Doc spec) {
    return find_in_list(atomic_load_explicit(&table->heads[hash % BUCKETS], memory_order_acquire),
                        hash, spec);
}

/* Adds it, or frees it and returns the same one added by someone else meanwhile. */
static const Spelling *add_spelling(SpellingTable *table, Spelling *spelling) {
    _Atomic(const Spelling *) *bucket = &table->heads[spelling->hash % BUCKETS];
    const Spelling *head = atomic_load_explicit(bucket, memory_order_acquire);
    do {
        const Spelling *same = find_in_list(head, spelling->hash, spelling->spec);
        if (same != NULL) {
            xfree((void *)spelling->spec.data);
            xfree(spelling);
            return same;
        }
        spelling->next = head;
        /* Release: whoever finds the entry sees what it points to. */
    } while (!atomic_compare_exchange_weak_explicit(bucket, &head, spelling, memory_order_release,
                                                    memory_order_acquire));
    atomic_fetch_add_explicit(&table->count, 1, memory_order_relaxed);
    return spelling;
}

/* ---- strings ---- */

static int icu_compare(const Collator *base, Str a, Str b) {
    const IcuCollator *collator = (const IcuCollator *)base;
    UErrorCode status = U_ZERO_ERROR;
    UCollationResult order =
        ucol_strcollUTF8(collator->icu, a.data, (int32_t)a.size, b.data, (int32_t)b.size, &status);
    invariant(U_SUCCESS(status));
    return order == UCOL_LESS ? -1 : order == UCOL_GREATER ? 1 : 0;
}

static void icu_append_sort_key(const Collator *base, Str text, Buffer *out) {
    const IcuCollator *collator = (const IcuCollator *)base;
    UChar inline_units[TEXT_UNITS_INLINE];
    UChar *units = inline_units, *heap_units = NULL;
    int32_t unit_count = 0;
    UErrorCode status = U_ZERO_ERROR;
    /* A text has at most as many UTF-16 units as bytes. */
    if (text.size > TEXT_UNITS_INLINE)
        units = heap_units = xmalloc(text.size * sizeof(UChar));
    u_strFromUTF8WithSub(units, (int32_t)(heap_units != NULL ? text.size : TEXT_UNITS_INLINE),
                         &unit_count, text.data, (int32_t)text.size, /* subchar= */ 0xFFFD,
                         /* pNumSubstitutions= */ NULL, &status);
    invariant(U_SUCCESS(status));

    /* Most keys are not longer than the text in UTF-16; the first try tells the size of others. */
    size_t room = (size_t)unit_count * 2 + 16;
    uint8_t *at = buffer_reserve(out, room);
    int32_t size = 0;
    if (at != NULL)
        size = ucol_getSortKey(collator->icu, units, unit_count, at, (int32_t)room);
    if (at != NULL && (size_t)size > room) {
        at = buffer_reserve(out, (size_t)size);
        if (at != NULL)
            ucol_getSortKey(collator->icu, units, unit_count, at, size);
    }
    if (at != NULL) {
        invariant(size > 0);
        out->size += (size_t)size - 1; /* without the terminating NUL */
    }
    xfree(heap_units);
}

bool elem_has_text(Elem value) {
    BsonType type = elem_type(value);
    if (type != BT_DOC && type != BT_ARRAY)
        return type_is_collatable(type);
    DocIter iter = doc_iter(elem_doc(value));
    for (Elem member; doc_iter_next(&iter, &member);)
        if (elem_has_text(member))
            return true;
    return false;
}

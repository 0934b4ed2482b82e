/*
 * collection.h - one collection as an operation sees it: immutable, reference-counted.
 *
 * A DDL operation clones the current instance, changes the clone and installs it when its unit of
 * work commits (catalog.h); readers keep what they have. State shared by all instances of a
 * collection (multikey flags, waiters on a capped collection) is in small shared objects.
 *
 * Ownership: instances are referenced by catalog versions and by operations that retain one.
 * Threading: any thread may read an instance once it is published; nobody changes it.
 */
#pragma once

#include <stdatomic.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/list.h"
#include "base/thread.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "bson/uuid.h"
#include "bson/namespace.h"
#include "catalog/wildcard.h"
#include "query/match/match.h"
#include "storage/ordered_index.h"
#include "storage/record_store.h"

enum {
    INDEX_FIELDS_MAX = KEYSTRING_FIELDS_MAX,
    INDEX_PATH_PARTS_MAX = 32, /* multikey bits kept per field; deeper parts count as multikey */
    COLLECTION_INDEXES_MAX = 64,
};

/* What all instances of one index share. Multikey bits only ever go from 0 to 1. */
typedef struct IndexState {
    _Atomic int32_t refs;
    /* Atomic. Set (release) before the commit of the first multikey document, so that whoever sees
     * the document in its snapshot sees the bit (acquire). Bit p of field f: part p of the path is
     * an array in some document. */
    _Atomic uint32_t multikey_paths[INDEX_FIELDS_MAX];
    _Atomic bool is_multikey;
    /* Atomic. What the durable catalog has; lags behind while a writer's transaction is open. */
    _Atomic uint32_t persisted_paths[INDEX_FIELDS_MAX];
    _Atomic bool is_multikey_persisted;
    _Atomic int64_t access_count;
    int64_t since_wall_ms;
} IndexState;

typedef struct IndexField {
    const char *path; /* dotted */
    Str *parts;
    uint32_t part_count;
    bool is_descending;
} IndexField;

typedef enum IndexKind {
    INDEX_KIND_ORDERED,
    INDEX_KIND_HASHED,   /* one field is stored as a hash of its value */
    INDEX_KIND_WILDCARD, /* one field stands for many paths: its keys are [path, value] */
} IndexKind;

typedef struct IndexDesc {
    _Atomic int32_t refs;
    /* Set at creation, then constant. */
    Arena arena; /* owns everything below that is a pointer */
    const char *name;
    Doc spec; /* as stored in the catalog */
    Doc key_pattern;
    char *ident;
    OrderedIndex *store; /* NULL: its table is missing, the index is not used */
    IndexState *state;
    IndexField *fields;
    uint32_t field_count;
    IndexKind kind;
    uint32_t special_field; /* which field is hashed, or the wildcard */
    KeyOrder order;         /* of the keys: a wildcard takes two places in them */
    const WildcardPaths *wildcard;
    /* A wildcard index as the planner sees it for one path: fields[special_field] is "$_path" and
     * the next one the path. References count for the whole index. NULL: the index itself. */
    struct IndexDesc *whole;
    /* Of such a view whose path has numbers: the paths under which entries may be, rising. Empty:
     * the path alone. */
    Str *entry_paths;
    uint32_t entry_path_count;
    bool is_id;
    bool is_unique;
    bool is_prepare_unique; /* new duplicates are refused, old ones may exist */
    bool is_sparse;
    bool is_hidden;
    bool is_ready;
    const MatchExpr *partial_filter; /* NULL: none */
    Doc partial_filter_doc;
    /* Its keys contain sort keys of this collation: strings cannot be decoded from them. */
    const Collator *collator; /* NULL: simple */
    Doc collation;            /* complete; DOC_NONE: simple */
    /* Seconds after the date in a document at which it expires; -1: never. */
    int64_t expire_after_s;
    char *sort_key_version; /* of ICU's data when it was built; NULL without a collator */
    bool has_build_uuid;
    Uuid build_uuid;
    /* Being built: writers record its keys here (index/side_writes.h); NULL: in the index
     * itself. */
    RecordStore *side_writes;
} IndexDesc;

/* A query goes by the index: $indexStats. */
static inline void index_note_access(const IndexDesc *index) {
    IndexState *state = index->whole != NULL ? index->whole->state : index->state;
    atomic_fetch_add_explicit(&state->access_count, 1, memory_order_relaxed);
}

typedef enum ValidationLevel {
    VALIDATION_STRICT,
    VALIDATION_MODERATE,
    VALIDATION_OFF
} ValidationLevel;
typedef enum ValidationAction { VALIDATION_ERROR, VALIDATION_WARN } ValidationAction;

typedef struct CollectionOptions {
    Doc doc; /* the options as given and stored, without uuid */
    bool is_capped;
    int64_t capped_size; /* bytes */
    int64_t capped_max;  /* documents; 0: no limit */
    bool is_clustered;
    const char *clustered_name;
    bool is_temp;
    bool is_without_id_index; /* unless somebody makes one later; only in "local" */
    bool has_v1_id_index;     /* told at its creation, not stored: the index says it */
    Doc validator;            /* DOC_NONE: none */
    ValidationLevel validation_level;
    ValidationAction validation_action;
    const Collator *collator; /* default of its queries and indexes; NULL: simple */
    int64_t expire_after_s;   /* of a clustered collection, by the date in _id; -1: never */
    bool has_pre_images;      /* what a document was before each change is kept (preimages/) */
} CollectionOptions;

/* An object that a higher layer attaches to a collection or an instance of it: the head of its
 * struct. */
typedef struct CollectionExtra {
    void (*free)(struct CollectionExtra *extra);
} CollectionExtra;

/* Shared by all instances of a collection. */
typedef struct CollectionShared {
    _Atomic int32_t refs;
    Mutex mu;
    /* Guarded by mu. */
    uint64_t capped_version; /* counts commits of inserts */
    List capped_waiters;
    bool is_dropped;
    /* Atomic. */
    _Atomic int64_t capped_first_hint; /* no record id below this one is left */
    _Atomic int64_t scans;             /* plans that read all of it, and those of them that tail */
    _Atomic int64_t tailing_scans;
    /* Which indexes its queries may use; NULL: no filter was ever set. */
    _Atomic(CollectionExtra *) index_filters;
} CollectionShared;

typedef struct Collection {
    _Atomic int32_t refs;
    /* Set before the instance is published, then constant. */
    Arena arena; /* options and validator */
    Ns ns;
    Uuid uuid;
    int64_t catalog_id;
    CollectionOptions options;
    RecordStore *records;
    IndexDesc **indexes;
    uint32_t index_count;
    CollectionShared *shared;
    const MatchExpr *validator;
    /* Atomic. The plan cache of this instance; created by its first user, freed with the instance,
     * so that every change of indexes starts with an empty one. */
    _Atomic(CollectionExtra *) plan_cache;
    uint64_t min_valid_ts; /* commit timestamp of the change that made this instance; 0: none */
} Collection;

Collection *collection_ref(Collection *coll);
void collection_unref(Collection *coll);
void collection_unref_ptr(Collection **coll); /* for CLEANUP */
/* A copy to change; shares record store, indexes and shared state. */
Collection *collection_clone(const Collection *coll);
/* Replaces the options of an instance not yet published. */
ErrCode collection_set_options(Collection *coll, Doc options, Error *err) MUST_CHECK;
void collection_add_index(Collection *coll, IndexDesc *take_index);
void collection_remove_index(Collection *coll, uint32_t position);

const IndexDesc *collection_find_index(const Collection *coll, Str name); /* NULL: none */
const IndexDesc *collection_id_index(const Collection *coll);             /* NULL: clustered */
int collection_index_position(const Collection *coll, Str name);          /* -1: none */

/* The validator's filter as it was written, with its own $expr hook in the arena. */
ErrCode collection_parse_validator(const Collection *coll, Arena *arena, MatchExpr **ret_filter,
                                   Error *err) MUST_CHECK;

/* Checks and parses the options of create and collMod; pointers go into `arena`. */
ErrCode collection_options_parse(Doc doc, Arena *arena, CollectionOptions *ret_options, Error *err)
    MUST_CHECK;

/* Sizes and numbers of capped collections, as `command` has them: missing, or a number between
 * `least` and a petabyte. */
ErrCode capped_number_check(const char *command, Elem elem, int64_t least, Error *err) MUST_CHECK;

/* {enabled: bool}, the form of changeStreamPreAndPostImages. */
ErrCode pre_images_parse(Elem elem, bool *ret_is_enabled, Error *err) MUST_CHECK;

/* Checked options in the form they are stored: clusteredIndex complete with version and name,
 * collation with all its fields, or without it when it is the simple one. */
Doc collection_options_normalize(const CollectionOptions *options, Arena *arena);

/* ---- indexes ---- */

/* Makes a descriptor from a checked spec; opens its table (missing table: store stays NULL).
 * `state` is taken over from an earlier instance, or NULL for a new one. */
ErrCode index_desc_new(struct StorageEngine *engine, Doc spec, const char *ident, bool is_clustered,
                       bool is_ready, IndexState *state, IndexDesc **ret_index, Error *err)
    MUST_CHECK;
/* The same with a new table; a failure leaves none behind. */
ErrCode index_desc_create(struct StorageEngine *engine, const Ns *ns, Doc spec, bool is_clustered,
                          bool is_ready, IndexDesc **ret_index, Error *err) MUST_CHECK;
IndexDesc *index_desc_ref(IndexDesc *index);
void index_desc_unref(IndexDesc *index);
bool index_is_multikey(const IndexDesc *index);
/* Parts of field `f` that are arrays in some document. */
uint32_t index_multikey_paths(const IndexDesc *index, uint32_t field);
/* Do its keys hold hashes of this field's values? */
static inline bool index_field_is_hashed(const IndexDesc *index, uint32_t field) {
    return index->kind == INDEX_KIND_HASHED && index->special_field == field;
}

/* expireAfterSeconds of an index or a collection: *ret_seconds is -1 for what never expires (NaN,
 * which earlier versions took). Fails with `code`. */
enum {
    EXPIRE_AFTER_S_MAX = INT32_MAX,
};
ErrCode expire_after_parse(Elem elem, ErrCode code, int64_t *ret_seconds, Error *err) MUST_CHECK;

/* ---- waiting for the end of a capped collection ---- */

uint64_t collection_capped_version(const Collection *coll);
void collection_capped_notify(const Collection *coll, bool is_dropped);
/* Waits until the version differs from `seen`, the collection is dropped, or the deadline passes;
 * or until *is_due, which another thread sets before it signals the operation (NULL: unused). */
ErrCode collection_capped_wait(const Collection *coll, OpCtx *op, uint64_t seen,
                               const _Atomic bool *is_due, int64_t deadline_us, Error *err)
    MUST_CHECK;

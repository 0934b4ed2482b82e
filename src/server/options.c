#include "server/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bson/builder.h"

enum {
    SHARD_PORT = 27018,
    CONFIG_PORT = 27019,
    VERBOSE_LEVEL_MAX = 5,
    VERBOSE_LETTERS_MAX = 15,
};

typedef enum OptionType {
    OPTION_TYPE_SWITCH,
    OPTION_TYPE_INT,
    OPTION_TYPE_DOUBLE,
    OPTION_TYPE_TEXT,
    OPTION_TYPE_LIST,
} OptionType;

typedef enum OptionState {
    OPTION_STATE_SUPPORTED,
    OPTION_STATE_ONLY,
    OPTION_STATE_IGNORED,
    OPTION_STATE_REFUSED,
} OptionState;

typedef enum OptionSection {
    OPTION_SECTION_GENERAL,
    OPTION_SECTION_LOG,
    OPTION_SECTION_NETWORK,
    OPTION_SECTION_STORAGE,
    OPTION_SECTION_PROFILING,
    OPTION_SECTION_SECURITY,
    OPTION_SECTION_REPLICATION,
    OPTION_SECTION_ROUTING,
    OPTION_SECTION_COUNT,
} OptionSection;

typedef struct OptionSpec {
    const char *flag;
    char letter;
    const char *place;
    OptionType type;
    const char *initial;
    OptionState state;
    OptionSection section;
    const char *note;
    const char *help;
} OptionSpec;

#define PLACE_OF(place) ((place)[0] == '!' ? &(place)[1] : (place))
static const OptionSpec SPECS[OPTION_COUNT] = {
#define OPTION(symbol, flag_text, short_flag, file_place, value_type, first, how, part, text,      \
               help_text)                                                                          \
    [OPTION_##symbol] = {.flag = flag_text,                                                        \
                         .letter = short_flag,                                                     \
                         .place = file_place,                                                      \
                         .type = OPTION_TYPE_##value_type,                                         \
                         .initial = first,                                                         \
                         .state = OPTION_STATE_##how,                                              \
                         .section = OPTION_SECTION_##part,                                         \
                         .note = text,                                                             \
                         .help = help_text},
#include "server/options.def"
#undef OPTION
};

/* A program has only the options of its sections. */
#define OF(program) (1u << (program))
static const struct {
    const char *title;
    uint32_t programs;
} SECTIONS[OPTION_SECTION_COUNT] = {
    [OPTION_SECTION_GENERAL] = {"General", OF(PROGRAM_NODE) | OF(PROGRAM_ROUTER)},
    [OPTION_SECTION_LOG] = {"Log", OF(PROGRAM_NODE) | OF(PROGRAM_ROUTER)},
    [OPTION_SECTION_NETWORK] = {"Network", OF(PROGRAM_NODE) | OF(PROGRAM_ROUTER)},
    [OPTION_SECTION_STORAGE] = {"Storage", OF(PROGRAM_NODE)},
    [OPTION_SECTION_PROFILING] = {"Profiling", OF(PROGRAM_NODE) | OF(PROGRAM_ROUTER)},
    [OPTION_SECTION_SECURITY] = {"Security", OF(PROGRAM_NODE) | OF(PROGRAM_ROUTER)},
    [OPTION_SECTION_REPLICATION] = {"Replication and sharding", OF(PROGRAM_NODE)},
    [OPTION_SECTION_ROUTING] = {"Sharding", OF(PROGRAM_ROUTER)},
};

static const char *const PROGRAM_TASKS[] = {
    [PROGRAM_NODE] = "Starts a data node.",
    [PROGRAM_ROUTER] = "Starts a query router of a sharded cluster.",
};

/* One argument of the command line, taken apart. */
typedef struct Flag {
    const OptionSpec *spec;
    OptionId id;
    const char *shown; /* "--port", for messages */
    const char *value; /* behind "=", or NULL */
} Flag;

static ErrCode parse_argument(Options *options, int *at, Error *err);
static ErrCode find_flag(Options *options, const char *argument, Flag *ret_flag, Error *err);
static bool try_verbose_letters(Options *options, const char *argument);
static ErrCode set_value(Options *options, OptionId id, const char *shown, const char *text,
                         bool is_from_file, Error *err);
static ErrCode check_state(const OptionSpec *spec, const char *shown, const char *text, Error *err);
static ErrCode parse_number(const OptionSpec *spec, const char *shown, const char *text,
                            OptionValue *value, Error *err);
static ErrCode parse_bool(const char *shown, const char *text, bool *ret_value, Error *err);
static ErrCode check_together(const Options *options, Error *err);
static void build_place(DocBuilder *b, const char *prefix, const Options *options);

static bool is_of_program(const Options *options, const OptionSpec *spec) {
    return (SECTIONS[spec->section].programs & OF(options->kind)) != 0;
}

void options_init(Options *options, ProgramKind kind, const char *program) {
    memset(options, 0, sizeof(*options));
    options->kind = kind;
    arena_init(&options->arena, ARENA_CHUNK_SIZE_DEFAULT);
    options->program = program;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const OptionSpec *spec = &SPECS[i];
        OptionValue *value = &options->values[i];
        value->list = spec->type == OPTION_TYPE_LIST
                          ? ARENA_ARRAY(&options->arena, const char *, OPTION_LIST_MAX)
                          : NULL;
        if (spec->initial[0] == '\0')
            continue;
        value->text = spec->initial;
        value->f64 = strtod(spec->initial, NULL);
        value->i64 = (int64_t)value->f64;
    }
}

void options_done(Options *options) {
    arena_done(&options->arena);
}

ClusterRole options_cluster_role(const Options *options) {
    const char *role = option_text(options, OPTION_CLUSTER_ROLE);
    if (option_bool(options, OPTION_SHARD_SERVER) ||
        (role != NULL && strcmp(role, "shardsvr") == 0))
        return CLUSTER_ROLE_SHARD;
    if (option_bool(options, OPTION_CONFIG_SERVER) || role != NULL)
        return CLUSTER_ROLE_CONFIG;
    return CLUSTER_ROLE_NONE;
}

/* What is different by default for a part of a cluster. */
static void apply_role(Options *options) {
    ClusterRole role = options_cluster_role(options);
    OptionValue *port = &options->values[OPTION_PORT];
    if (role != CLUSTER_ROLE_NONE && !port->is_set)
        port->i64 = role == CLUSTER_ROLE_SHARD ? SHARD_PORT : CONFIG_PORT;
    OptionValue *path = &options->values[OPTION_DB_PATH];
    if (role == CLUSTER_ROLE_CONFIG && !path->is_set)
        path->text = "/data/configdb";
}

ErrCode options_parse(Options *options, int argc, char **argv, int skip, Error *err) {
    options->argc = argc;
    options->argv = argv;
    for (int at = skip; at < argc;)
        TRY(parse_argument(options, &at, err));
    if (option_is_set(options, OPTION_HELP) || option_is_set(options, OPTION_VERSION))
        return ERR_OK;
    if (option_is_set(options, OPTION_CONFIG))
        TRY(options_read_file(options, option_text(options, OPTION_CONFIG), err));
    apply_role(options);
    return check_together(options, err);
}

ErrCode options_set_place(Options *options, const char *place, const char *text, Error *err) {
    static const char PARAMETER[] = "setParameter.";
    if (strncmp(place, PARAMETER, sizeof(PARAMETER) - 1) == 0) {
        const char *pair =
            arena_printf(&options->arena, "%s=%s", place + sizeof(PARAMETER) - 1, text);
        return set_value(options, OPTION_SET_PARAMETER, place, pair, /* is_from_file= */ true, err);
    }
    for (int i = 0; i < OPTION_COUNT; i++) {
        const OptionSpec *spec = &SPECS[i];
        if (spec->place[0] == '\0' || strcmp(PLACE_OF(spec->place), place) != 0 ||
            !is_of_program(options, spec))
            continue;
        if (options->values[i].is_set && !options->values[i].is_from_file)
            return ERR_OK; /* the command line wins */
        if (i == OPTION_PROFILE) {
            static const char *const MODES[] = {"off", "slowOp", "all"};
            for (size_t mode = 0; mode < ARRAY_LEN(MODES); mode++)
                if (strcmp(text, MODES[mode]) == 0)
                    return set_value(options, OPTION_PROFILE, place,
                                     mode == 0   ? "0"
                                     : mode == 1 ? "1"
                                                 : "2",
                                     true, err);
            return error_set(err, ERR_BAD_VALUE, "Bad value for %s: \"%s\" (off, slowOp or all)",
                             place, text);
        }
        if (i == OPTION_JOURNAL && strcmp(text, "false") == 0)
            return error_set(err, ERR_BAD_VALUE, "option '%s: false' is refused: %s", place,
                             SPECS[OPTION_NO_JOURNAL].note);
        return set_value(options, (OptionId)i, place, text, /* is_from_file= */ true, err);
    }
    return error_set(err, ERR_BAD_VALUE, "Unrecognized option: %s", place);
}

void options_print_help(const Options *options) {
    printf("Usage: %s [options]\n\n%s\n", options->program, PROGRAM_TASKS[options->kind]);
    for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
        bool is_titled = false;
        for (int i = 0; i < OPTION_COUNT; i++) {
            const OptionSpec *spec = &SPECS[i];
            if ((int)spec->section != section || spec->help[0] == '\0' ||
                !is_of_program(options, spec))
                continue;
            if (!is_titled)
                printf("\n%s:\n", SECTIONS[section].title);
            is_titled = true;
            char left[64];
            char letter[8] = "";
            if (spec->letter != 0)
                snprintf(letter, sizeof(letter), "-%c, ", spec->letter);
            snprintf(left, sizeof(left), "  %s--%s%s", letter, spec->flag,
                     spec->type == OPTION_TYPE_SWITCH ? "" : " arg");
            printf("%-36s %s", left, spec->help);
            printf(spec->initial[0] != '\0' ? " (%s)\n" : "\n", spec->initial);
        }
    }
}

/* ---- command line ---- */

static ErrCode parse_argument(Options *options, int *at, Error *err) {
    const char *argument = options->argv[(*at)++];
    if (try_verbose_letters(options, argument))
        return ERR_OK;
    Flag flag = {0};
    TRY(find_flag(options, argument, &flag, err));
    const char *text = flag.value;
    if (flag.spec->type == OPTION_TYPE_SWITCH) {
        /* Switches take no value, except an explicit true or false behind "=". */
        return set_value(options, flag.id, flag.shown, text != NULL ? text : "true",
                         /* is_from_file= */ false, err);
    }
    if (text == NULL && flag.id == OPTION_VERBOSE) {
        bool has_number =
            *at < options->argc && options->argv[*at][0] >= '0' && options->argv[*at][0] <= '9';
        text = has_number ? options->argv[(*at)++] : "1";
    }
    if (text == NULL && *at < options->argc)
        text = options->argv[(*at)++];
    if (text == NULL)
        return error_set(
            err, ERR_BAD_VALUE,
            "Error parsing command line: the required argument for option '%s' is missing",
            flag.shown);
    return set_value(options, flag.id, flag.shown, text, /* is_from_file= */ false, err);
}

static ErrCode find_flag(Options *options, const char *argument, Flag *ret_flag, Error *err) {
    bool is_long = strncmp(argument, "--", 2) == 0 && argument[2] != '\0';
    bool is_short = !is_long && argument[0] == '-' && argument[1] != '\0';
    if (!is_long && !is_short)
        return error_set(err, ERR_BAD_VALUE,
                         "Error parsing command line: too many positional options have been "
                         "specified on the command line: \"%s\"",
                         argument);
    const char *name = argument + (is_long ? 2 : 1);
    size_t size = is_long ? strcspn(name, "=") : 1;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const OptionSpec *spec = &SPECS[i];
        bool is_match = is_long ? spec->flag[0] != '\0' && strlen(spec->flag) == size &&
                                      memcmp(spec->flag, name, size) == 0
                                : spec->letter == name[0];
        if (!is_match || !is_of_program(options, spec))
            continue;
        const char *rest = name + size;
        if (is_long && *rest == '=')
            rest++;
        else if (*rest == '\0')
            rest = NULL;
        *ret_flag = (Flag){
            .spec = spec,
            .id = (OptionId)i,
            .shown = arena_printf(&options->arena, "%s%.*s", is_long ? "--" : "-", (int)size, name),
            .value = rest,
        };
        return ERR_OK;
    }
    return error_set(err, ERR_BAD_VALUE, "Error parsing command line: unrecognised option '%.*s'",
                     (int)(size + (is_long ? 2 : 1)), argument);
}

/* -v, -vv, ...; there are no more than five levels. */
static bool try_verbose_letters(Options *options, const char *argument) {
    if (argument[0] != '-' || argument[1] != 'v')
        return false;
    size_t count = strspn(argument + 1, "v");
    if (argument[1 + count] != '\0' || count > VERBOSE_LETTERS_MAX)
        return false;
    count = count > VERBOSE_LEVEL_MAX ? VERBOSE_LEVEL_MAX : count;
    OptionValue *value = &options->values[OPTION_VERBOSE];
    value->is_set = true;
    value->i64 = (int64_t)count;
    value->text = arena_printf(&options->arena, "%zu", count);
    return true;
}

/* ---- values ---- */

static ErrCode set_value(Options *options, OptionId id, const char *shown, const char *text,
                         bool is_from_file, Error *err) {
    const OptionSpec *spec = &SPECS[id];
    OptionValue *value = &options->values[id];
    bool is_list = spec->type == OPTION_TYPE_LIST;
    if (value->is_set && !is_list && value->is_from_file == is_from_file)
        return error_set(err, ERR_BAD_VALUE,
                         "Error parsing command line: Multiple occurrences of "
                         "option \"%s\"",
                         shown);
    if (spec->type == OPTION_TYPE_SWITCH) {
        TRY(parse_bool(shown, text, &value->boolean, err));
        if (is_from_file && spec->place[0] == '!')
            value->boolean = !value->boolean;
        /* Switched off is what the refused ones are anyway. */
        if (value->boolean || spec->state == OPTION_STATE_ONLY)
            TRY(check_state(spec, shown, text, err));
    } else {
        TRY(check_state(spec, shown, text, err));
    }
    if (spec->type == OPTION_TYPE_INT || spec->type == OPTION_TYPE_DOUBLE)
        TRY(parse_number(spec, shown, text, value, err));
    if (is_list) {
        if (value->list_count == OPTION_LIST_MAX)
            return error_set(err, ERR_BAD_VALUE, "option '%s' is given more than %d times", shown,
                             OPTION_LIST_MAX);
        value->list[value->list_count++] = arena_strdup(&options->arena, text);
    }
    value->text = arena_strdup(&options->arena, text);
    value->is_set = true;
    value->is_from_file = is_from_file;
    return ERR_OK;
}

static ErrCode check_state(const OptionSpec *spec, const char *shown, const char *text,
                           Error *err) {
    if (spec->state == OPTION_STATE_REFUSED)
        return error_set(err, ERR_BAD_VALUE, "option '%s' is refused: %s", shown, spec->note);
    if (spec->state == OPTION_STATE_ONLY && strcmp(text, spec->note) != 0)
        return error_set(err, ERR_BAD_VALUE,
                         "option '%s' with the value '%s' is refused: only '%s' is supported",
                         shown, text, spec->note);
    if (spec->state != OPTION_STATE_SUPPORTED || strchr(spec->note, '|') == NULL)
        return ERR_OK;
    /* A choice: "rename|reopen". */
    size_t size = strlen(text);
    for (const char *at = spec->note; at != NULL;) {
        const char *end = strchrnul(at, '|');
        if ((size_t)(end - at) == size && memcmp(at, text, size) == 0)
            return ERR_OK;
        at = *end == '|' ? end + 1 : NULL;
    }
    return error_set(err, ERR_BAD_VALUE, "Bad value for option '%s': \"%s\" is none of %s", shown,
                     text, spec->note);
}

static ErrCode parse_number(const OptionSpec *spec, const char *shown, const char *text,
                            OptionValue *value, Error *err) {
    char *end = NULL;
    errno = 0;
    bool is_int = spec->type == OPTION_TYPE_INT;
    double number = is_int ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0)
        return error_set(
            err, ERR_BAD_VALUE,
            "Error parsing command line: the argument ('%s') for option '%s' is invalid", text,
            shown);
    double least = strtod(spec->note, NULL);
    double greatest = strtod(strstr(spec->note, "..") + 2, NULL);
    if (!(number >= least) || !(number <= greatest))
        return error_set(err, ERR_BAD_VALUE,
                         "Bad value for option '%s': %s is outside of the range %s", shown, text,
                         spec->note);
    value->f64 = number;
    value->i64 = (int64_t)number;
    return ERR_OK;
}

static ErrCode parse_bool(const char *shown, const char *text, bool *ret_value, Error *err) {
    *ret_value = strcmp(text, "true") == 0;
    if (!*ret_value && strcmp(text, "false") != 0)
        return error_set(err, ERR_BAD_VALUE, "option '%s' takes true or false, not '%s'", shown,
                         text);
    return ERR_OK;
}

/* What single options cannot say. */
static ErrCode check_router(const Options *options, Error *err) {
    if (!option_is_set(options, OPTION_CONFIG_DB))
        return error_set(err, ERR_BAD_VALUE,
                         "a router needs --configdb: the replica set of the config server, as "
                         "name/host:port,host:port");
    return ERR_OK;
}

static ErrCode check_node(const Options *options, Error *err) {
    bool is_shard = option_bool(options, OPTION_SHARD_SERVER);
    bool is_config = option_bool(options, OPTION_CONFIG_SERVER);
    bool has_role = option_is_set(options, OPTION_CLUSTER_ROLE);
    if (is_shard + is_config + has_role > 1)
        return error_set(err, ERR_BAD_VALUE,
                         "--shardsvr, --configsvr and sharding.clusterRole exclude each other");
    if ((is_shard || is_config || has_role) && !option_is_set(options, OPTION_REPL_SET))
        return error_set(
            err, ERR_BAD_VALUE,
            "--shardsvr and --configsvr need --replSet: shards and config servers are replica "
            "sets");
    return ERR_OK;
}

static ErrCode check_together(const Options *options, Error *err) {
    if (option_bool(options, OPTION_FORK) && !option_is_set(options, OPTION_LOG_PATH))
        return error_set(err, ERR_BAD_VALUE, "--fork has to be used with --logpath");
    if (option_is_set(options, OPTION_LOG_DESTINATION) && !option_is_set(options, OPTION_LOG_PATH))
        return error_set(err, ERR_BAD_VALUE,
                         "systemLog.destination is file, but there is no systemLog.path");
    if (strcmp(option_text(options, OPTION_LOG_ROTATE), "reopen") == 0 &&
        !option_bool(options, OPTION_LOG_APPEND))
        return error_set(err, ERR_BAD_VALUE, "logRotate with \"reopen\" requires logappend");
    if (option_is_set(options, OPTION_BIND_IP) && option_bool(options, OPTION_BIND_IP_ALL))
        return error_set(err, ERR_BAD_VALUE,
                         "--bind_ip and --bind_ip_all cannot be given together");
    return options->kind == PROGRAM_ROUTER ? check_router(options, err) : check_node(options, err);
}

/* ---- for getCmdLineOpts ---- */

Doc options_argv_doc(const Options *options, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    for (int i = 0; i < options->argc; i++) {
        char name[INDEX_NAME_SIZE];
        build_cstr(&b, index_name((uint32_t)i, name).data, options->argv[i]);
    }
    return doc_builder_end(&b);
}

Doc options_parsed_doc(const Options *options, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    if (option_is_set(options, OPTION_CONFIG))
        build_cstr(&b, "config", option_text(options, OPTION_CONFIG));
    build_place(&b, "", options);
    return doc_builder_end(&b);
}

static void build_option(DocBuilder *b, const char *name, int id, const OptionValue *value) {
    static const char *const MODES[] = {"off", "slowOp", "all"};
    const OptionSpec *spec = &SPECS[id];
    if (id == OPTION_PROFILE) {
        build_cstr(b, name, MODES[value->i64]);
        return;
    }
    switch (spec->type) {
    case OPTION_TYPE_SWITCH:
        build_bool(b, name, value->boolean != (spec->place[0] == '!'));
        break;
    case OPTION_TYPE_INT:
        build_count(b, name, value->i64);
        break;
    case OPTION_TYPE_DOUBLE:
        build_f64(b, name, value->f64);
        break;
    case OPTION_TYPE_TEXT:
        build_cstr(b, name, value->text);
        break;
    case OPTION_TYPE_LIST: {
        size_t opened = build_open_doc(b, name);
        for (uint32_t i = 0; i < value->list_count; i++) {
            const char *pair = value->list[i];
            size_t size = strcspn(pair, "=");
            char key[128];
            snprintf(key, sizeof(key), "%.*s", (int)size, pair);
            build_cstr(b, key, pair[size] == '=' ? pair + size + 1 : "");
        }
        build_close(b, opened);
        break;
    }
    }
}

/* Writes all given options whose place starts with `prefix`, one nested document per part. */
static void build_place(DocBuilder *b, const char *prefix, const Options *options) {
    size_t prefix_size = strlen(prefix);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *place = PLACE_OF(SPECS[i].place);
        if (!options->values[i].is_set || *place == '\0' ||
            strncmp(place, prefix, prefix_size) != 0)
            continue;
        const char *name = place + prefix_size;
        size_t size = strcspn(name, ".");
        if (name[size] == '\0') {
            /* Whether the set was named by the flag or in the file is told, as in MongoDB. */
            bool is_flag = i == OPTION_REPL_SET && !options->values[i].is_from_file;
            build_option(b, is_flag ? "replSet" : name, i, &options->values[i]);
            continue;
        }
        /* The first of those with this part opens the document and writes them all. */
        bool is_first = true;
        for (int j = 0; j < i && is_first; j++) {
            const char *other = PLACE_OF(SPECS[j].place);
            is_first =
                !options->values[j].is_set || strncmp(other, place, prefix_size + size + 1) != 0;
        }
        if (!is_first)
            continue;
        char inner[128];
        snprintf(inner, sizeof(inner), "%.*s", (int)(prefix_size + size + 1), place);
        size_t opened = build_open_doc_str(b, (Str){name, size});
        build_place(b, inner, options);
        build_close(b, opened);
    }
}

/*
 * sherd_bench.c - load generator for any server that speaks the wire protocol, with its own floors.
 *
 *     sherd-bench --uri mongodb://127.0.0.1:27017 --workload point-read --connections 64
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench.h"

enum {
    EXIT_USAGE = 2,
};

static const char USAGE[] =
    "usage: sherd-bench --workload NAME [options]\n"
    "  --workload NAME     what to do; \"list\" shows all\n"
    "  --uri URI           server (mongodb://127.0.0.1:27017/bench)\n"
    "  --connections N     connections in use (16)\n"
    "  --idle N            further connections that are only held open (0)\n"
    "  --seconds S         how long to measure (5)\n"
    "  --docs N            documents in the collection (100000); a bound for loads when given\n"
    "  --doc-size BYTES    of one document (300)\n"
    "  --batch N           documents of one bulk insert, which is unordered (1000)\n"
    "  --threads N         threads of the client, or of the wt-* floors (1)\n"
    "  --shard-by HOW      shard the collection by _id: \"hashed\" or \"range\" (through a "
    "router)\n"
    "  --no-prepare        use the data as they are\n"
    "  --server-pid PID    report the memory of that process as well\n"
    "  --json              one JSON object instead of a table\n";

static ErrCode parse_options(int argc, char **argv, BenchOptions *ret_options, Error *err);
static ErrCode parse_u32(const char *name, const char *text, uint32_t min, uint32_t *ret_value,
                         Error *err);
static ErrCode run_network(const BenchOptions *options, BenchResult *result, Error *err);
static void print_json(const BenchOptions *options, const BenchResult *result);
static void print_table(const BenchOptions *options, const BenchResult *result);
static long server_rss_kb(int pid);
static void raise_file_limit(void);

int main(int argc, char **argv) {
    CLEANUP(error_reset) Error err = {0};
    BenchOptions options;
    if (parse_options(argc, argv, &options, &err) != ERR_OK) {
        fprintf(stderr, "sherd-bench: %s\n%s", error_message(&err), USAGE);
        return EXIT_USAGE;
    }
    if (strcmp(options.workload, "list") == 0) {
        workload_list();
        wt_workload_list();
        return EXIT_SUCCESS;
    }
    raise_file_limit();
    static BenchResult result;
    ErrCode rc = wt_workload_exists(options.workload) ? wt_workload_run(&options, &result, &err)
                                                      : run_network(&options, &result, &err);
    if (rc != ERR_OK) {
        fprintf(stderr, "sherd-bench: %s: %s\n", options.workload, error_message(&err));
        return EXIT_FAILURE;
    }
    if (options.is_json)
        print_json(&options, &result);
    else
        print_table(&options, &result);
    if (result.errors > 0)
        fprintf(stderr, "sherd-bench: %s: %llu errors, the first: %s\n", options.workload,
                (unsigned long long)result.errors, result.first_error);
    return result.errors > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static ErrCode run_network(const BenchOptions *options, BenchResult *result, Error *err) {
    WorkloadRun run = {.workload = workload_find(options->workload), .options = options};
    if (run.workload == NULL)
        return error_set(err, ERR_BAD_VALUE, "no such workload (--workload list shows all)");
    BenchTarget target;
    if (workload_is_echo(run.workload)) {
        TRY(echo_server_start(&target, err));
    } else {
        TRY(bench_parse_uri(options->uri, &target, err));
    }
    run.target = &target;
    run.database = target.database;
    /* Inserts need their collection emptied even when nothing else is prepared. */
    if (options->has_prepare)
        TRY(workload_prepare(&run, &target, err));
    return bench_drive(&run, &target, result, err);
}

static ErrCode parse_options(int argc, char **argv, BenchOptions *ret_options, Error *err) {
    static const struct option OPTIONS[] = {
        {"workload", required_argument, NULL, 'w'},
        {"uri", required_argument, NULL, 'u'},
        {"connections", required_argument, NULL, 'c'},
        {"idle", required_argument, NULL, 'i'},
        {"seconds", required_argument, NULL, 's'},
        {"docs", required_argument, NULL, 'd'},
        {"doc-size", required_argument, NULL, 'z'},
        {"batch", required_argument, NULL, 'b'},
        {"threads", required_argument, NULL, 't'},
        {"server-pid", required_argument, NULL, 'p'},
        {"shard-by", required_argument, NULL, 'k'},
        {"no-prepare", no_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    BenchOptions options = {
        .uri = "mongodb://127.0.0.1:27017/bench",
        .connections = 16,
        .threads = 1,
        .seconds = 5,
        .docs = 100000,
        .doc_size = 300,
        .batch = 1000,
        .has_prepare = true,
    };
    uint32_t pid = 0;
    opterr = 0;
    for (int flag; (flag = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        switch (flag) {
        case 'w':
            options.workload = optarg;
            break;
        case 'u':
            options.uri = optarg;
            break;
        case 'k':
            options.shard_by = optarg;
            if (strcmp(optarg, "hashed") != 0 && strcmp(optarg, "range") != 0)
                return error_set(err, ERR_BAD_VALUE, "--shard-by is \"hashed\" or \"range\"");
            break;
        case 'c':
            TRY(parse_u32("--connections", optarg, 1, &options.connections, err));
            break;
        case 'i':
            TRY(parse_u32("--idle", optarg, 0, &options.idle_connections, err));
            break;
        case 's': {
            char *end;
            options.seconds = strtod(optarg, &end);
            if (*end != '\0' || !(options.seconds > 0 && options.seconds < 1e6))
                return error_set(err, ERR_BAD_VALUE, "--seconds \"%s\" is not a time", optarg);
            break;
        }
        case 'd':
            TRY(parse_u32("--docs", optarg, 1, &options.docs, err));
            options.has_docs = true;
            break;
        case 'z':
            TRY(parse_u32("--doc-size", optarg, 1, &options.doc_size, err));
            break;
        case 'b':
            TRY(parse_u32("--batch", optarg, 1, &options.batch, err));
            break;
        case 't':
            TRY(parse_u32("--threads", optarg, 1, &options.threads, err));
            break;
        case 'p':
            TRY(parse_u32("--server-pid", optarg, 1, &pid, err));
            break;
        case 'n':
            options.has_prepare = false;
            break;
        case 'j':
            options.is_json = true;
            break;
        default:
            return error_set(err, ERR_BAD_VALUE, "unknown or incomplete option \"%s\"",
                             argv[optind - 1]);
        }
    }
    if (optind < argc)
        return error_set(err, ERR_BAD_VALUE, "unexpected argument \"%s\"", argv[optind]);
    if (options.workload == NULL)
        return error_set(err, ERR_BAD_VALUE, "--workload is missing");
    options.server_pid = (int)pid;
    *ret_options = options;
    return ERR_OK;
}

static ErrCode parse_u32(const char *name, const char *text, uint32_t min, uint32_t *ret_value,
                         Error *err) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || *text == '\0' || *text == '-' || *end != '\0' || value < min ||
        value > INT32_MAX)
        return error_set(err, ERR_BAD_VALUE, "%s \"%s\" is not a number of at least %u", name, text,
                         min);
    *ret_value = (uint32_t)value;
    return ERR_OK;
}

static double per_second(uint64_t count, const BenchResult *result) {
    return result->seconds > 0 ? (double)count / result->seconds : 0;
}

static void print_json(const BenchOptions *options, const BenchResult *result) {
    const Histogram *h = &result->latency;
    printf("{\"workload\": \"%s\", \"connections\": %u, \"threads\": %u, \"seconds\": %.3f, "
           "\"ops\": %llu, \"ops_per_s\": %.1f",
           options->workload, options->connections, options->threads, result->seconds,
           (unsigned long long)result->ops, per_second(result->ops, result));
    if (result->docs > 0)
        printf(", \"docs_per_s\": %.1f", per_second(result->docs, result));
    if (result->txns > 0)
        printf(", \"txns_per_s\": %.1f, \"txn_retries\": %llu", per_second(result->txns, result),
               (unsigned long long)result->txn_retries);
    printf(", \"p50_us\": %.1f, \"p95_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, "
           "\"max_us\": %.1f, \"errors\": %llu",
           histogram_percentile_us(h, 0.5), histogram_percentile_us(h, 0.95),
           histogram_percentile_us(h, 0.99), histogram_percentile_us(h, 0.999),
           (double)h->max_ns / 1000.0, (unsigned long long)result->errors);
    if (options->idle_connections > 0)
        printf(", \"idle_connections\": %u", options->idle_connections);
    if (options->server_pid != 0)
        printf(", \"server_rss_kb\": %ld", server_rss_kb(options->server_pid));
    printf("}\n");
}

static void print_table(const BenchOptions *options, const BenchResult *result) {
    const Histogram *h = &result->latency;
    printf("%-12s %6s %11s %12s %9s %9s %9s %9s %9s %7s\n", "workload", "conns", "ops/s", "docs/s",
           "p50 us", "p95 us", "p99 us", "p99.9 us", "max us", "errors");
    printf("%-12s %6u %11.0f %12.0f %9.1f %9.1f %9.1f %9.1f %9.1f %7llu\n", options->workload,
           options->connections, per_second(result->ops, result), per_second(result->docs, result),
           histogram_percentile_us(h, 0.5), histogram_percentile_us(h, 0.95),
           histogram_percentile_us(h, 0.99), histogram_percentile_us(h, 0.999),
           (double)h->max_ns / 1000.0, (unsigned long long)result->errors);
    if (result->txns > 0)
        printf("%.0f transactions/s, %llu retries; latencies are of transactions\n",
               per_second(result->txns, result), (unsigned long long)result->txn_retries);
    if (options->server_pid != 0)
        printf("server memory: %ld kB\n", server_rss_kb(options->server_pid));
}

/* -1 when it cannot be read. */
static long server_rss_kb(int pid) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    long kb = -1;
    char line[256];
    while (kb < 0 && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmRSS: %ld kB", &kb) != 1)
            kb = -1;
    fclose(file);
    return kb;
}

static void raise_file_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/*
 * fuzz_driver.c - runs a fuzz target on mutated seeds without coverage, for code that only gcc compiles:
 * fuzz_driver RUNS SEED FOLDER
 *
 * The parsers it is for take BSON; random bytes never get past the first check, so inputs are seeds with a few
 * bytes changed, swapped or cut.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"

enum {
    SEEDS_MAX = 1024,
    INPUT_BYTES_MAX = 4096,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *seeds[SEEDS_MAX];
static size_t sizes[SEEDS_MAX];
static size_t seed_count;

static void read_seeds(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir != NULL ? readdir(dir) : NULL; entry != NULL && seed_count < SEEDS_MAX;
         entry = readdir(dir)) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file == NULL)
            continue;
        seeds[seed_count] = malloc(INPUT_BYTES_MAX);
        sizes[seed_count] = fread(seeds[seed_count], 1, INPUT_BYTES_MAX, file);
        seed_count++;
        fclose(file);
    }
    if (dir != NULL)
        closedir(dir);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    long runs = strtol(argv[1], NULL, 10);
    Prng prng = prng_seeded(strtoull(argv[2], NULL, 10));
    read_seeds(argv[3]);
    for (long run = 0; run < runs; run++) {
        uint8_t buffer[INPUT_BYTES_MAX];
        size_t size = prng_below(&prng, 200);
        if (seed_count > 0) {
            size_t pick = prng_below(&prng, seed_count);
            size = sizes[pick];
            memcpy(buffer, seeds[pick], size);
        }
        for (uint64_t changes = prng_below(&prng, 6); size > 0 && changes > 0; changes--)
            buffer[prng_below(&prng, size)] = (uint8_t)prng_u64(&prng);
        if (seed_count == 0)
            for (size_t i = 0; i < size; i++)
                buffer[i] = (uint8_t)prng_u64(&prng);
        /* A copy of its exact size, so that the sanitizer sees every byte read past the end. */
        uint8_t *input = malloc(size > 0 ? size : 1);
        memcpy(input, buffer, size);
        LLVMFuzzerTestOneInput(input, size);
        free(input);
    }
    printf("%ld executions over %zu seeds\n", runs, seed_count);
    return 0;
}

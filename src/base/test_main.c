/*
 * test_main.c - main() of the unit test program: unit_tests [--list] [filter]
 */
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/test.h"

static TestCase *first_case;
static int failures_in_test;
static char temp_dir[64];

void test_register(TestCase *test) {
    test->next = first_case;
    first_case = test;
}

void test_fail(const char *file, int line, const char *fmt, ...) {
    failures_in_test++;
    if (failures_in_test > 10)
        return;
    va_list args;
    va_start(args, fmt);
    printf("  %s:%d: ", file, line);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

uint64_t test_seed(void) {
    const char *text = getenv("SHERD_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 0) : 20261115;
}

const char *test_temp_dir(void) {
    if (temp_dir[0] == '\0') {
        snprintf(temp_dir, sizeof(temp_dir), "/tmp/sherd-unit-XXXXXX");
        invariant(mkdtemp(temp_dir) != NULL);
    }
    static int count;
    static char path[96];
    snprintf(path, sizeof(path), "%s/%d", temp_dir, count++);
    char *command = xasprintf("mkdir -p %s", path);
    invariant(system(command) == 0);
    xfree(command);
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int compare_cases(const void *a, const void *b) {
    const TestCase *x = *(TestCase *const *)a, *y = *(TestCase *const *)b;
    int by_file = strcmp(x->file, y->file);
    return by_file != 0 ? by_file : strcmp(x->name, y->name);
}

int main(int argc, char **argv) {
    const char *filter = argc > 1 ? argv[1] : "";
    bool is_list = strcmp(filter, "--list") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);

    size_t count = 0;
    for (TestCase *test = first_case; test != NULL; test = test->next)
        count++;
    TestCase **cases = xcalloc(count, sizeof(*cases));
    size_t at = 0;
    for (TestCase *test = first_case; test != NULL; test = test->next)
        cases[at++] = test;
    qsort(cases, count, sizeof(*cases), compare_cases);

    int passed = 0, failed = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_list) {
            printf("%s %s\n", cases[i]->file, cases[i]->name);
            continue;
        }
        if (strstr(cases[i]->name, filter) == NULL && strstr(cases[i]->file, filter) == NULL)
            continue;
        failures_in_test = 0;
        int64_t start = clock_mono_us();
        cases[i]->run();
        int64_t ms = (clock_mono_us() - start) / 1000;
        if (failures_in_test == 0) {
            passed++;
            if (ms > 500)
                printf("ok   %s (%" PRId64 " ms)\n", cases[i]->name, ms);
        } else {
            failed++;
            printf("FAIL %s (seed %" PRIu64 ")\n", cases[i]->name, test_seed());
        }
    }
    xfree(cases);
    if (temp_dir[0] != '\0')
        nftw(temp_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (!is_list)
        printf("unit: %d passed, %d failed\n", passed, failed);
    return failed > 0;
}

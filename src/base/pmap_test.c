#include "base/pmap.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/test.h"

typedef struct Box {
    int refs;
    int number;
    char key[16];
} Box;

static int live_boxes;

static void *box_ref(void *value) {
    ((Box *)value)->refs++;
    return value;
}

static void box_unref(void *value) {
    Box *box = value;
    if (--box->refs == 0) {
        live_boxes--;
        xfree(box);
    }
}

static const PMapType BOXES = {box_ref, box_unref};

static Box *box_new(int number) {
    Box *box = NEW(Box);
    box->refs = 1;
    box->number = number;
    snprintf(box->key, sizeof(box->key), "k%06d", number);
    live_boxes++;
    return box;
}

static PMap *put(PMap *map, int number) {
    Box *box = box_new(number);
    PMap *next = pmap_put(map, &BOXES, box->key, strlen(box->key), box);
    box_unref(box);
    pmap_unref(map, &BOXES);
    return next;
}

static bool collect(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    int *state = arg;
    EXPECT(((Box *)value)->number >= state[0]);
    state[0] = ((Box *)value)->number + 1;
    state[1]++;
    return true;
}

TEST(pmap_versions_do_not_disturb_each_other) {
    /* Goal: an old version keeps its content through any later puts and removes, and nothing leaks.
     * Method: random puts and removes against an array model; one version is kept from the middle.
     */
    Prng prng = prng_seeded(test_seed());
    bool model[500] = {0}, kept_model[500];
    PMap *map = NULL, *kept = NULL;
    for (int step = 0; step < 20000; step++) {
        int number = (int)prng_below(&prng, 500);
        if (prng_below(&prng, 2) == 0) {
            map = put(map, number);
            model[number] = true;
        } else {
            char key[16];
            snprintf(key, sizeof(key), "k%06d", number);
            PMap *next = pmap_remove(map, &BOXES, key, strlen(key));
            pmap_unref(map, &BOXES);
            map = next;
            model[number] = false;
        }
        if (step == 10000) {
            kept = pmap_ref(map);
            memcpy(kept_model, model, sizeof(model));
        }
    }
    for (int i = 0; i < 500; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%06d", i);
        EXPECT((pmap_get(map, key, strlen(key)) != NULL) == model[i]);
        EXPECT((pmap_get(kept, key, strlen(key)) != NULL) == kept_model[i]);
    }
    int state[2] = {0, 0};
    pmap_for_each_from(map, "", 0, collect, state);
    EXPECT_EQ_U64((uint64_t)state[1], pmap_count(map));
    pmap_unref(map, &BOXES);
    pmap_unref(kept, &BOXES);
    EXPECT_EQ_I64(live_boxes, 0);
}

TEST(pmap_put_stays_cheap_with_100000_entries) {
    /* Goal (CAT-3): the cost of one change does not grow with the number of entries. */
    PMap *map = NULL;
    for (int i = 0; i < 100000; i++)
        map = put(map, i);
    int64_t start = clock_mono_us();
    for (int i = 0; i < 1000; i++)
        map = put(map, i * 97);
    int64_t us_each = (clock_mono_us() - start) / 1000;
    EXPECT(us_each < 200);
    pmap_unref(map, &BOXES);
}

#include "base/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"

/* The sanitizers follow the stack of a thread, and have to be told when it becomes another. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

static void enter(Fiber *fiber) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fiber->fake_stack, NULL, NULL);
#else
    (void)fiber;
#endif
}

/* makecontext passes ints. */
static void main_of_fiber(unsigned int high, unsigned int low) {
    Fiber *fiber = (Fiber *)((uintptr_t)high << 32 | low); /* NOLINT */
    enter(fiber);
    fiber->run(fiber->arg);
    panic("a fiber has returned");
}

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void fiber_init(Fiber *fiber, void (*run)(void *arg), void *arg) {
    *fiber = (Fiber){.stack_bytes = THREAD_STACK_BYTES, .run = run, .arg = arg};
    fiber->stack = mmap(NULL, fiber->stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED)
        panic("out of memory: no room for a stack of %zu bytes", fiber->stack_bytes);
    (void)mprotect(fiber->stack, page_bytes(), PROT_NONE); /* what runs over it is caught */
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = NULL;
    uintptr_t self = (uintptr_t)fiber;
    makecontext(&fiber->context, (void (*)(void))main_of_fiber, 2, (unsigned int)(self >> 32),
                (unsigned int)self);
#ifdef __SANITIZE_THREAD__
    fiber->sanitizer = __tsan_create_fiber(0);
#endif
}

void fiber_init_thread(Fiber *fiber) {
    *fiber = (Fiber){0};
#ifdef __SANITIZE_THREAD__
    fiber->sanitizer = __tsan_get_current_fiber();
#endif
#ifdef __SANITIZE_ADDRESS__
    pthread_attr_t attr;
    pthread_getattr_np(pthread_self(), &attr);
    void *stack;
    pthread_attr_getstack(&attr, &stack, &fiber->stack_bytes);
    fiber->arg = stack;
    pthread_attr_destroy(&attr);
#endif
}

void fiber_done(Fiber *fiber) {
    if (fiber->stack == NULL)
        return;
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(fiber->sanitizer);
#endif
    munmap(fiber->stack, fiber->stack_bytes);
    fiber->stack = NULL;
}

void fiber_switch(Fiber *from, Fiber *to) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack != NULL ? to->stack : to->arg,
                                   to->stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    swapcontext(&from->context, &to->context);
    enter(from);
}

/*
 * fiber.h - a stack of its own for a computation that is left in the middle and gone on with later,
 * by the same thread or by another.
 *
 * Leaving one fiber for another is a function call that returns when somebody comes back: no thread
 * sleeps, and none has to be woken. What is on the stack stays; what belongs to the thread does not
 * come along. So between leaving and coming back a function must hold no mutex and must not keep
 * the address of anything that is per thread, of which errno is one: the compiler may keep it for a
 * whole function. Functions that use errno around a call that may leave are kept out of line.
 *
 * Threading: a fiber is run by one thread at a time. That all of it has been left before another
 *            thread comes back to it is the caller's business (fiber_switch has to return elsewhere
 *            first).
 */
#pragma once

#include <stddef.h>
#include <ucontext.h>

typedef struct Fiber {
    ucontext_t context;
    void *stack; /* NULL: the stack of a thread */
    size_t stack_bytes;
    void *sanitizer; /* what the thread sanitizer knows it by */
    void *fake_stack;
    void (*run)(void *arg);
    void *arg;
} Fiber;

/* A fiber that begins in `run`, which must not return, when it is first switched to. */
void fiber_init(Fiber *fiber, void (*run)(void *arg), void *arg);
/* Of the thread that calls: something to come back to. */
void fiber_init_thread(Fiber *fiber);
/* Of one that nobody is in, or that has been left for good. */
void fiber_done(Fiber *fiber);

/* Leaves `from`, which is where the caller is, for `to`. */
void fiber_switch(Fiber *from, Fiber *to);

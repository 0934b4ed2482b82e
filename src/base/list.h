/*
 * list.h - intrusive doubly linked list: the link lives in the element.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct ListNode {
    struct ListNode *prev;
    struct ListNode *next;
} ListNode;

typedef struct List {
    ListNode head; /* circular; an empty list points to itself */
} List;

static inline void list_init(List *list) {
    list->head.prev = list->head.next = &list->head;
}

static inline bool list_is_empty(const List *list) {
    return list->head.next == &list->head;
}

static inline void list_insert_before(ListNode *at, ListNode *node) {
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_push_back(List *list, ListNode *node) {
    list_insert_before(&list->head, node);
}

static inline void list_push_front(List *list, ListNode *node) {
    list_insert_before(list->head.next, node);
}

/* Leaves the node unlinked: removing it twice is harmless. */
static inline void list_remove(ListNode *node) {
    if (node->next == NULL)
        return;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
}

static inline ListNode *list_first(const List *list) {
    return list_is_empty(list) ? NULL : list->head.next;
}

static inline ListNode *list_last(const List *list) {
    return list_is_empty(list) ? NULL : list->head.prev;
}

#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* `node` may be removed inside the loop. */
#define LIST_FOR_EACH(list, node)                                                                  \
    for (ListNode *node = (list)->head.next, *node##_next = node->next; node != &(list)->head;     \
         node = node##_next, node##_next = node->next)

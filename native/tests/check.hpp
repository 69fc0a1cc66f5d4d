// One-line checks for the native tests: the first failure prints where and stops the program.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

#define CHECK_THROWS(type, expression)                                          \
  do {                                                                          \
    bool caught = false;                                                        \
    try {                                                                       \
      (void)(expression);                                                       \
    } catch (const type&) {                                                     \
      caught = true;                                                            \
    }                                                                           \
    if (!caught) {                                                              \
      std::fprintf(stderr, "%s:%d: %s did not throw\n", __FILE__, __LINE__, #expression); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

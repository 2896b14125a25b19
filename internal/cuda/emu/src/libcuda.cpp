// The emulated driver, compiled in one go: the standard headers are most of it.
#include "context.cpp"
#include "stream.cpp"
#include "graph.cpp"
#include "memory.cpp"
#include "copy.cpp"
#include "launch.cpp"
#include "fault.cpp"

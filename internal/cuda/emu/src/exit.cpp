// Part of each library: its static objects are never destroyed. Threads use them until the process ends: streams, the watchdog, those of
// connections. The end of a Go program calls no destructors, but under the race detector it does: it calls exit.
// This takes the place of the C library's function that remembers them.
extern "C" int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }

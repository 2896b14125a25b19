// libnccl.so.2 stand-in, in one translation unit.
#include "nccl_move.cpp"
#include "nccl_link.cpp"
#include "nccl_calls.cpp"

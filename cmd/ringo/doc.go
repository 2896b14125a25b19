// Command ringo starts distributed training on this host.
//
//	ringo run -n 4 -timeout 5s ./examples/ddp-mnist -epochs 1
//
// starts the program as four processes, one per rank. Programs that use dist.Run find each other by the environment that
// ringo sets. `ringo run -h` has the details.
package main

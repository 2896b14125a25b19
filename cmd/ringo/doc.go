// Command ringo starts distributed training on this host, and shows what collectives do.
//
//	ringo run -n 4 -timeout 5s ./examples/ddp-mnist -epochs 1
//
// starts the program as four processes, one per rank. The processes find each other by the variables that ringo sets for dist.Run. With
// -serve 4242 a web page shows the job while it runs: loss, throughput, memory, communication, slow ranks, output.
//
//	ringo viz allreduce -algo ring -ranks 4 -o ring.svg
//
// draws the messages of a collective, step by step. "ringo viz schedule 1f1b -stages 4 -microbatches 8 -o 1f1b.svg" draws a schedule of
// pipeline parallelism, "ringo viz ddp -o ddp.svg" what the buckets of package ddp hide.
//
//	ringo bench -ops allreduce -sizes 4,64K-16M -ranks 2,4 -backend local,tcp -plot bench.svg
//	ringo topo
//
// measure the speed of collectives, and of links between ranks, on this machine or in this job.
//
//	ringo sim -algo ring,double-tree,hierarchical -ranks 8..512 -topo hgx-h100
//
// runs collectives of thousands of ranks on a network that is not there (package sim), and says which algorithm is the fastest.
//
//	ringo doctor
//
// shows what this machine has, with GPUs and their libraries, what is missing, and how to get it.
//
//	ringo plan -layers 24 -dim 1024 -heads 16 -batch 512 -layout dp=4,fsdp=16,tp=2 -stage 2 -params bfloat16
//
// predicts the memory of a rank and the bytes that a step sends, with the formulas. It starts nothing.
//
//	ringo compare './examples/gpt -steps 3' './examples/gpt -steps 3 -tp 2 -sp'
//
// trains with two layouts and compares the norms of gradients, parameter by parameter. It names the first one that differs.
//
//	ringo plot -o both.svg -names loss one=one.jsonl other=other.jsonl
//
// draws the values of several trainings in one picture.
//
//	ringo trace merge -o trace.json trace-*.json
//	ringo trace summary trace.json
//
// join the timelines of ranks on one clock, and show where the time went and which rank was late.
//
//	ringo ckpt verify checkpoints/step-00000100
//
// checks whether a checkpoint is sound. Other commands are ls, diff and convert. `ringo COMMAND -h` has the details.
package main

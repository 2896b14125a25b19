// Package training says what training takes on a network of package sim: a step of a transformer, by its sizes and layout, a backward pass
// with the buckets of package ddp, and a step that was recorded on another network.
//
//	top, err := sim.Open("hgx-h100")
//	s := training.Step{Layers: 12, Hidden: 768, Seq: 1024, Vocab: 50257, Batch: 64, Micro: 8, TP: 1, PP: 1, DP: 8, Chunks: 1,
//		ParamBytes: 2, GradBytes: 4, FLOPS: 400e12}
//	x, err := s.On(&sim.Library{Topology: top})
//	fmt.Println(x.Total())
//
// # Files
//
//	step.go      Step: compute, and the collectives of a library for GPUs, added up
//	backward.go  Backward: all-reduces while ranks compute
//	replay.go    Replay: the programs of all ranks, see package timeline
package training

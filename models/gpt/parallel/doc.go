// Package parallel divides the models of package gpt over ranks, by all forms of parallelism at once: tensor, expert, sequence and data
// parallelism. Their order matters, and it is here.
//
//	layout := parallel.Layout{DP: 2, FSDP: 2, TP: 4}
//	mesh, err := r.Mesh(layout.Mesh(m.Config.KVHeads))
//	a, err := parallel.Attach(mesh, m, parallel.Config{FSDP: &fsdp.Config{DType: tensor.Float32, Seed: seed}})
//	loss := a.Loss(m.Forward(tape.Input(a.Part(ids))), a.Part(labels))
//
// With packed documents, ids and labels are cut by them where ranks share sequences:
//
//	ids, docs := gpt.Documents(b.X)
//	loss := a.FeatureLoss(m.Features(tape.Input(a.Part(ids, docs...)), docs...), a.Part(b.Y, docs...))
//
// Each rank brings the rows of its place in Attached.Data. For models of your own, Attach and Divide are examples to copy.
package parallel

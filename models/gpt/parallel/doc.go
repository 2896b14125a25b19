// Package parallel divides the models of package gpt over ranks, by all forms of parallelism at once: pipeline, data, sharded data (fsdp),
// expert, context (ring and Ulysses) and tensor parallelism, the last one with or without sequence parallelism. Their order matters, and it
// is here.
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
// Each rank brings the rows of its place in Attached.Data. With stages of a pipeline, their layers are chosen first, and the pipeline
// begins last. This is a model with experts on 32 ranks (ExamplePipeline has all of it):
//
//	layout := parallel.Layout{PP: 2, FSDP: 2, EP: 2, Ring: 2, TP: 2}
//	mesh, err := r.Mesh(layout.Mesh(m.Config.KVHeads))
//	p, err := parallel.NewPipeline(mesh.Group("pp"), pp.OneF1B(2, 4), m)
//	shards := &fsdp.Config{DType: tensor.Float32, Seed: seed, OncePerStep: true}
//	a, err := parallel.Attach(mesh, m, parallel.Config{Sequence: true, FSDP: shards})
//	opt := optim.NewAdamW(a.Params, optim.AdamWConfig{LR: 3e-4, Clip: 1, Norm: r.World})
//	err = p.Start(a, opt, train, eval) // two tapes
//	loader := data.NewLoader(set, data.Config{Batch: 16, Sharder: a.Data})
//	loss, err := p.Train(b) // of a batch of the loader; then opt.Step
//
// For models of your own, Attach and Divide are examples to copy.
package parallel

// Package cp divides sequences over ranks: context parallelism, for sequences whose activations do not fit on one rank.
//
//	mesh, err := r.World.Mesh("dp=2,cp=2")
//	u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: m.Config.HeadDim}
//	for _, b := range m.Blocks {
//		b.Attn.Spread, b.Attn.Join = u.ToHeads(), u.ToPositions()
//	}
//	params, err := ddp.Attach(mesh.Group("dp", "cp"), m, ddp.Config{}) // other rows, and other positions
//	loader := data.NewLoader(set, data.Config{Sharder: mesh.Group("dp")}) // ranks of cp have the same rows
//	loss := nn.CrossEntropy(m.Forward(tape.Input(u.Part(b.X))), u.Part(b.Y))
//
// Each rank has all parameters, and a part of the positions of each sequence. Norms, linear layers and losses work on
// positions one by one, so that ranks with other positions are like ranks with other rows: ddp or fsdp sums their
// gradients. Only attention needs the other positions.
//
// Ulysses (Jacobs et al. 2023, "DeepSpeed Ulysses") exchanges its queries, keys and values by an all-to-all, so that each rank has whole
// sequences of some heads, and takes the result back by another one. With A bytes of queries, as many of the result, and K of keys and
// values, over all ranks, a layer sends (2A + K)(n-1)/n bytes forward and as many backward, over all ranks: less with more ranks, each of
// them. The ranks must divide the heads, those of keys and values too.
//
// Learned and rotary positions, dropout and losses go by the place in the whole (tensor.Rows), which Part says. A program that forgets the
// exchange, or that sums gradients over ranks with other rows alone, is refused.
package cp

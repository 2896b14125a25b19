// Package cp divides sequences over ranks: context parallelism. Use it for sequences whose activations do not fit on one rank.
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
// Each rank has all parameters, and some positions of each sequence. Norms, linear layers and losses work on one position at a
// time. So ranks with other positions are like ranks with other rows, and ddp or fsdp sums their gradients. Only attention needs
// the positions of the other ranks.
//
// Ulysses (Jacobs et al. 2023, "DeepSpeed Ulysses") does an all-to-all of queries, keys and values before attention. Then each rank has
// all positions for some of the heads. A second all-to-all, after attention, brings the result back. Let A be the bytes of the queries
// over all ranks (the result has as many), and K those of keys and values. A layer sends (2A + K)(n-1)/n bytes over all ranks in the
// forward pass, and as many in the backward pass. With more ranks, each rank sends less.
//
// The number of heads, also that of keys and values, must be a multiple of the number of ranks.
//
// Positions (learned and rotary), dropout and losses use the place in the whole sequence (tensor.Rows), which Part sets. A program
// without the exchange around attention is refused, and so is one that sums gradients over dp alone.
package cp

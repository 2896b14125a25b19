// Package cp divides sequences over ranks: context parallelism. Use it for sequences whose activations do not fit on one rank.
//
//	mesh, err := r.World.Mesh("dp=2,ring=2")
//	f := &cp.Ring{Group: mesh.Group("ring"), HeadDim: m.Config.HeadDim}
//	for _, b := range m.Blocks {
//		b.Attn.Mix = f
//	}
//	params, err := ddp.Attach(mesh.Group("dp", "ring"), m, ddp.Config{}) // other rows, and other positions
//	loader := data.NewLoader(set, data.Config{Sharder: mesh.Group("dp")}) // ranks of ring have the same rows
//	loss := nn.CrossEntropy(m.Forward(tape.Input(f.Part(b.X))), f.Part(b.Y))
//
// Each rank has all parameters, and some positions of each sequence. Norms, linear layers and losses work on one position at a
// time. So ranks with other positions are like ranks with other rows, and ddp or fsdp sums their gradients. Only attention needs
// the positions of the other ranks. There are two ways, and both at once. Let A be the bytes of the queries over all ranks (the result has
// as many), K those of keys and values, and n the number of ranks.
//
// Ring (Liu et al. 2023, "Ring Attention with Blockwise Transformers") sends keys and values around the ranks. While a rank multiplies its
// queries with the keys of one rank, those of the next come. A layer sends K(n-1) bytes over all ranks in the forward pass, and K(2n-1) in
// the backward pass: the keys again, and their gradients (these in Float32, so twice as many bytes if keys have 16 bits). The number of
// heads is free. Sequences are cut into 2n runs, of which a rank has an early and a late one, so that all have as much to compute.
//
// Ulysses (Jacobs et al. 2023, "DeepSpeed Ulysses") does an all-to-all of queries, keys and values before attention. Then each rank has
// all positions for some of the heads. A second all-to-all, after attention, brings the result back: set Attn.Spread to ToHeads and
// Attn.Join to ToPositions. A layer sends (2A + K)(n-1)/n bytes in the forward pass, and as many in the backward pass. The number of heads,
// also that of keys and values, must be a multiple of the number of ranks.
//
// With n ranks that have as many heads of keys as of queries (K = 2A), Ulysses sends less. With few heads of keys, the ring sends little,
// or is the only way. It hides what it sends behind products, if these take longer; Ulysses waits.
//
// Unified does both (Fang and Zhao 2024, "USP"): ranks of a host exchange heads, and a ring goes between hosts. With u ranks that exchange,
// (2A + K)(u-1)/u bytes stay in hosts in each direction, and the ring sends what it sends with n/u ranks. The heads limit u alone.
//
// Positions (learned and rotary), dropout of hidden values and losses use the place in the whole sequence (tensor.Rows), which Part sets. A
// program without the exchange or the ring in attention is refused, and so is one that sums gradients over dp alone.
//
// Experts (package moe) take tokens in any order, so they may be beside a ring. A Capacity, and a balance loss of sequences, need the
// order, and are refused there: with Ulysses they are not.
//
// In a mesh, ring is the axis of a Ring, and cp that of Ulysses, also in the two Layouts (packages plan and models/gpt/parallel).
//
// Read cuts.go first: where a sequence is cut, which keys a rank sees, and how far they go. part.go takes a rank's positions. ring.go has
// the ring, documents.go what it can leave out where sequences have several documents. ulysses.go and unified.go are the other ways.
package cp

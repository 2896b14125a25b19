// Package tp divides the layers of a model over ranks: tensor parallelism (Shoeybi et al. 2019, "Megatron-LM"), and sequence
// parallelism beside it (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models").
//
//	mesh, err := r.World.Mesh("dp=2,tp=2")
//	err = tp.Parallelize(m, tp.Config{Group: mesh.Group("tp")}, func(p *tp.Parallel) {
//		p.Vocab(m.Tok)
//		for _, b := range m.Blocks {
//			b.Norm1 = p.Heads(b.Norm1, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
//			p.Row(b.Attn.Out)
//			b.Norm2 = p.Columns(b.Norm2, mlp.Up)
//			p.Row(mlp.Down)
//		}
//		m.Norm = p.Columns(m.Norm, m.Head)
//	})
//	params, err := ddp.Attach(mesh.Group("dp"), m, ddp.Config{}) // or fsdp's: it sums gradients over ranks with other rows
//
// # What is cut
//
// Two linear layers, one after another, are cut so that only their end needs the other ranks. Of the first each rank has some outputs
// (Columns: rows of W, which is [out, in]); of the second the inputs that these are (Row: columns of W), so that it gives a part of a
// sum. What lies between them, an activation or attention by heads, works on what the rank has.
//
//	x ──Copy──▶ fc1, some columns ──▶ GELU ──▶ fc2, some rows ──Sum──▶ y
//
// Copy does nothing forward and sums the gradient over the ranks backward; Sum does the reverse. That is two all-reduces of the
// activations a layer of attention and MLP forward, and two backward. The bias of the second layer is added once, behind the sum.
//
// Of a table of words each rank has some (Vocab), and so of the logits. CrossEntropy computes the loss from them: it exchanges three
// numbers a token, and not the vocabulary.
//
// # Sequence parallelism
//
// Between these pairs of layers every rank computes the same, on all tokens. With Config.Sequence each rank has a part of the tokens
// there, flat and in their order: Copy and Sum become AllGather and ReduceScatter, and norms and residual streams take 1/n of the memory. A
// parameter that is used there has a gradient that lacks a sum over the ranks; Parallelize adds it (tensor.Param.Through). What columns
// read is gathered again for the gradients of their weights: a layer sends 4A(n-1)/n forward and 6A(n-1)/n backward.
//
// With Config.Chunks tokens travel in pieces while layers compute, own tokens first: asynchronous tensor parallelism. No bit changes. It
// helps over a network or between GPUs that copy while they compute; goroutine ranks only switch more often.
//
// # Keys and values with fewer heads than ranks
//
// Heads of queries must divide by the ranks. Where there are fewer heads of keys and values, several ranks have the same ones: give
// the two groups, Config.KV and Config.Replicas, of a mesh such as "kv=2,rep=2".
//
// # Beside other things
//
// Give adapters (nn.LoRA) before Parallelize: they are divided with their layers. Checkpoints hold whole tensors, whatever the ranks, and
// note how these were cut; each rank reads its part of them, and of Hugging Face's files. Blocks may be computed again in backward
// (tensor.Tape.Checkpoint). Clipping needs the norm over all ranks: optim's Config.Norm is r.World.
//
// # What is refused
//
// The types of tensors over the mesh (docs/TYPES.md) refuse a Column without its Row, a loss of a part of the vocabulary, and other
// programs whose gradients would be wrong. Heads that do not divide are an error that says what would. The first loss compares what the
// ranks are given: labels, rows of the batch, and random numbers.
package tp

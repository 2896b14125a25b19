// Package tp divides the layers of a model over ranks: tensor parallelism (Shoeybi et al. 2019, "Megatron-LM"), with or without
// sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models").
//
// Call Parallelize first, then ddp.Attach or fsdp's, which sum gradients over ranks with other rows:
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
//	params, err := ddp.Attach(mesh.Group("dp"), m, ddp.Config{})
//
// # What is divided
//
// Two linear layers that follow each other are divided so that ranks communicate only after the second one. Each rank has some outputs
// of the first layer (Columns: rows of W, which is [out, in]). The second layer takes these as its inputs (Row: columns of W), and gives a
// part of a sum. What lies between them, an activation or attention by heads, works on what the rank has.
//
//	x ──Copy──▶ fc1, some columns ──▶ GELU ──▶ fc2, some rows ──Sum──▶ y
//
// Copy does nothing forward, and sums the gradient over the ranks backward. Sum does the reverse. So a block of attention and MLP
// does two all-reduces of the activations forward, and two backward. The bias of the second layer is added once, after the sum.
//
// The embedding is divided by words (Vocab), and so are the logits. CrossEntropy computes the loss from divided logits: it exchanges
// three numbers for each token, not the logits.
//
// # Sequence parallelism
//
// Between these pairs of layers, every rank computes the same on all tokens. With Config.Sequence each rank has a part of the tokens
// there, flat and in their order. Copy becomes AllGather, and Sum becomes ReduceScatter. Norms and residual streams take 1/n of the
// memory. The gradient of a parameter that is used there must be summed over the ranks: Parallelize does this (tensor.Param.Through).
// The input of Columns is gathered again for the gradients of weights. Let A be the bytes of activations of all tokens, and n the number of
// ranks. Then each rank sends 4A(n-1)/n bytes in a block forward, and 6A(n-1)/n backward.
//
// With Config.Chunks tokens are sent in pieces while layers compute, own tokens first: asynchronous tensor parallelism. The results have
// the same bits. It helps over a network, and between GPUs, which copy while they compute. It does not help goroutine ranks.
//
// # Keys and values with fewer heads than ranks
//
// The number of query heads must be a multiple of the number of ranks. If there are fewer heads of keys and values than ranks, several
// ranks hold the same ones. Then give the two groups of a mesh such as "kv=2,same=2": Config.KV and Config.Replicas.
//
// # With other features
//
//   - Adapters (nn.LoRA): add them before Parallelize. They are divided with their layers.
//   - Checkpoints hold whole tensors, and note how they were divided. Each rank reads its part of them, also from Hugging Face's files.
//   - Blocks may be computed again in backward (tensor.Tape.Checkpoint).
//   - Clipping needs the norm over all ranks: set Norm of the optimizer's configuration to r.World.
//
// # What is refused
//
// Columns without Row, a loss of a part of the vocabulary, and other programs whose gradients would be wrong are errors (docs/TYPES.md).
// If the ranks do not divide the heads, the error says which number of ranks would. At the first loss, ranks compare their labels, the rows
// of their batch, and their random numbers. These must be equal.
//
// # Files
//
// Read naive.go first: Naive gathers each parameter before its use, and divides no computation. Tests compare Parallelize with it.
// parallel.go divides layers: Columns, Row, Heads, Vocab. sequence.go has what Config.Sequence puts between them, loss.go the loss of
// divided logits. dropout.go says which elements of a whole tensor a rank drops.
package tp

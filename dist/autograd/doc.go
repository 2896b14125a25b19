// Package autograd has collectives with gradients: Functions for tensor.Tape.Apply, and for the Pre and Post of layers. Use them to
// divide layers by hand. Packages tp, cp and moe do it for whole models.
//
// The gradient of a collective is another collective, so they come in pairs. Copy and Sum are f and g of Shoeybi et al. 2019,
// "Megatron-LM". AllGather and ReduceScatter are the pair for sequence parallelism of Korthikanti et al. 2022, "Reducing Activation
// Recomputation in Large Transformer Models".
//
//	Function       forward         backward        input → output            bytes, forward + backward, over all n ranks
//	Copy           nothing         all-reduce      invariant → replicated    0 + 2(n−1)·S
//	Sum            all-reduce      nothing         partial, cut → invariant  2(n−1)·S + 0
//	AllReduce      all-reduce      all-reduce      partial, cut → replicated 2(n−1)·S + 2(n−1)·S
//	AllGather      all-gather      reduce-scatter  varying → replicated      (n−1)·S + (n−1)·S
//	ReduceScatter  reduce-scatter  all-gather      partial, cut → varying    (n−1)·S + (n−1)·S
//	Split          nothing         all-gather      invariant → varying       0 + (n−1)·S
//	Gather         all-gather      nothing         varying, cut → invariant  (n−1)·S + 0
//	AllToAll       all-to-all      all-to-all      varying ↔ cut             S − kept + S − kept
//
// S is the bytes of the whole tensor: the input of Copy, Sum, Split and ReduceScatter, the output of the gathers, and for AllToAll the
// inputs of all ranks together, without the parts that they keep. The types are those of tensor.Kind on the group's axes. The gradient of
// a replicated tensor is a partial sum. An invariant tensor has the same gradient on all ranks.
//
// The types say which Function is needed. A column-parallel layer (each rank has some columns of the output) reads a tensor that is the
// same on all ranks, and each rank has a part of its gradient: put Copy before the layer. A row-parallel layer gives a part of the sum:
// put Sum after it. With sequence parallelism, AllGather and ReduceScatter take their places. What lies between them, such as norms and
// dropout, works on a part of the tokens:
//
//	up.Pre, down.Post = &autograd.Copy{Group: g}, &autograd.Sum{Group: g}                    // whole tokens outside
//	up.Pre, down.Post = &autograd.AllGather{Group: g}, &autograd.ReduceScatter{Group: g}     // parts of them outside
//
// TokenGather and TokenScatter are the same two along the first dimension, for use with matrix products. TokenGather does not keep what
// it gathers. It gathers again for the gradient of weights: (n−1)·S more in backward. Both can send in pieces while products compute.
//
// Split begins a part with divided tokens where all ranks have all tokens, such as after an embedding. Gather ends it if all ranks then
// compute the same. In that case each rank has the whole gradient, and takes its part without a collective. AllGather is for ranks that
// then compute different things.
//
// A parameter may be whole on each rank, but used on a part of the tokens: a norm's weight under sequence parallelism, or the bias of a
// row-parallel layer there. Then its gradient must be summed over the ranks. Copy does this: p.Through(&autograd.Copy{Group: g}).
//
// Backward issues its collective and does not wait. The tape computes other gradients, such as those of weights, and waits where this one
// is read (Ctx.Pending). Forward waits in the order of the device, because the next operation reads the output. If the dimension is not
// the first one, parts are reordered before or after the collective. Then Backward of ReduceScatter and of AllToAll waits, too. A group
// of one rank communicates and copies nothing.
//
// All ranks of the group must apply the same Functions in the same order, with the same counts. Functions allocate nothing after their
// first step. Use pointers to them: a Function is an interface, and a struct in it would be allocated in each Apply.
//
// disttest.Adjoint tests the Backward and the Types of a Function against its Forward. Use it for your own Functions.
//
// Files:
//
//	pairs.go      Copy, Sum, AllGather, ReduceScatter, AllToAll
//	allreduce.go  AllReduce; invariant.go: Split, Gather; tokens.go: TokenGather, TokenScatter
//	types.go      the types of their inputs and outputs
//	cut.go        how a tensor is cut into the parts of ranks
package autograd

// Package autograd has collectives that are differentiated: Functions for tensor.Tape.Apply, and for the Pre and Post of
// layers. The gradient of a collective is another one, and so they come in pairs (Shoeybi et al. 2019, "Megatron-LM", names the
// first one f and g; Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", has the second one
// for sequence parallelism).
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
// S is the bytes of the whole tensor: of what Copy, Sum and Split have, of what the gathers make and ReduceScatter reads, and of what all
// ranks together give to AllToAll, less the parts that they keep. The types are those of tensor.Kind on the group's axes: what is
// replicated has a gradient that is a partial sum; what is invariant has the same gradient on all ranks.
//
// Which one is needed follows from the types. A column-parallel layer (each rank has some columns of the output) reads what is
// the same on all ranks, and each rank's gradient of it is a part: Copy before it. A row-parallel layer gives a part of the
// sum: Sum behind it. With sequence parallelism the same places hold AllGather and ReduceScatter, and what lies between them,
// such as norms and dropout, works on a part of the tokens:
//
//	up.Pre, down.Post = &autograd.Copy{Group: g}, &autograd.Sum{Group: g}                    // whole tokens outside
//	up.Pre, down.Post = &autograd.AllGather{Group: g}, &autograd.ReduceScatter{Group: g}     // parts of them outside
//
// TokenGather and TokenScatter are these two along the first dimension, beside products: the first one does not keep what it gathers, and
// gathers again for the gradient of weights, (n−1)·S more in backward; both can send in pieces while products compute.
//
// Split begins such a part where all ranks have the tokens, behind an embedding, say, and Gather ends it for what they then compute
// alike: each of them has the whole gradient then, and takes its part without a collective. AllGather is for what they compute
// differently.
//
// A parameter that is whole on each rank, but used on a part of the tokens (a norm's weight under sequence parallelism, the bias of a
// row-parallel layer there), has a gradient that lacks a sum. Copy at its use is that sum: p.Through(&autograd.Copy{Group: g}).
//
// Backward issues its collective and does not wait: the tape goes on with other gradients, such as those of weights, and waits where
// this one is read (Ctx.Pending). Forward waits in the order of the device, because the next operation reads the output. Along
// another dimension than the first one, parts have to be put in order around the collective: Backward of ReduceScatter and of AllToAll then
// waits too. A group of one rank communicates and copies nothing. All ranks of the group apply the same Functions in the
// same order, with the same counts. After their first step they allocate nothing. Use pointers to them: a Function is an
// interface, and a struct in it would be allocated in each Apply.
//
// disttest.Adjoint proves a Function's Backward and its Types against its Forward: use it for your own.
package autograd

// Package nn holds layers, losses and the names of parameters.
//
// A model is a Go struct whose fields are layers, and a Forward method that calls theirs:
//
//	type Block struct {
//		Norm1, Norm2 *nn.LayerNorm
//		Attn         *nn.Attention
//		MLP          *nn.MLP
//	}
//
//	func (b *Block) Forward(x nn.T) nn.T {
//		x = x.Add(b.Attn.Forward(b.Norm1.Forward(x)))
//		return x.Add(b.MLP.Forward(b.Norm2.Forward(x)))
//	}
//
// Forward may have any signature; the interface [Layer] is there for [Sequential] only. A layer knows neither tape nor
// device: it finds both through its input, which comes from Tape.Input.
//
// # Names
//
// [ParamsOf] walks a model's fields in order and names each parameter by its path, as PyTorch does: "attn.qkv.weight",
// "blocks.0.norm1.bias". A field's name becomes lower_snake; elements of slices are numbers; an embedded struct adds
// nothing. A tag changes that:
//
//	QKV *nn.Linear `nn:"c_attn"`            // the name in somebody else's checkpoint
//	QKV *nn.Linear `nn:"c_attn,transposed"` // files hold its matrix as [in, out], as GPT-2's do
//	aux *Teacher   `nn:"-"`                 // not a part of the model
//	Fit *Probe     `nn:",inline"`           // adds nothing to the names below it, as an embedded struct
//
// Where a tag cannot say how files keep parameters, the model is a [Storer]. An example are keys and values that are
// one parameter here and two tensors there. Names in messages, and random numbers, stay those of the fields.
//
// A parameter that is reached twice (tied weights) counts once, under its first name. A parameter that can be reached
// only through an unexported field or a map would not train, and nothing would say so. So the walk panics.
//
// # Values
//
// Constructors make shapes only. [Init] makes values, which depend on the seed, the parameter's name and the element's
// index alone, and so does each Attach of the parallel packages, shard by shard. The distributions are PyTorch's
// defaults; to have others, replace the parameter:
//
//	l.W = tensor.NewParam(tensor.NormalInit(0, 0.02), out, in)
//
// # Parallelism
//
// Layers name no parallelism. What a parallel package needs is neutral: [Linear] and [Embedding] call a Function before
// or after themselves, and sizes that sharding changes (the number of heads) are read from the activations.
package nn

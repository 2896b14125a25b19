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
// If a tag cannot say how files store parameters, make the model a [Storer]. One example: keys and values are one
// parameter in the model, and two tensors in the file. Names in messages, and random numbers, stay those of the fields.
//
// A parameter that is reached twice (tied weights) counts once, under its first name. A parameter that can be reached
// only through an unexported field or a map is refused: the walk panics, because the parameter would not train.
//
// # Values
//
// Constructors make shapes only. [Init] makes values. The Attach functions of the parallel packages make the same values, shard
// by shard, because a value depends only on the seed, the parameter's name and the element's index. The distributions are
// PyTorch's defaults. To have another one, replace the parameter:
//
//	l.W = tensor.NewParam(tensor.NormalInit(0, 0.02), out, in)
//
// # Parallelism
//
// Layers do not depend on the parallel packages. [Linear], [Embedding], [Core], [BatchNorm2d] and [Dropout] have places for Functions,
// or for parts of a layer, which a parallel package sets. Sizes that sharding changes (the number of heads) are read from the activations.
package nn

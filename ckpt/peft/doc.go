// Package peft exchanges LoRA adapters (nn.LoRA) with Hugging Face's PEFT: a folder with adapter_config.json and
// adapter_model.safetensors.
//
// To go on from adapters of PEFT's, or to use them:
//
//	m, err := gpt.Open(base)                // the model without values
//	adapters, err := peft.Apply(m, dir)     // as adapter_config.json says; before Init or an Attach
//	params := nn.Init(m, dev, tensor.Float32, 0)
//	_, err = ckpt.Load(ctx, g, base, &ckpt.State{Params: params.Frozen()}, m.LoadConfig())
//	_, err = ckpt.Load(ctx, g, filepath.Join(dir, peft.File), &ckpt.State{Params: adapters}, ckpt.LoadConfig{Cast: true})
//
// To give adapters away, save a checkpoint of them alone, which is what a training goes on from too, and Export it:
//
//	err := saver.Save(ctx, ckpt.State{Step: step, Params: adapters, Optimizer: opt})
//	err = peft.Export(m, path, "adapters") // on one rank
//
// The model must be an nn.Storer that names its adapters as PEFT does; models/gpt is.
//
// What PEFT can do and this package does not, such as DoRA, ranks that differ by layer or trained biases, is refused by name.
package peft

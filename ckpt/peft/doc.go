// Package peft exchanges LoRA adapters (nn.LoRA) with Hugging Face's PEFT: a folder with adapter_config.json and
// adapter_model.safetensors.
//
// To load PEFT's adapters, for training or for inference:
//
//	m, err := gpt.Open(base)                // the model without values
//	adapters, err := peft.Apply(m, dir)     // as adapter_config.json says; before Init or an Attach
//	params := nn.Init(m, dev, tensor.Float32, 0)
//	_, err = ckpt.Load(ctx, g, base, &ckpt.State{Params: params.Base()}, m.LoadConfig())
//	_, err = ckpt.Load(ctx, g, filepath.Join(dir, peft.File), &ckpt.State{Params: adapters}, peft.LoadConfig(m))
//
// To write adapters for PEFT, save a checkpoint of the adapters alone, and Export it. Training can also resume from
// this checkpoint:
//
//	err := saver.Save(ctx, ckpt.State{Step: step, Params: adapters, Optimizer: opt})
//	err = peft.Export(m, path, "adapters") // on one rank
//
// The model must be an nn.Storer that names its adapters as PEFT does. models/gpt is one.
//
// The command ringo ckpt merge makes a model without adapters of a base and a folder of PEFT.
//
// Targets are a list, a regular expression that Go can read, or all-linear, which takes routers of experts, too. target_parameters may
// name weights of these, as PEFT does with routers. Matrices of the files
// that are several layers here, GPT-2's c_attn and Phi-3's qkv_proj and gate_up_proj, have one adapter (nn.LoRA).
// base_model_name_or_path is the folder that gpt.Open read. The parameters of modules_to_save (nn.LoRAConfig.Save) are among
// the adapters, and in params.Base(), as both files have them.
//
// If the folder uses a feature of PEFT that this package does not have, the error names it: DoRA, ranks that differ by
// layer, trained biases and others.
package peft

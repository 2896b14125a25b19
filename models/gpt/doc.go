// Package gpt is a family of transformers for text: GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023), and what followed it:
// Mistral, Qwen2, Qwen3, Phi-3, SmolLM3, Gemma 2 and Gemma 3, and with experts Mixtral and Qwen3-MoE. A setting of their files that is not
// computed exactly is an error that names it.
//
//	m, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 256, Positions: 128, Width: 128, Layers: 4, Heads: 4, KVHeads: 2})
//	nn.Init(m, dev, tensor.Float32, seed)            // or Attach of ddp or fsdp
//	loss := nn.CrossEntropy(m.Forward(tape.Input(ids)), labels)
//
//	for id := range m.Generate(dev, prompt, decode.Sampling{Tokens: 100, Temperature: 0.8, Seed: 1}) { ... }
//
// A model in a folder with Hugging Face's layout can be opened with any parallel layout; each rank reads its part:
//
//	m, err := gpt.Open(dir)
//	params, err := ddp.Attach(r.World, m, ddp.Config{})
//	_, err = ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
//
// transformers opens what a ckpt.Saver writes, if it writes Files, too.
//
// What the kinds are in files, and what is refused by name:
//
//	gpt2, llama   attention_bias, mlp_bias; rotary scalings but linear, llama3 and yarn; mscale and truncate of yarn
//	mistral       layer_types that differ from sliding_window, which is of all layers
//	qwen2, qwen3  layer_types but full_attention, then sliding_attention; attention_bias of qwen3; without num_key_value_heads (and head_dim
//	              of qwen3)
//	phi3          as mistral; every rotary scaling (longrope), partial_rotary_factor
//	smollm3       no_rope_layers but each n-th layer's; use_sliding_window, attention_bias, mlp_bias; without num_key_value_heads
//	gemma2, gemma3  layer_types and sliding_window_pattern but full_attention in each n-th layer; attention_bias,
//	              use_bidirectional_attention; without sliding_window, query_pre_attn_scalar, num_key_value_heads or head_dim; soft caps
//	              that gemma2 does not say or that gemma3 has; a scaling of gemma3's local positions; gemma3 with pictures
//	mixtral       as mistral; router_jitter_noise
//	qwen3_moe     attention_bias, use_sliding_window; layers without experts (decoder_sparse_step, mlp_only_layers)
//
// Files have each expert on its own, and a rank reads those that it has. The balance loss counts in training if output_router_logits is
// true, as in transformers, with the weight router_aux_loss_coef. It is the sum of each layer's, and 1 for a layer in balance;
// transformers' is of all layers together, and as many times larger as a token has experts. It needs the ranks with other tokens:
// Attach of package parallel tells them to the layers.
//
// A ring (package parallel) refuses windows of attention, soft caps, and another scale of scores than 1/√HeadDim.
//
// The model does not know which ranks there are: ddp, fsdp and others divide its layers from outside. Package parallel has all of them.
//
//	config.go      Config: the sizes; kinds.go: what distinguishes the kinds
//	gpt.go         Model, Block, Attention
//	huggingface.go config.json, Open and LoadConfig; names.go: the parameters' names in the files
//	head.go        whether files have a head that is not the table of tokens
//	rope.go        how files say rotary positions
//	windows.go     which layers have windows of attention, or no rotary positions, as config.json says it
//	stage.go       Stages of a pipeline
//	chattemplates.go  several chat templates as one list
//	generate.go    Generate, by package decode
package gpt

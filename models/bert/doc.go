// Package bert makes vectors of sentences, for search and for classes without labels: the encoder of BERT (Devlin et al. 2018), such as
// MiniLM and BGE, and the pooling behind it (Reimers and Gurevych 2019, "Sentence-BERT"). It opens folders of sentence-transformers, and
// sentence-transformers opens what was saved.
//
//	m, err := bert.Open(dir)
//	tok, err := tokenizer.Open(dir)
//	params, err := ddp.Attach(r.World, m, ddp.Config{})
//	_, err = ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
//	vectors, err := m.Encode(r.Device, tok, texts)
//
// To finetune it with pairs of texts that belong together, such as questions and answers. The wrong answers to a question are all others of
// the batch, on all ranks:
//
//	pairs, err := m.Config.NewTexts(tok, questions, answers)
//	gather := &autograd.AllGather{Group: r.World}
//	for _, b := range data.NewLoader(pairs, data.Config{Batch: 64, Sharder: r.World, Device: r.Device}).Epoch(ctx, 0) {
//		tape.Backward(nn.InfoNCE(m.Embed(pairs.Input(tape, b, 0)), m.Embed(pairs.Input(tape, b, 1)), 20, gather))
//		err = opt.Step()
//		tape.Reset()
//	}
//	files, err := m.Files()
//	err = saver.Save(ctx, ckpt.State{Step: 1, Params: params, Files: files})
//
// Package models/bert/parallel divides a model over ranks.
//
// A text has the same vector alone and in a batch, whatever the padding. BERT's dropout is not part of the model: to compare trainings, set
// it to 0 in the peer. Refused by name: other models than bert; hidden_act but gelu; position_embedding_type but absolute; decoders and
// cross-attention; modules but Transformer, Pooling and Normalize; pooling but mean and cls; do_lower_case of sentence-transformers, and a
// default prompt.
//
//	config.go       Config; bert.go: Model, Block, Attention, Embed
//	huggingface.go  config.json, Open, LoadConfig, Files; sentence.go: the files of sentence-transformers; names.go: the parameters' names
//	texts.go        Texts: pairs as a data.Dataset, and Encode
package bert

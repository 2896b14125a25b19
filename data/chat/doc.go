// Package chat makes training data of conversations, to finetune a model of package models/gpt as people do it: by the model's own chat
// template, with the loss on the answers alone, and with several conversations in a row.
//
//	tok, err := tokenizer.Open(dir)
//	template, err := chat.Open(dir)
//	set, err := chat.Read("train.jsonl", tok, template, chat.Config{Length: 1024, Pack: true})
//	batches := data.NewLoader(set, data.Config{Batch: 8, Shuffle: true, Sharder: r.World})
//	for _, b := range batches.Epoch(ctx, 0) {
//		loss := nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y, set.Loss(b))
//		...
//	}
//
// A line of the file is an object with "messages", each of which has a role and content, and "tools" if there are some:
//
//	{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
//
// # Which tokens count
//
// Those of the assistant's answers. If the template has generation blocks, they say where these are. If not, an answer is what the text of
// the conversation up to it has more than the prompt for it: with the token that ends it, and what the template writes behind it. Some
// templates write an answer otherwise if something follows it: Qwen3's leaves out its thoughts. Then each answer is a document of its own,
// with all that precedes it, as the model will see it.
//
// Tokens and masks equal those of transformers' apply_chat_template. Special tokens in the text of a message become tokens, as there.
//
// # Packing
//
// With Config.Pack, a row has as many documents as fit. A sample is [2, Length]: tokens, and the numbers of their documents, in which alone
// attention looks. Without, a row is a document, and the rest of it is padding, whose labels do not count. What is longer than a row is cut
// at its end; Dataset.String says how often.
//
//	template.go  Template: a folder's chat template, and the documents of a conversation
//	dataset.go   Dataset: a file of conversations in rows
//	places.go    which tokens are in a part of a text
package chat

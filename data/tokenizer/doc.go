// Package tokenizer turns text into tokens, the numbers that a language model reads, and back.
//
//	tok, err := tokenizer.Open(dir)                    // a folder with Hugging Face's layout, with tokenizer.json
//	ids := tok.Encode("The rays of light.")            // to train on: data.NewText(ids, length, stride)
//
//	for id := range m.Generate(dev, tok.Prompt("Once upon a time"), decode.Sampling{Tokens: 100}) {
//		fmt.Print(tok.Piece(id))                       // text as it comes
//	}
//
// A token is a number for a piece of text: a word, a part of a word, or a byte. The pieces were learned from text. There are three ways to
// cut a text into them: byte pair encoding (Gage 1994; Sennrich et al. 2016) begins with single bytes or characters, and again and again
// joins the two neighbors that come first in a list of merges; Unigram takes the pieces whose scores have the largest sum; WordPiece takes
// the longest piece, and then the next. A model works only with the tokenizer that it was trained with. [Bytes] is a tokenizer that needs
// no file.
//
// # Supported files
//
// Open reads the tokenizers of GPT-2, Llama 3, Qwen2 and SmolLM (bytes), of Llama 2, Mistral, Phi-3 and Gemma (characters), of T5, XLM-R
// and ALBERT (Unigram), and of BERT and MiniLM (WordPiece): old files, and those of transformers 5. Ids are those of Hugging Face's
// tokenizers 0.23.3; the tests compare with it. If a file needs something that this package does not have,
// Open returns an error that names it. Truncation and padding in a file are ignored: they are for batches, and transformers sets them
// itself.
//
// # Special tokens
//
// A file lists added tokens, such as <|endoftext|>. Encode finds them in the text, as transformers does: remove them from text that you do
// not trust. [Tokenizer.ID] returns the id of an added token, for the end of a text or as a stop token. [Tokenizer.Prompt] begins with the
// tokens that the model expects at the beginning.
//
// # Parts of characters
//
// A token may end inside a UTF-8 character. [Tokenizer.Decode] and [Tokenizer.Piece] return the bytes unchanged, so the pieces of a text,
// one after another, are the text. (Hugging Face replaces bytes that are not UTF-8 by U+FFFD.) Text that is not UTF-8 is encoded byte by
// byte, and tokenizers of bytes (GPT-2's, Llama 3's) return all of it; Qwen2's returns it with composed characters (NFC). Tokenizers
// without tokens of bytes (T5's, BERT's) know no such text, and return normalized text with other spaces.
//
//	tokenizer.go  Tokenizer: Encode, Prompt, Decode, Piece, Vocab, ID
//	added.go      added tokens in a text
//	normal.go     what changes a text before it is cut; forms.go: NFC and others; grapheme.go: what charsmap of SentencePiece replaces
//	words.go      cuts a text into words; split.go: the regular expressions of GPT-2, Llama 3 and Qwen2 by hand, as package regexp has no
//	              lookahead
//	bpe.go        the tokens of a word by byte pair encoding; unigram.go, wordpiece.go: by the others
//	decode.go     tokens into text
//	unicode.go    letters and numbers in the Unicode version of tokenizers; tables.go: other classes of characters
//	file.go       tokenizer.json; form.go: its steps; visible.go: how it writes bytes
package tokenizer

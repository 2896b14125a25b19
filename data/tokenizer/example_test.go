package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/ringo-ml/ringo/data/tokenizer"
)

func ExampleOpen() {
	tok, err := tokenizer.Open("testdata/llama3")
	if err != nil {
		log.Fatal(err)
	}
	ids := tok.Prompt("the colours, 🙂")
	for _, id := range ids {
		fmt.Printf("%d %q\n", id, tok.Piece(id))
	}
	text, err := tok.Decode(ids)
	fmt.Println(text, err)
	// Output:
	// 442 "<|begin_of_text|>"
	// 264 "the"
	// 339 " co"
	// 398 "lou"
	// 408 "rs"
	// 11 ","
	// 220 " "
	// 258 "\xf0\x9f"
	// 247 "\x99"
	// 224 "\x82"
	// <|begin_of_text|>the colours, 🙂 <nil>
}

func ExampleBytes() {
	tok := tokenizer.Bytes()
	fmt.Println(tok.Encode("Hé"), tok.Vocab())
	// Output: [72 195 169] 256
}

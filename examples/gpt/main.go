// Command gpt trains a small Llama to write like Isaac Newton, byte by byte, on any layout of data, sharded-data, tensor, sequence,
// context and pipeline parallelism. Ranks are goroutines of this process, or processes if it is started by "ringo run". Every layout
// computes the same. The text is the Opticks (1730), or a file. With -load it continues from a GPT-2 or Llama in Hugging Face's format, or
// from its own checkpoint. With -lora it trains only adapters. The program is package lm, in examples/internal/lm.
package main

import (
	"os"

	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/train"
)

func main() { train.Exit(lm.Main(os.Stdout, false)) }

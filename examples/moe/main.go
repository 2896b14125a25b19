// Command moe trains a small language model with a mixture of experts in each layer. It has the text and the flags of examples/gpt, and can
// divide experts over ranks: -ep 2. It records how often each expert is chosen; -plot draws it. The program is package lm, in
// examples/internal/lm.
package main

import (
	"os"

	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/train"
)

func main() { train.Exit(lm.Main(os.Stdout, true)) }

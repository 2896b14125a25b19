package main

import (
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/bench/gpu/bundle"
)

func main() {
	code, err := bundle.Run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		code = 1
	}
	os.Exit(code)
}

// Command conv measures a convolution, forward and backward, at the sizes of MNIST and CIFAR-10 with a batch of 64. peer.py does the same
// with PyTorch. For each number of seconds on its standard input it works for about that time and prints a line of JSON. The script beside
// it runs the two in turn.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const batch = 64

// size is a convolution of 3 × 3 pixels with a border of one. In the first layer of a network, the input has no gradient.
type size struct {
	in, out, pixels int
	first           bool
}

var sizes = map[string]size{
	"mnist1": {1, 32, 28, true}, "mnist2": {32, 64, 14, false},
	"cifar1": {3, 64, 32, true}, "cifar2": {64, 128, 16, false},
}

func main() {
	what := flag.String("what", "mnist1", "mnist1, mnist2, cifar1 or cifar2")
	threads := flag.Int("threads", 2, "threads")
	flag.Parse()
	s, ok := sizes[*what]
	if !ok {
		log.Fatalf("-what %s: mnist1, mnist2, cifar1 or cifar2", *what)
	}
	step := s.step(*threads)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		if err != nil {
			log.Fatal(err)
		}
		step()
		n, start := 0, time.Now()
		for ; time.Since(start).Seconds() < seconds; n++ {
			step()
		}
		if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"steps_per_s": float64(n) / time.Since(start).Seconds()}); err != nil {
			log.Fatal(err)
		}
	}
}

// step returns a forward and backward pass with a given gradient of the output. Each pass overwrites the gradients of parameters.
func (s size) step(threads int) func() {
	dev := cpu.New(threads)
	tape := tensor.NewTape(dev)
	layer := nn.NewConv2d(s.in, s.out, 3, ops.Conv2dOptions{Padding: [2]int{1, 1}})
	params := nn.Init(layer, dev, tensor.Float32, 1)
	x, g := tensor.New(dev, tensor.Float32, batch, s.in, s.pixels, s.pixels), tensor.New(dev, tensor.Float32, batch, s.out, s.pixels, s.pixels)
	tensor.NormalInit(0, 1).Fill(x, 2, 0)
	tensor.NormalInit(0, 1).Fill(g, 3, 0)
	input := tape.Leaf
	if s.first {
		input = tape.Input
	}
	return func() {
		tape.BackwardFrom([]tensor.Tensor{layer.Forward(input(x))}, []tensor.Tensor{g})
		tape.Reset()
		for _, p := range params {
			p.Consume()
		}
	}
}

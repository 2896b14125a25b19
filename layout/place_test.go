package layout

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// chains returns how many random chains a test tries: RINGO_CHAINS, or a number that takes a second.
func chains(t *testing.T, short, long int) int {
	if s := os.Getenv("RINGO_CHAINS"); s != "" {
		k, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if reliability.Long(t) {
		return long
	}
	return short
}

func randomBatch(rng *rand.Rand) (*Batch, []int) {
	b := &Batch{N: 1 + rng.IntN(4)}
	b.Rows = Rows{Stride: 1, Total: 2 * b.N, Over: 3}
	dims := []int{b.N, 1 + rng.IntN(4), 1 + rng.IntN(3)}
	if rng.IntN(2) == 0 {
		b.Positions, b.Seq, b.SeqOver = dims[1], Spans{Total: 2 * dims[1]}, 2
	}
	return b, dims
}

// moved applies a random operation that moves elements.
func (x *labelled) moved(rng *rand.Rand) *labelled {
	switch rng.IntN(8) {
	case 0, 1:
		return x.reshape(rng)
	case 2, 3:
		return x.permute(rng)
	case 4:
		return x.slice(rng)
	case 5:
		return x.pad(rng)
	case 6:
		return x.concat(rng)
	}
	return x.pick(rng)
}

// What a Place says is true of each element after any chain of operations.
func TestPlacesAreTrue(t *testing.T) {
	exact, other := 0, 0
	for seed := range chains(t, 10000, 30000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		b, dims := randomBatch(rng)
		x := newLabelled(b, dims...)
		for range 1 + rng.IntN(7) {
			y, wrong := x, ""
			if rng.IntN(6) == 0 {
				y, wrong = x.sum(rng)
			} else {
				y = x.moved(rng)
			}
			if x = y; wrong == "" {
				wrong = x.wrong()
			}
			if wrong != "" {
				t.Fatalf("seed %d: %s:\n%s", seed, wrong, strings.Join(x.log, "\n"))
			}
			if len(x.dims) == 0 || len(x.labels[0]) == 0 || len(x.labels[0]) > 500 {
				break
			}
			for _, s := range x.spots() {
				if s.Dims() != 0 && s.Mode() != Loose {
					exact++
				} else {
					other++
				}
			}
		}
	}
	t.Log(exact, "exact,", other, "others")
}

func TestLongPlacesAreTrue(t *testing.T) { reliability.AsLong(t, TestPlacesAreTrue) }

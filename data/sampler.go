package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"sort"

	"github.com/ringo-ml/ringo/tensor"
)

// shuffleKey makes the keys of permutations different from those of other uses of a seed: "shuffle" in ASCII.
const shuffleKey = 0x73687566666c65 // "shuffle"

// permute fills perm with the order of the samples in an epoch, of which group stay together. It depends only on seed and epoch. It is
// Durstenfeld's shuffle ("Algorithm 235", CACM 1964) with the counter-based generator. The multiplication maps 64 random bits to [0, i]
// with a bias below (i+1)/2^64.
func permute(perm []int, group int, seed uint64, epoch int) {
	groups := perm[:len(perm)/group]
	ascending(groups)
	key := tensor.RandomKey(seed, shuffleKey, uint64(epoch))
	for i := len(groups) - 1; i > 0; i-- {
		j, _ := bits.Mul64(tensor.RandomBits(key, uint64(i)), uint64(i)+1)
		groups[i], groups[j] = groups[j], groups[i]
	}
	for i := len(perm) - 1; i >= 0; i-- { // perm[i/group] is still that of a group
		perm[i] = perm[i/group]*group + i%group
	}
}

// drawKey makes the keys of draws: "draw" in ASCII.
const drawKey = 0x64726177

// draw fills perm with samples that are drawn with replacement, as PyTorch's WeightedRandomSampler does; ends are the sums of weights up to
// each sample. It depends only on these, seed and epoch.
func draw(perm []int, ends []float64, seed uint64, epoch int) {
	key, total := tensor.RandomKey(seed, drawKey, uint64(epoch)), ends[len(ends)-1]
	last := sort.SearchFloat64s(ends, total) // that has a weight: a product below may be rounded up to the total
	for i := range perm {
		at := float64(tensor.RandomBits(key, uint64(i))>>11) * 0x1p-53 * total
		perm[i] = min(last, sort.Search(len(ends), func(k int) bool { return ends[k] > at }))
	}
}

// weigh adds up the weights of a configuration.
func (l *Loader) weigh() error {
	w := l.cfg.Weights
	switch {
	case w == nil:
		return nil
	case len(w) != l.n:
		return fmt.Errorf("Config.Weights has %d numbers, the dataset %d samples", len(w), l.n)
	case l.cfg.Shuffle || l.cfg.Group > 1:
		return errors.New("Config.Weights says which samples are drawn, one by one: leave out Shuffle and Group")
	}
	l.ends = make([]float64, l.n)
	sum, hash := 0.0, crc32.NewIEEE()
	for i, v := range w {
		if !(v >= 0) || math.IsInf(v, 1) {
			return fmt.Errorf("Config.Weights[%d] is %v: want 0 or more", i, v)
		}
		sum += v
		l.ends[i] = sum
		_, _ = hash.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))) // which does not fail
	}
	if !(sum > 0) || math.IsInf(sum, 1) {
		return fmt.Errorf("Config.Weights sum to %v: want a positive number", sum)
	}
	l.weights = hash.Sum32()
	return nil
}

func ascending(perm []int) {
	for i := range perm {
		perm[i] = i
	}
}

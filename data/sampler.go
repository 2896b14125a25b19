package data

import (
	"math/bits"

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

func ascending(perm []int) {
	for i := range perm {
		perm[i] = i
	}
}

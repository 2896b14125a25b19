package agree_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/ranks"
)

func TestNames(t *testing.T) {
	for want, list := range map[string][]int{
		"rank 7":                 {7},
		"ranks 1, 2":             {1, 2},
		"ranks 1-3":              {1, 2, 3},
		"ranks 0, 2-4, 6, 7, 9":  {9, 3, 0, 2, 7, 4, 6},
		"ranks 1-7, 12, 14-1000": append(span(1, 7), append([]int{12}, span(14, 1000)...)...),
	} {
		assert.Equal(t, want, ranks.Names(list...))
	}
	var odd []int
	for i := range 500 {
		odd = append(odd, 2*i+1)
	}
	assert.Equal(t, "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 484 more", ranks.Names(odd...))
	assert.Equal(t, "nodes 0-2", ranks.List("node", []int{0, 1, 2}))
}

func span(lo, hi int) (list []int) {
	for i := lo; i <= hi; i++ {
		list = append(list, i)
	}
	return list
}

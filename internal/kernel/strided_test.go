package kernel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// rowMajor returns the strides of a contiguous tensor.
func rowMajor(dims []int) []int {
	stride, n := make([]int, len(dims)), 1
	for i := len(dims) - 1; i >= 0; i-- {
		stride[i], n = n, n*dims[i]
	}
	return stride
}

func count(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// stridedNaive calls f with the offsets of every index.
func stridedNaive(dims, ds, ss []int, f func(d, s int)) {
	n := count(dims)
	for e := range n {
		d, s, rest := 0, 0, e
		for i := len(dims) - 1; i >= 0; i-- {
			d += rest % dims[i] * ds[i]
			s += rest % dims[i] * ss[i]
			rest /= dims[i]
		}
		f(d, s)
	}
}

// requireStrided compares both kernels with the definition; nd and ns are the lengths of dst and src.
func requireStrided(t *testing.T, nd, ns int, dims, ds, ss []int) {
	t.Helper()
	src, start := normals[float32](ns, 1), normals[float32](nd, 2)
	copied, added := clone(start), clone(start)
	stridedNaive(dims, ds, ss, func(d, s int) {
		copied[d] = src[s]
		added[d] += src[s]
	})
	got := clone(start)
	CopyStrided(got, src, dims, ds, ss)
	require.Equal(t, copied, got, "copy %v %v %v", dims, ds, ss)
	got = clone(start)
	AddStrided(got, src, dims, ds, ss)
	require.Equal(t, added, got, "add %v %v %v", dims, ds, ss)
}

// permutations calls f with every order of 0..n.
func permutations(p []int, k int, f func(p []int)) {
	if k == len(p) {
		f(p)
		return
	}
	for i := k; i < len(p); i++ {
		p[k], p[i] = p[i], p[k]
		permutations(p, k+1, f)
		p[k], p[i] = p[i], p[k]
	}
}

// TestStridedPermute permutes the source, and the destination, in every way.
func TestStridedPermute(t *testing.T) {
	for _, dims := range [][]int{{}, {5}, {0, 3}, {1, 1}, {40, 37}, {3, 1, 4}, {2, 3, 4, 5}, {17, 3, 33}, {2, 1, 3, 2, 2}} {
		stride := rowMajor(dims)
		order := make([]int, len(dims))
		for i := range order {
			order[i] = i
		}
		permutations(order, 0, func(p []int) {
			t.Run(fmt.Sprint(dims, p), func(t *testing.T) {
				moved, from := make([]int, len(p)), make([]int, len(p))
				for i, k := range p {
					moved[i], from[i] = dims[k], stride[k]
				}
				n := count(dims)
				requireStrided(t, n, n, moved, rowMajor(moved), from)
				requireStrided(t, n, n, moved, from, rowMajor(moved))
			})
		})
	}
}

func TestStridedForms(t *testing.T) {
	cases := []struct {
		name           string
		nd, ns         int
		dims, dst, src []int
	}{
		{"slice of columns", 60, 200, []int{10, 6}, []int{6, 1}, []int{20, 1}},
		{"concat along columns", 200, 60, []int{10, 6}, []int{20, 1}, []int{6, 1}},
		{"gaps on both sides", 90, 90, []int{5, 4}, []int{18, 2}, []int{15, 3}},
		{"broadcast a row", 60, 6, []int{10, 6}, []int{6, 1}, []int{0, 1}},
		{"broadcast a column", 60, 10, []int{10, 6}, []int{6, 1}, []int{1, 0}},
		{"broadcast a scalar", 60, 1, []int{10, 6}, []int{6, 1}, []int{0, 0}},
		{"padded transpose", 40 * 50, 33 * 40, []int{33, 35}, []int{50, 1}, []int{1, 36}},
		{"eight dimensions", 256, 256, []int{2, 2, 2, 2, 2, 2, 2, 2}, []int{128, 64, 32, 16, 8, 4, 2, 1}, []int{1, 2, 4, 8, 16, 32, 64, 128}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { requireStrided(t, c.nd, c.ns, c.dims, c.dst, c.src) })
	}
}

// TestStridedTypes: the copy works on any type, the addition on numbers.
func TestStridedTypes(t *testing.T) {
	b := []bool{true, false, false, true, true, false}
	got := make([]bool, 6)
	CopyStrided(got, b, []int{3, 2}, []int{2, 1}, []int{1, 3})
	require.Equal(t, []bool{true, true, false, true, false, false}, got)
	u := []uint8{250, 250}
	AddStrided(u, []uint8{10, 1}, []int{2}, []int{1}, []int{1})
	require.True(t, slices.Equal([]uint8{4, 251}, u))
}

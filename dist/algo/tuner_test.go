package algo_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// The committed table is valid, and has the form of Encode.
func TestCommittedTable(t *testing.T) {
	b, err := os.ReadFile("tuner.json")
	require.NoError(t, err)
	table, err := algo.ParseTable(b)
	require.NoError(t, err)
	assert.Equal(t, string(b), string(table.Encode()))
	assert.NotEmpty(t, table.Made)
	for k := range backend.Kind(backend.NumKinds) {
		for ranks := 1; ranks <= 9; ranks++ {
			for hosts := 1; hosts <= ranks; hosts++ {
				layout := make(algo.Layout, ranks)
				for r := range layout {
					layout[r] = r * hosts / ranks
				}
				tuner := algo.NewTuner(layout)
				for _, count := range []int{0, 1, 1 << 10, 1 << 16, 1 << 24} {
					op := backend.Op{Kind: k, Count: count, DType: tensor.Float32}
					assert.NoError(t, tuner.Check(&op), "%v of %d among %d ranks on %d hosts", k, count, ranks, hosts)
					op.Algo = backend.RankOrder
					if k.Reduces() {
						assert.Contains(t, []string{"linear", "direct"}, tuner.Choose(&op))
					}
				}
			}
		}
	}
}

func TestTable(t *testing.T) {
	table, err := algo.ParseTable([]byte(`{"made": "x", "measured": [{"ranks": [2, 4], "hosts": [1, 1]}, {"ranks": [2, 5], "hosts": [2, 4], "max": 100}],
		"rules": [{"op": "allreduce", "ranks": [2, 2], "hosts": [1, 1], "use": [{"max": 64, "algo": "linear"}, {"algo": "direct"}]},
		{"op": "allreduce", "ranks": [2, 4], "hosts": [2, 4], "use": [{"algo": "ring"}]}]}`))
	require.NoError(t, err)
	for _, c := range []struct {
		kind                backend.Kind
		bytes, ranks, hosts int
		want                string // "": not measured
	}{
		{backend.AllReduce, 64, 2, 1, "linear"}, {backend.AllReduce, 65, 2, 1, "direct"}, {backend.AllReduce, 65, 3, 1, "linear"},
		{backend.AllReduce, 1, 2, 2, "ring"}, {backend.AllReduce, 1, 4, 4, "ring"}, {backend.AllReduce, 1, 5, 2, "linear"},
		{backend.Reduce, 100, 2, 1, "linear"}, {backend.AllReduce, 1 << 40, 2, 1, "direct"}, {backend.AllReduce, 100, 4, 2, "ring"},
		{backend.AllReduce, 101, 4, 2, ""}, {backend.AllReduce, 1, 5, 1, ""}, {backend.AllReduce, 1, 6, 2, ""}, {backend.AllReduce, 1, 5, 5, ""},
		{backend.AllReduce, 1, 1, 1, ""},
	} {
		got, ok := table.Choose(c.kind, c.bytes, c.ranks, c.hosts)
		assert.Equal(t, c.want, got, "%+v", c)
		assert.Equal(t, c.want != "", ok, "%+v", c)
	}
	again, err := algo.ParseTable(table.Encode())
	require.NoError(t, err)
	assert.Equal(t, table, again)
}

func TestTableErrors(t *testing.T) {
	rule := func(op, hosts, use string) string {
		return fmt.Sprintf(`{"made": "", "rules": [{"op": %q, "ranks": [1, 9], "hosts": %s, "use": [%s]}]}`, op, hosts, use)
	}
	for text, want := range map[string]string{
		`{"rule": []}`: "unknown field",
		rule("allsum", "[1,1]", `{"algo": "linear"}`):             `no operation is called "allsum"`,
		rule("reduce", "[2,3]", `{"algo": "ring"}`):               `no algorithm is called "ring"; there are linear, direct, binomial`,
		rule("reduce", "[1,9]", `{"algo": "binomial"}`):           "binomial does not reduce in rank order",
		rule("broadcast", "[1,9]", `{"max": 5, "algo": "chain"}`): "the last algorithm must have no max",
		rule("broadcast", "[1,9]", ``):                            "the last algorithm must have no max",

		rule("broadcast", "[1,9]", `{"max": 5, "algo": "chain"}, {"max": 5, "algo": "linear"}, {"algo": "linear"}`): "max 5 after 5",
	} {
		_, err := algo.ParseTable([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}

// The size for the table is that of the full buffer.
func TestBytes(t *testing.T) {
	counts := []int{1, 2, 4}
	for kind, want := range map[backend.Kind]int{backend.AllReduce: 40, backend.Broadcast: 40, backend.Reduce: 40, backend.Gather: 120,
		backend.AllGather: 120, backend.Scatter: 120, backend.ReduceScatter: 120, backend.AllToAll: 120, backend.AllGatherV: 28,
		backend.ReduceScatterV: 28, backend.AllToAllV: 0, backend.Barrier: 0} {
		op := backend.Op{Kind: kind, Count: 10, DType: tensor.Float32, SrcCounts: counts, DstCounts: counts}
		assert.Equal(t, want, algo.Bytes(&op, 3), kind)
	}
}

// On inputs whose sum depends on the order, an all-reduce with direct has the bits of a reduce-scatter and an all-gather.
func TestAllReduceIsReduceScatterAndAllGather(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		for _, x := range []reduction{
			{backend.Sum, tensor.Float32}, {backend.Avg, tensor.BFloat16}, {backend.PreMulSum, tensor.Float16}, {backend.Prod, tensor.Float64},
		} {
			count, in, rng := 1001*n, make([][]byte, n), rand.New(rand.NewPCG(7, uint64(n)))
			for r := range in {
				in[r] = values(x.dt, count, func(int) float64 { return rng.NormFloat64() })
			}
			want, _ := w.reduceOn(backend.AllReduce, "direct", x, in, 0, false)
			parts, got := make([][]byte, n), make([][]byte, n)
			w.run(func(r int) backend.Op {
				parts[r] = make([]byte, len(in[r])/n)
				op := x.op(backend.ReduceScatter, "direct", count/n, r, 0)
				op.Src, op.Dst = mem(in[r]), mem(parts[r])
				return op
			})
			w.run(func(r int) backend.Op {
				got[r] = make([]byte, len(in[r]))
				return backend.Op{Kind: backend.AllGather, Algo: "direct", DType: x.dt, Count: count / n, Src: mem(parts[r]), Dst: mem(got[r])}
			})
			for r := range n {
				require.True(t, bytes.Equal(want[0], got[r]), "%v of %v, rank %d", x.red, x.dt, r)
			}
		}
	})
}

func TestLongAllReduceIsReduceScatterAndAllGather(t *testing.T) {
	reliability.AsLong(t, TestAllReduceIsReduceScatterAndAllGather)
}

// A chain of k ranks carries S segments in S+k−2 steps of one segment each: N(S+k−2)/(SB) for N bytes over links of
// bandwidth B. Here a segment takes a second.
func TestChainIsPipelined(t *testing.T) {
	const segment = 256 << 10
	bubbles(t, func(t *testing.T, w *world, n int) {
		for _, segments := range []int{1, 2, 5, 16} {
			want := pattern(0, 1<<19)
			want = bytes.Repeat(want, 8)[:segments*segment]
			out := make([][]byte, n)
			for r := range n {
				w.senders[r].full, w.senders[r].rate = 0, segment
			}
			start := time.Now()
			w.run(func(r int) backend.Op {
				out[r] = make([]byte, len(want))
				op := backend.Op{Kind: backend.Broadcast, Algo: "chain", DType: tensor.Uint8, Count: len(want), Dst: mem(out[r])}
				if r == 0 {
					op.Src = mem(want)
				}
				return op
			})
			for r := range n {
				require.True(t, bytes.Equal(want, out[r]))
				sent := segments
				if r == n-1 {
					sent = 0
				}
				assert.Equal(t, sent, w.senders[r].full, "rank %d of %d sends each segment once, and the last none", r, n)
			}
			if n > 1 {
				assert.Equal(t, time.Duration(segments+n-2)*time.Second, time.Since(start), "%d segments, %d ranks", segments, n)
			}
		}
	})
}

func TestLongChainIsPipelined(t *testing.T) { reliability.AsLong(t, TestChainIsPipelined) }

func TestNamesHaveNoSurprises(t *testing.T) {
	for _, name := range algo.Names() {
		assert.Equal(t, name == "linear" || name == "direct", algo.InRankOrder(name), name)
		assert.False(t, strings.ContainsAny(name, ",: "), name)
	}
	k, ok := algo.KindOf("alltoallv")
	assert.True(t, ok)
	assert.Equal(t, backend.AllToAllV, k)
	_, ok = algo.KindOf("ring")
	assert.False(t, ok)
}

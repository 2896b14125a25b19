package backend_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/compare"
)

func op() backend.Op {
	return backend.Op{Kind: backend.AllReduce, Red: backend.Sum, DType: tensor.Float32, Seq: 7, Count: 10,
		Shape: tensor.Shape{DType: tensor.Float32, Dims: []int{2, 5}}}
}

func TestErrorText(t *testing.T) {
	boom := errors.New("boom")
	for want, e := range map[string]*backend.Error{
		"rank 1: allreduce seq 7 of group world: count 10 (rank 0) vs 12 (rank 1)": {Rank: 1, Group: "world", Op: "allreduce", Seq: 7,
			Want: "count 10 (rank 0)", Got: "12 (rank 1)"},
		"rank 2 (host node1, pid 4711): boom":     {Rank: 2, Host: "node1, pid 4711", Cause: boom},
		"barrier seq 1 of group dp: boom":         {Rank: -1, Group: "dp", Op: "barrier", Seq: 1, Cause: boom},
		"rank 0: failed":                          {Rank: 0},
		"rank 0: a (rank 0) vs b (rank 1), boom!": {Rank: 0, Want: "a (rank 0)", Got: "b (rank 1)", Cause: errors.New("boom!")},
	} {
		assert.Equal(t, want, e.Error())
	}
	assert.ErrorIs(t, &backend.Error{Cause: boom}, boom)
	o := op()
	e := backend.OpError(&backend.Spec{Name: "tp", Ranks: []int{4, 6}, Rank: 1}, &o, boom)
	assert.Equal(t, "rank 6: allreduce seq 7 of group tp: boom", e.Error())
}

// Each field changes the fingerprint if it matters, and the mismatch says what differs.
func TestFingerprintAndMismatch(t *testing.T) {
	group := backend.HashString("world")
	for _, c := range []struct {
		change func(o *backend.Op)
		text   string
	}{
		{func(o *backend.Op) { o.Kind = backend.Broadcast }, "allreduce seq 7 (rank 0) vs broadcast seq 7 (rank 3), " +
			"shapes float32[2,5] and float32[2,5]: these ranks are at different places of the program; what decides where they go, such as whether a batch is skipped, must be the same"},
		{func(o *backend.Op) { o.Red = backend.Max }, "op sum (rank 0) vs max (rank 3)"},
		{func(o *backend.Op) { o.DType = tensor.BFloat16 }, "dtype float32 (rank 0) vs bfloat16 (rank 3)"},
		{func(o *backend.Op) { o.Count = 12 }, "count 10 (rank 0) vs 12 (rank 3)"},
		{func(o *backend.Op) { o.Algo = "ring" }, `algorithm "" by default (rank 0) vs "ring" (rank 3)`},
		{func(o *backend.Op) { o.Seq = 8 }, "allreduce seq 7 (rank 0) vs allreduce seq 8 (rank 3)"},
	} {
		a, b := op(), op()
		require.Equal(t, backend.Fingerprint(&a, group), backend.Fingerprint(&b, group))
		c.change(&b)
		require.NotEqual(t, backend.Fingerprint(&a, group), backend.Fingerprint(&b, group), c.text)
		da, db := backend.DescOf(&a, "world"), backend.DescOf(&b, "world")
		err := backend.Mismatch(&da, &db, 0, 3)
		require.NotNil(t, err, c.text)
		assert.Contains(t, err.Error(), c.text)
		assert.Contains(t, err.Error(), "float32[2,5]")
	}
	a, b := op(), op()
	b.Root, b.Tag, b.Factor, b.Shape.Dims = 1, 2, 3, []int{10} // do not matter to an all-reduce
	assert.Equal(t, backend.Fingerprint(&a, group), backend.Fingerprint(&b, group))
	assert.NotEqual(t, backend.Fingerprint(&a, group), backend.Fingerprint(&a, backend.HashString("dp")))
	da, db := backend.DescOf(&a, "world"), backend.DescOf(&b, "world")
	assert.Nil(t, backend.Mismatch(&da, &db, 0, 1))
}

// What ranks must have alike in a step: each part of it changes the fingerprint of a reduction, and the mismatch says what differs.
func TestAgreementMatters(t *testing.T) {
	fields := reflect.TypeFor[compare.Agreement]()
	var all [][]int
	for i := range fields.NumField() {
		if f := fields.Field(i).Type; f.Kind() == reflect.Struct {
			for j := range f.NumField() {
				all = append(all, []int{i, j})
			}
		} else {
			all = append(all, []int{i})
		}
	}
	for _, i := range all {
		a, b := op(), op()
		switch f := reflect.ValueOf(&b.Agreed).Elem().FieldByIndex(i); {
		case f.CanInt():
			f.SetInt(3)
		case f.CanUint():
			f.SetUint(3)
		default:
			f.SetFloat(3)
		}
		name := fields.FieldByIndex(i).Name
		require.NotEqual(t, backend.Fingerprint(&a, 1), backend.Fingerprint(&b, 1), name)
		da, db := backend.DescOf(&a, "world"), backend.DescOf(&b, "world")
		err := backend.Mismatch(&da, &db, 0, 1)
		require.NotNil(t, err, name)
		require.Regexp(t, `(\w+ 0|some|some values|0 from 0 on|Rows.Seq {0 0 0 0}) \(rank 0\) `+
			`vs (3|others|3 from 0 on|0 from 3 on|{[0 ]*3[0 ]*}) \(rank 1\), \w+`, err.Error())
		a.Kind, b.Kind = backend.AllGather, backend.AllGather
		require.Equal(t, backend.Fingerprint(&a, 1), backend.Fingerprint(&b, 1), name)
	}
}

// The two sides of a message agree, although one sends and the other receives.
func TestSendMatchesRecv(t *testing.T) {
	a, b := op(), op()
	a.Kind, b.Kind = backend.Send, backend.Recv
	assert.Equal(t, backend.Fingerprint(&a, 1), backend.Fingerprint(&b, 1))
	b.Tag = 9
	assert.NotEqual(t, backend.Fingerprint(&a, 1), backend.Fingerprint(&b, 1))
	da, db := backend.DescOf(&a, "g"), backend.DescOf(&b, "g")
	assert.Contains(t, backend.Mismatch(&da, &db, 0, 1).Error(), "tag 0 (rank 0) vs 9 (rank 1)")
}

func TestCountsOfVForms(t *testing.T) {
	a, b := op(), op()
	a.Kind, b.Kind, a.Row, b.Row = backend.AllGatherV, backend.AllGatherV, 5, 5
	a.DstCounts, b.DstCounts = []int{5, 10, 15}, []int{5, 10, 20}
	assert.NotEqual(t, backend.Fingerprint(&a, 1), backend.Fingerprint(&b, 1))
	da, db := backend.DescOf(&a, "g"), backend.DescOf(&b, "g")
	assert.Contains(t, backend.Mismatch(&da, &db, 0, 1).Error(), "counts[2] = 3 (rank 0) vs 4 (rank 1)")
	b.DstCounts, b.Row = []int{4, 8, 12}, 4
	assert.NotEqual(t, backend.Fingerprint(&a, 1), backend.Fingerprint(&b, 1))
	da, db = backend.DescOf(&a, "g"), backend.DescOf(&b, "g")
	assert.Contains(t, backend.Mismatch(&da, &db, 0, 1).Error(), "rows of 5 elements (rank 0) vs 4 (rank 1)")
	assert.Contains(t, backend.RowsMismatch(&a, "g", 0, 1, 15, 20, 5).Error(), "rank 0 sends 3 rows to rank 1, which expects 4")
}

// A descriptor that is too long for a message is no other group.
func TestDescriptorTooLong(t *testing.T) {
	o := op()
	o.Kind, o.DstCounts = backend.AllGatherV, make([]int, 1000)
	mine, theirs := backend.DescOf(&o, "g"), backend.Desc{}
	require.NoError(t, json.Unmarshal(backend.EncodeJSON(mine, 1000), &theirs))
	assert.EqualError(t, backend.Disagreement(&mine, &theirs, 3, 1),
		"rank 3: allgatherv seq 7 of group g: ranks 1 and 3 gave different operations")
}

// IDs of groups are hashes of small numbers, in chains. They must not collide.
func TestHashesOfSmallNumbersDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for a := range uint64(64) {
		for b := range uint64(64) {
			for c := range uint64(16) {
				seen[backend.Hash64(backend.Hash64(backend.Hash64(1, a), b), c)] = true
			}
		}
	}
	assert.Len(t, seen, 64*64*16)
}

func TestFingerprintDoesNotAllocate(t *testing.T) {
	o := op()
	assert.Zero(t, testing.AllocsPerRun(100, func() { backend.Fingerprint(&o, 1) }))
}

func TestPostingCarriesSmallInputs(t *testing.T) {
	var p backend.Posting
	data := make([]byte, backend.EagerBytes+1)
	data[0] = 42
	x := tensor.FromSlice(data, len(data))
	o := op()
	o.Src = backend.Mem{Ptr: x.Ptr(), Bytes: backend.EagerBytes}
	p.Fill(&o, "g", 1)
	b, eager := p.Eager()
	require.True(t, eager)
	require.Len(t, b, backend.EagerBytes)
	data[0] = 43
	assert.EqualValues(t, 42, b[0], "a copy")
	o.Src.Bytes++
	p.Fill(&o, "g", 1)
	_, eager = p.Eager()
	assert.False(t, eager)
}

// Entries of operations that are remembered at once are apart, and stay where they are; the next ones use their memory.
func TestHistory(t *testing.T) {
	var h backend.History[uint64]
	at := map[*uint64]uint64{}
	for seq := uint64(1); seq <= 5*backend.Depth; seq++ {
		x := h.At(seq)
		if seq > 2*backend.Depth {
			require.Equal(t, seq-2*backend.Depth, *x)
		}
		*x, at[x] = seq, seq
	}
	assert.Len(t, at, 2*backend.Depth)
	for x, seq := range at {
		assert.Same(t, x, h.At(seq))
	}
}

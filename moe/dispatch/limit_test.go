package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The example in the comment of limit.
func TestLimitIsAsDrawn(t *testing.T) {
	tape := tensor.NewTape(cpu.New(1))
	experts := tape.Input(tensor.FromSlice([]int64{0, 1, 0, 2, 0, 1}, 3, 2))
	p := New(Config{Capacity: 1}).Plan(experts, ops.Bincount(experts.Reshape(6), 3), 6, 0)
	require.Equal(t, 2, p.capacity)
	require.Equal(t, []int64{1, 3, 2, 5, 0, 4}, tensor.Data[int64](p.back))
	require.Equal(t, []int64{1, 2, 1, 3, 2, 0}, tensor.Data[int64](p.token))
	require.Equal(t, []int64{1, 0, 0}, tensor.Data[int64](p.Dropped))
}

package fsdp_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Attach warns, once, of values that it rounds; wider ones, and those of 16 bits, become what they were.
func TestRoundedValues(t *testing.T) {
	for _, c := range []struct {
		have, dtype tensor.DType
		want        string
	}{
		{tensor.Float64, tensor.Float32, "fsdp: Config.DType is float32, and the values of 2 parameters, such as bias, are float64: they are " +
			"rounded; DType: tensor.Float64 keeps them"},
		{tensor.Float32, tensor.Float32, ""}, {tensor.Float32, tensor.Float64, ""}, {tensor.BFloat16, tensor.Float32, ""},
		{tensor.Float64, tensor.Float64, ""},
	} {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.NewLinear(2, 3)
			nn.Init(model, r.Device, c.have, 1)
			s := fsdp.New(fsdp.Config{Shard: r.World, DType: c.dtype})
			s.Unit(model)
			_, err := s.Attach(model)
			return err
		}))
		require.Equal(t, c.want != "", log.Len() > 0, log.String())
		require.Contains(t, log.String(), c.want)
		require.LessOrEqual(t, bytes.Count(log.Bytes(), []byte("\n")), 1)
	}
}

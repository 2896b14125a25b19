package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
)

func results(t *testing.T, out string) (rs []result) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "{") {
			rs = append(rs, result{})
			require.NoError(t, json.Unmarshal([]byte(line), &rs[len(rs)-1]))
		}
	}
	return rs
}

func TestMeasures(t *testing.T) {
	var out bytes.Buffer
	o := options{model: "mlp", optim: "adamw", dtype: "float32", batch: 3, ranks: 2, threads: 1, kernels: true}
	require.NoError(t, o.run(nil, strings.NewReader("0.01\n0.02\n"), &out))
	rs := results(t, out.String())
	require.Len(t, rs, 2)
	for _, r := range rs {
		require.Positive(t, r.StepsPerS)
		require.InDelta(t, math.Log(10), r.Loss, 1)
		require.Equal(t, "local", r.Engine)
	}
	require.Regexp(t, ` 1\.0 calls  matmul of 30\n`, out.String(), "the last layer's product, forward")
	require.ErrorContains(t, o.run([]string{"soon"}, nil, &out), "soon")
	o.model = "cnn"
	require.ErrorContains(t, o.run([]string{"1"}, nil, &out), "-model cnn: mlp or gpt")
}

func TestGPT(t *testing.T) {
	for _, dtype := range []string{"float32", "bfloat16"} {
		o := options{model: "gpt", optim: "adamw", dtype: dtype, batch: 1}
		require.NoError(t, dist.Run(t.Context(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			tr, err := o.trainer(r)
			if err == nil {
				err = tr.steps(1)
			}
			require.InDelta(t, math.Log(float64(size.Vocab)), tr.loss, 0.5)
			return err
		}))
	}
}

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(dist.Config{Ranks: 3, Log: &out}, 1<<20, 9))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3+7, out.String())
	assert.Equal(t, "all-reduce on 3 ranks (local)", lines[0])
	assert.Regexp(t, `^(theory: latency [\d.]+ µs, bandwidth [\d.]+ GB/s|no line fits: .*)$`, lines[1])
	for i, line := range lines[3:] {
		var size int
		var measured, achieved float64
		var theory string
		_, err := fmt.Sscan(line, &size, &measured, &theory, &achieved)
		require.NoError(t, err, line)
		assert.Equal(t, 256<<(2*i), size)
		assert.Equal(t, strings.HasPrefix(lines[1], "no line"), theory == "–", line)
		assert.NotContains(t, theory, "-")
		const half = 0.00501 // rounding error of two printed decimals
		moved := 4.0 / 3 * float64(size) / 1e3
		assert.GreaterOrEqual(t, achieved+half, moved/(measured+half), "2(n−1)/n of the buffer in the measured time: %s", line)
		assert.LessOrEqual(t, achieved-half, moved/(measured-half), line)
	}
}

func TestCUDA(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(dist.Config{Ranks: 2, Log: &out, Device: disttest.CUDA(t, emu.Config{})}, 1<<14, 2))
	require.Regexp(t, `(?s)^all-reduce on 2 ranks.* 16384 `, out.String())
}

// Points on a line give that line. A latency is never negative. If larger messages are faster, there is no line.
func TestFit(t *testing.T) {
	line := func(latency, perByte float64) (points []point) {
		for _, b := range []float64{1e3, 1e6, 1e7} {
			points = append(points, point{bytes: b, seconds: latency + b*perByte})
		}
		return points
	}
	latency, bandwidth, ok := fit(line(5e-6, 1/2e9))
	assert.True(t, ok)
	assert.InEpsilon(t, 5e-6, latency, 1e-6)
	assert.InEpsilon(t, 2e9, bandwidth, 1e-6)
	latency, bandwidth, ok = fit(line(-1e-8, 1/2e9))
	assert.True(t, ok)
	assert.Zero(t, latency)
	assert.InEpsilon(t, 2e9, bandwidth, 0.05)
	_, _, ok = fit(line(1, -1e-9))
	assert.False(t, ok)
}

func TestBadFlags(t *testing.T) {
	assert.ErrorContains(t, run(dist.Config{Ranks: 2}, 100, 1), "-max")
	assert.ErrorContains(t, run(dist.Config{Ranks: 2}, 1<<20, 0), "-reps")
	assert.ErrorContains(t, run(dist.Config{Ranks: 1}, 1<<20, 3), "one rank moves nothing")
}

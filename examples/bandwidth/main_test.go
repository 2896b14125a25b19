package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(3, 1<<20, 9, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if strings.HasPrefix(lines[0], "no line fits") { // a busy machine
		lines = lines[1:]
	}
	require.Len(t, lines, 2+7, out.String())
	assert.Regexp(t, `^all-reduce on 3 ranks \(local\): latency -?[\d.]+ µs, bandwidth -?[\d.]+ GB/s$`, lines[0])
	for i, line := range lines[2:] {
		var size int
		var measured, theory, achieved float64
		_, err := fmt.Sscan(line, &size, &measured, &theory, &achieved)
		require.NoError(t, err, line)
		assert.Equal(t, 256<<(2*i), size)
		assert.InDelta(t, 4.0/3*float64(size)/measured/1e3, achieved, 0.05*achieved+0.01, "2(n−1)/n of the buffer in the measured time")
	}
}

// Points on a line give the line.
func TestFit(t *testing.T) {
	var points []point
	for _, b := range []float64{0, 1e3, 1e6, 1e9} {
		points = append(points, point{bytes: b, seconds: 5e-6 + b/2e9})
	}
	latency, bandwidth := fit(points)
	assert.InEpsilon(t, 5e-6, latency, 1e-6)
	assert.InEpsilon(t, 2e9, bandwidth, 1e-6)
}

func TestBadFlags(t *testing.T) {
	assert.ErrorContains(t, run(2, 100, 1, io.Discard), "-max")
	assert.ErrorContains(t, run(2, 1<<20, 0, io.Discard), "-reps")
	assert.ErrorContains(t, run(1, 1<<20, 3, io.Discard), "one rank moves nothing")
}

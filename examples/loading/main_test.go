package main

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

// TestRun: together the ranks read the model once, however the layers are divided.
func TestRun(t *testing.T) {
	for _, c := range []struct{ ranks, layers int }{{1, 2}, {3, 8}, {4, 2}} {
		var out bytes.Buffer
		require.NoError(t, run(dist.Config{Ranks: c.ranks, Log: &out}, c.layers, ""))
		total := c.layers * (width*width + width) * 4
		lines := regexp.MustCompile(`(?m)^(.*?) +bytes read by rank: \[([\d ]+)\] of (\d+)$`).FindAllStringSubmatch(out.String(), -1)
		require.Len(t, lines, 3, out.String())
		for i, line := range lines {
			require.Equal(t, strconv.Itoa(total), line[3])
			sum, readers := 0, 0
			for _, word := range regexp.MustCompile(`\d+`).FindAllString(line[2], -1) {
				n, err := strconv.Atoi(word)
				require.NoError(t, err)
				sum += n
				if n > 0 {
					readers++
				}
			}
			require.Equal(t, total, sum, line[0])
			require.Equal(t, []int{1, c.ranks, min(c.ranks, c.layers)}[i], readers, line[0])
		}
	}
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, func(cfg dist.Config) error { return run(cfg, 3, "") })
}

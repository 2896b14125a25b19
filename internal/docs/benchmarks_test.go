package docs

import (
	"encoding/csv"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each row of docs/benchmarks.csv is a number that was measured once, of a topic and on a machine of BENCHMARKS.md, in the order of dates.
func TestBenchmarkHistory(t *testing.T) {
	list, err := csv.NewReader(strings.NewReader(read(t, "docs/benchmarks.csv"))).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"topic", "date", "commit", "machine", "measure", "value", "unit"}, list[0])
	topics, machines := anchors(t, "docs/BENCHMARKS.md"), map[string]bool{}
	for _, r := range rows(t, "docs/BENCHMARKS.md") {
		if len(r.cells) == 2 {
			machines[r.cells[0]] = true
		}
	}
	last, seen := map[string]string{}, map[string]bool{}
	for i, r := range list[1:] {
		topic, date := r[0], r[1]
		assert.True(t, topics[anchor(topic)], "row %d: BENCHMARKS.md has no heading %q", i+2, topic)
		assert.True(t, machines[r[3]], "row %d: BENCHMARKS.md has no machine %q", i+2, r[3])
		_, err := time.Parse(time.DateOnly, date)
		assert.NoError(t, err, "row %d", i+2)
		_, err = strconv.ParseFloat(r[5], 64)
		assert.NoError(t, err, "row %d", i+2)
		assert.LessOrEqual(t, last[topic], date, "row %d: older than the row before it", i+2)
		last[topic] = date
		key := strings.Join(append(r[:5:5], r[6]), "|")
		assert.False(t, seen[key], "row %d is there twice", i+2)
		seen[key] = true
	}
	assert.Greater(t, len(seen), 400)
}

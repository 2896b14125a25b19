package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ringo sim prints time, bandwidth, bytes of links and crossovers, as text and as JSON, and draws a picture.
func TestSim(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "out.svg")
	args := []string{"sim", "-op", "allreduce", "-algo", "double-tree,hierarchical", "-ranks", "8..64", "-bytes", "1KiB..1MiB",
		"-topo", "rails", "-plot", picture}
	stdout, stderr, code := run(t, args...)
	require.Zero(t, code, stderr)
	for _, want := range []string{"allreduce on rails\n", " ranks  algorithm      bytes ", "nvlink 1.75M, nic 224K\n",
		"\nthe fastest:\n     8 ranks: double-tree, from 1M hierarchical\n"} {
		assert.Contains(t, stdout, want)
	}
	assert.Equal(t, 1+1+3*2*6+2+3, strings.Count(stdout, "\n"), stdout)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	assert.Contains(t, string(svg), ">64 ranks, rails<")

	again, stderr, code := run(t, append(args, "-json")...)
	require.Zero(t, code, stderr)
	var r simReport
	require.NoError(t, json.Unmarshal([]byte(again), &r))
	require.Len(t, r.Rows, 3*2*6)
	assert.Equal(t, "rails", r.Topology.Name)
	assert.Equal(t, simCrossover{8, 1 << 10, "double-tree"}, r.Crossovers[0])
	last := r.Rows[len(r.Rows)-1]
	assert.Equal(t, [2]int{64, 1 << 20}, [2]int{last.Ranks, last.Bytes})
	assert.Equal(t, 2*(1<<20)*7/8, last.Links[0].Most, "nvlink")

	stdout, stderr, code = run(t, "sim", "-op", "barrier")
	require.Zero(t, code, stderr)
	assert.Regexp(t, `(?m)^ +8  dissemination +0 +\S+s +0.00 *$`, stdout)
}

// What ringo topo prints is a topology.
func TestSimOfMeasuredLinks(t *testing.T) {
	t.Parallel()
	topo, stderr, code := run(t, "topo", "-ranks", "2", "-backend", "local", "-json")
	require.Zero(t, code, stderr)
	file := filepath.Join(t.TempDir(), "here.json")
	require.NoError(t, os.WriteFile(file, []byte(topo), 0o666))
	stdout, stderr, code := run(t, "sim", "-topo", file, "-ranks", "2", "-bytes", "1M")
	require.Zero(t, code, stderr)
	assert.Regexp(t, `(?m)^ +2  direct +1M .* host 1M$`, stdout)
}

// Wrong uses are one sentence, and the exit status is 2.
func TestSimErrors(t *testing.T) {
	t.Parallel()
	loop := filepath.Join(t.TempDir(), "loop.json")
	require.NoError(t, os.WriteFile(loop, []byte(`{"name": "x", "host": 1, "links": [
		{"name": "a", "from": "rank", "to": "s", "ports": 2, "gbs": 1}, {"name": "b", "from": "s", "to": "s", "ports": 2, "gbs": 1}]}`), 0o666))
	for want, args := range map[string][]string{
		`-topo: no topology is called "dgx"; there are hgx-h100, rails, tree, and files such as x.json (see ringo sim -h)`: {
			"-topo", "dgx"},
		`-topo: ` + loop + `: topology "x": link "b" makes a loop: it leads from "s" up to "s", which is below it`: {
			"-topo", loop},
		`-ranks 12: topology "hgx-h100": 12 ranks do not fit: they are whole hosts of 8`: {"-ranks", "12"},
		`-ranks 262144: topology "rails": 262144 ranks do not fit`: {
			"-topo", "rails", "-ranks", "262144"},
		`-ranks 8-64: "8-64" is neither a number nor a range such as 8..512`:           {"-ranks", "8-64"},
		`-bytes 1x: "1x" is neither a size such as 64K nor a range such as 1KiB..1GiB`: {"-bytes", "1x"},
		`-op "send" cannot be simulated; these can: broadcast, reduce`:                 {"-op", "send"},
		`-algo "chain" cannot do allreduce, which has: linear, direct`:                 {"-algo", "chain"},
		`-plot x.png: the name must end in .svg`:                                       {"-plot", "x.png"},
	} {
		stdout, stderr, code := run(t, append([]string{"sim"}, args...)...)
		assert.Equal(t, 2, code, want)
		assert.Contains(t, stderr, "ringo: "+want)
		assert.Regexp(t, `^[^\n]*\n$`, stderr)
		assert.Empty(t, stdout)
	}
}

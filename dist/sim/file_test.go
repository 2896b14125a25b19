package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// The committed topologies run, with as many ranks as 16,384 too.
func TestNamed(t *testing.T) {
	require.Equal(t, []string{"hgx-h100", "rails", "tree"}, Names())
	for _, name := range Names() {
		top, err := Open(name)
		require.NoError(t, err)
		assert.Equal(t, name, top.Name)
		_, err = top.wire(16384)
		require.NoError(t, err)
		for _, ranks := range []int{1, 4, 8, 80} {
			r, err := top.Run(backend.AllReduce, "", ranks, 1<<20)
			require.NoError(t, err)
			assert.True(t, ranks == 1 || r.Time > 0)
		}
	}
}

// On rails a message to the same place on another host crosses one switch, other messages between hosts also the core. Ranks of a host
// have their own switch.
func TestRails(t *testing.T) {
	top, err := Open("rails")
	require.NoError(t, err)
	w, err := top.wire(512)
	require.NoError(t, err)
	for to, want := range map[int]string{3: "nvlink nvlink", 8: "nic nic", 9: "nic spine spine nic", 31 * 8: "nic nic",
		32 * 8: "nic spine spine nic"} {
		var names []string
		for _, h := range w.route(nil, 0, to) {
			names = append(names, h.Name)
		}
		assert.Equal(t, want, strings.Join(names, " "), "to %d", to)
	}
}

// Each mistake is one sentence.
func TestWrongTopologies(t *testing.T) {
	link := func(name, from, to, rest string) string {
		return fmt.Sprintf(`{"name": %q, "from": %q, "to": %q, %s}`, name, from, to, rest)
	}
	const plain = `"ports": 8, "gbs": 10, "ns": 5`
	file := func(links ...string) string {
		return `{"name": "x", "host": 4, "links": [` + strings.Join(links, ",") + `]}`
	}
	with := func(protocols string) string {
		return strings.Replace(file(link("a", "rank", "s", plain)), `"links"`, `"protocols": [`+protocols+`], "links"`, 1)
	}
	fast := func(gbs string) string { return file(link("a", "rank", "s", `"ports": 8, "ns": 5, "gbs": `+gbs)) }
	named := func(name string) string { return strings.Replace(file(link("a", "rank", "s", plain)), "x", name, 1) }
	tables := func(gbs int, hosts string) string {
		return fmt.Sprintf(`{"latency_us": [[0,1],[1,0]], "bandwidth_gbs": [[0,%d],[%[1]d,0]], "hosts": [%s]}`, gbs, hosts)
	}
	for text, want := range map[string]string{
		`[]`:             "no JSON object: json: cannot unmarshal array",
		`{"hosts": 4}`:   `no topology: json: unknown field "hosts"`,
		`{"name": "x"}`:  `topology "x": host is 0: write how many ranks a host has, such as 8`,
		file():           `topology "x": it has 0 links: 1 to 64 kinds`,
		`{"host": "a"}`:  "no topology: json: cannot unmarshal string",
		`{"host": 4} ,`:  "no JSON object: invalid character ','",
		`{"host": 1e99}`: "no topology: json: cannot unmarshal number 1e99",
		file(link("a", "rank", "s", plain),
			link("a", "s", "u", plain)): `topology "x": link 1 is called "a": every kind of link has a name`,
		file(link("a", "rank", "rank", plain)):                  `link "a" goes from "rank" to "rank": it goes from rank, or a kind of`,
		named("x\\u001b[31m"):                                   `"x\x1b[31m" is no name: at most 64 characters`,
		file(link(strings.Repeat("a", 65), "rank", "s", plain)): "is no name: at most 64 characters",
		fast("1e-6"): "a bandwidth is more than 0, from 0.001 to 1e9",
		fast("1e10"): "a bandwidth is more than 0, from 0.001 to 1e9",
		`{"name": "x", "host": 4, "memory_gbs": 1e-9}`: "memory_gbs is 0 or from 0.001 on",
		fast("0"):  `link "a" has 0 GB/s: a bandwidth is more than 0`,
		fast("-2"): `link "a" has -2 GB/s: a bandwidth is more than 0`,
		file(link("a", "rank", "s", `"ports": 8, "gbs": 2, "ns": -5`)): `link "a" has a latency of -5 ns`,
		file(link("a", "rank", "s", `"ports": 0, "gbs": 2, "ns": 5`)):  `link "a": 0 ports: a switch has 1 to`,
		file(link("a", "rank", "s", plain),
			link("b", "s", "u", `"rails": true, `+plain)): `link "b" has rails, and goes from "s": only links of ranks`,
		file(link("a", "rank", "s", plain), link("b", "s", "u", plain),
			link("c", "s", "v", plain)): `"s" has two links up, the second is "c": a switch has one`,
		file(link("a", "rank", "s", plain), link("b", "s", "u", plain),
			link("c", "u", "s", plain)): `link "c" makes a loop: it leads from "u" up to "s", which is below it`,
		file(link("a", "rank", "s", plain), link("b", "u", "v", plain)):       `link "b" goes up from "u", to which no rank is connected`,
		file(link("a", "rank", "s", `"sums": 1.5, `+plain)):                   `link "a": sums is a part of its bandwidth, from 0 to 1`,
		file(link("a", "rank", "s", `"sums": 1e-9, `+plain)):                  `link "a": sums is a part of its bandwidth, from 0 to 1`,
		file(link("a", "rank", "s", `"sums": 0.5, "sums_ns": -1, `+plain)):    `link "a": sums is a part of its bandwidth, from 0 to 1`,
		with(`{"name": "p", "part": 0}`):                                      `protocol "p": its times are from 0 to 1e9, and its part of`,
		with(`{"name": "p", "part": 1.1}`):                                    `protocol "p": its times are from 0 to 1e9, and its part of`,
		with(`{"name": "p", "part": 1, "call_ns": -1}`):                       `protocol "p": its times are from 0 to 1e9, and its part of`,
		with(`{"name": "p", "part": 1, "message_ns": 1e10}`):                  `protocol "p": its times are from 0 to 1e9, and its part of`,
		with(strings.Repeat(`{"name": "p", "part": 1},`, 64) + `{"part": 1}`): `protocol "p": its times are from 0 to 1e9, and its part of`,
		with(`{"name": "\u001b", "part": 1}`):                                 `"\x1b" is no name: at most 64 characters`,
		`{"latency_us": [[0]]}`:                                               "latency_us and bandwidth_gbs are not tables of 2 ranks",
		tables(1, `{"ranks": [0]}, {"ranks": [1]}, {"ranks": [2]}`):           "3 hosts of 1 ranks, and tables of 2",
		tables(1, `{"ranks": [1, 0]}`):                                        "host 0 does not have ranks 0 to 1: all hosts",
		tables(0, `{"ranks": [0, 1]}`):                                        `link "host" has 0 GB/s`,
	} {
		_, err := Parse([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
	_, err := Open("hgx")
	assert.EqualError(t, err, `no topology is called "hgx"; there are hgx-h100, rails, tree, and files such as x.json`)
	path := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(path, []byte(file()), 0o666))
	_, err = Open(path)
	assert.EqualError(t, err, path+`: topology "x": it has 0 links: 1 to 64 kinds`)
}

// Ranks that do not fit are refused, and so are sizes and algorithms.
func TestWrongRuns(t *testing.T) {
	small := &Topology{Name: "x", Host: 4, Links: []Link{{Name: "a", From: "rank", To: "s", Ports: 8, GBs: 1, NS: 1},
		{Name: "b", From: "s", To: "t", Ports: 2, GBs: 1, NS: 1}}}
	parts := &Topology{Name: "x", Host: 4, Links: []Link{{Name: "a", From: "rank", To: "s", Ports: 100, Rails: true, GBs: 1, NS: 1}}}
	for want, run := range map[string]func() (*Result, error){
		`topology "x": 20 ranks do not fit: its switches have ports for 16`: func() (*Result, error) {
			return small.Run(backend.AllReduce, "", 20, 1)
		},
		`topology "x": 6 ranks do not fit: they are whole hosts of 4`: func() (*Result, error) { return small.Run(backend.AllReduce, "", 6, 1) },
		`topology "x": 0 ranks do not fit`:                            func() (*Result, error) { return small.Run(backend.AllReduce, "", 0, 1) },
		`topology "x": ranks 0 and 7 have no way to each other: no switch is above both`: func() (*Result, error) {
			return parts.Run(backend.AllReduce, "", 8, 1)
		},
		`algorithm "chain" cannot do allreduce, which has: linear, direct, ring`: func() (*Result, error) {
			return small.Run(backend.AllReduce, "chain", 8, 1)
		},
		"alltoallv cannot be simulated; there are [broadcast": func() (*Result, error) { return small.Run(backend.AllToAllV, "", 8, 1) },
		"-1 bytes: want 0 to 1 TiB":                           func() (*Result, error) { return small.Run(backend.AllReduce, "", 8, -1) },
	} {
		_, err := run()
		assert.ErrorContains(t, err, want)
	}
}

// What ringo topo measured becomes links of the median latency and bandwidth.
func TestMeasured(t *testing.T) {
	top, err := Parse([]byte(`{"ranks": 4, "hosts": [{"host": "a", "ranks": [0, 1]}, {"host": "b", "ranks": [2, 3]}], "meshes": [],
		"latency_us": [[0, 2, 9, 9], [2, 0, 8, 8], [9, 9, 0, 3], [9, 9, 2, 0]],
		"bandwidth_gbs": [[0, 5, 1, 1], [5, 0, 1, 1], [1, 1, 0, 5], [1, 1, 6, 0]]}`))
	require.NoError(t, err)
	assert.Equal(t, &Topology{Name: "measured", Host: 2, Links: []Link{
		{Name: "host", From: "rank", To: "host", Ports: 2, GBs: 5, NS: 1000},
		{Name: "network", From: "rank", To: "network", Ports: maxRanks, GBs: 1, NS: 4500}}}, top)
	r, err := top.Run(backend.AllReduce, "ring", 2, 1<<19)
	require.NoError(t, err)
	assert.InDelta(t, 2*(2e-6+(1<<18)/5e9), r.Seconds, 1e-9)
}

// Hostile files take at most 16 times their size, and 64 MiB.
func TestMemoryOfFiles(t *testing.T) {
	for name, text := range map[string]string{
		"links":  `{"links": [` + strings.Repeat("{},", 1<<20) + `{}]}`,
		"rows":   `{"latency_us": [` + strings.Repeat("[],", 1<<20) + `[]]}`,
		"values": `{"latency_us": [[` + strings.Repeat("0,", 1<<20) + `0]]}`,
		"fields": `{` + strings.Repeat(`"a":0,`, 1<<18) + `"b":0}`,
		"few":    `{"links": [` + strings.Repeat("{},", 1<<15) + `{}]}`,
		"deep":   strings.Repeat("[", 1<<20),
		"word":   `{"name": "` + strings.Repeat("x", 1<<22) + `"}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := Parse([]byte(text))
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		assert.Less(t, len(err.Error()), 1000, name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*len(text)+64<<20), name)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		text, err := committed.ReadFile("topologies/" + name + ".json")
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		top, err := Parse(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(top)
		require.NoError(t, err)
		second, err := Parse(bytes.TrimSpace(again))
		require.NoError(t, err)
		require.Equal(t, top, second)
		if w, err := top.wire(2); err == nil {
			require.NotEmpty(t, w.route(nil, 0, 1))
		}
	})
}

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/pp"
)

// everyScene calls fn for every collective, algorithm and some numbers of ranks.
func everyScene(t *testing.T, fn func(t *testing.T, s *scene)) {
	for _, kind := range vizKinds {
		for _, name := range algo.Names(kind) {
			for _, n := range []int{2, 3, 4, 5, 6, 8, 16} {
				t.Run(fmt.Sprintf("%v_%s_%d", kind, name, n), func(t *testing.T) {
					s, err := record(t.Context(), kind, name, evenly(n, 1+n/4))
					require.NoError(t, err)
					fn(t, s)
				})
			}
		}
	}
}

// The scene is what happened: all bytes are there, each message has what its sender had, and at the end each rank has what the collective
// promises.
func TestScenes(t *testing.T) {
	t.Parallel()
	everyScene(t, func(t *testing.T, s *scene) {
		sum, sent := 0, 0
		for _, a := range s.arrows {
			sum += a.bytes
			assert.Equal(t, a.bytes > 0, len(a.holds) > 0)
		}
		for _, b := range s.sent {
			sent += b
		}
		assert.Equal(t, sum, sent)
		if s.bytes > 0 {
			want, text := formula(s.kind, s.algo, s.ranks, s.bytes)
			assert.Equal(t, want, sent, text)
		}
		s.follow(t)
		for r, got := range s.after {
			want := make([]held, 0, s.chunks)
			for c := range s.chunks {
				want = append(want, s.promise(r, c)...)
			}
			assert.ElementsMatch(t, want, got, "rank %d", r)
		}
	})
}

// follow replays the messages: a sender has all inputs of a chunk that it sends, its own or received in earlier steps.
func (s *scene) follow(t *testing.T) {
	has := make([]map[held]bool, s.ranks) // chunk and one rank whose input is known
	know := func(rank int, list []held) {
		for _, h := range list {
			for from := range s.ranks {
				if h.ranks>>from&1 == 1 {
					has[rank][held{h.chunk, 1 << from}] = true
				}
			}
		}
	}
	for r := range has {
		has[r] = map[held]bool{}
		know(r, s.before[r])
	}
	for i, a := range s.arrows {
		for _, b := range s.arrows[:i] {
			if b.step < a.step && b.to == a.from {
				know(a.from, b.holds)
			}
		}
		for _, h := range a.holds {
			for from := range s.ranks {
				if h.ranks>>from&1 == 1 {
					assert.True(t, has[a.from][held{h.chunk, 1 << from}], "rank %d sends chunk %d of rank %d too early", a.from, h.chunk, from)
				}
			}
		}
	}
}

// promise returns what rank r has of chunk c at the end.
func (s *scene) promise(r, c int) []held {
	all := uint64(1)<<s.ranks - 1
	owner, _ := owner(s.starts[c], shares(s.kind, s.ranks, s.bytes/8)) // if parts belong to ranks
	switch s.kind {
	case backend.AllReduce:
		return []held{{c, all}}
	case backend.Reduce:
		if r == 0 {
			return []held{{c, all}}
		}
	case backend.Broadcast:
		return []held{{c, 1}}
	case backend.AllGather, backend.AllGatherV:
		return []held{{c, 1 << owner}}
	case backend.Gather:
		if r == 0 {
			return []held{{c, 1 << owner}}
		}
	case backend.Scatter:
		if r == owner {
			return []held{{c, 1}}
		}
	case backend.Send:
		if r == s.ranks-1 {
			return []held{{c, 1}}
		}
	case backend.ReduceScatter, backend.ReduceScatterV:
		if r == owner {
			return []held{{c, all}}
		}
	case backend.AllToAll, backend.AllToAllV:
		var list []held
		for from := range s.ranks {
			if r == owner {
				list = append(list, held{c, 1 << from})
			}
		}
		return list
	}
	return nil
}

type box struct{ x, y, w, h float64 }

// boxes parses a picture and returns its labels' frames; every text must be inside the picture.
func boxes(t *testing.T, picture string) (frame box, labels []box) {
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return frame, labels
		}
		require.NoError(t, err)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		num := map[string]float64{}
		for _, a := range e.Attr {
			num[a.Name.Local], _ = strconv.ParseFloat(a.Value, 64)
		}
		b := box{num["x"], num["y"], num["width"], num["height"]}
		switch {
		case e.Name.Local == "svg":
			frame = b
		case e.Name.Local == "rect" && b.h == chipHeight:
			labels = append(labels, b)
		case e.Name.Local == "text":
			assert.True(t, 0 < b.x && b.x < frame.w && 0 < b.y && b.y < frame.h)
		}
	}
}

// No label of any picture covers another one or leaves the picture.
func TestLabelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	everyScene(t, func(t *testing.T, s *scene) {
		frame, labels := boxes(t, picture(s))
		want := 0
		for _, a := range s.arrows {
			want += len(a.holds)
		}
		for r := range s.ranks {
			want += len(s.before[r]) + len(s.after[r])
		}
		assert.Len(t, labels, want)
		for i, a := range labels {
			assert.True(t, a.x > 0 && a.x+a.w < frame.w && a.y > 0 && a.y+a.h < frame.h)
			for _, b := range labels[:i] {
				if a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h {
					t.Fatalf("%v covers %v", a, b)
				}
			}
		}
	})
}

func TestVizLabels(t *testing.T) {
	c := &canvas{s: &scene{kind: backend.AllReduce, ranks: 8, at: algo.OneHost(8)}}
	for want, ranks := range map[string]uint64{
		"c0": 1, "c1+c7": 1<<1 | 1<<7, "c2…4": 0b11100, "c6…1": 0b11000011, "c0,2,4": 0b10101, "Σc": 255,
	} {
		assert.Equal(t, want, c.label(held{2, ranks}))
	}
	c.s.kind = backend.AllGather
	assert.Equal(t, "c", c.label(held{2, 4}))
	assert.Equal(t, "ac", c.label(held{28, 4}))
	for n, want := range map[int]string{0: "0 B", 1000: "1000 B", 1024: "1 KiB", 1280: "1.25 KiB", 1 << 20: "1 MiB", 5 << 18: "1.25 MiB"} {
		assert.Equal(t, want, bytesText(n))
	}
}

// Each schedule is drawn, and so is the file that it writes; what is wrong is said.
func TestVizSchedule(t *testing.T) {
	dir := t.TempDir()
	drawn := func(args ...string) string {
		out := filepath.Join(dir, "out.svg")
		stdout, stderr, code := run(t, append([]string{"viz", "schedule", "-o", out}, args...)...)
		require.Equal(t, 0, code, stderr)
		assert.Empty(t, stdout+stderr)
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		return string(text)
	}
	csv := filepath.Join(dir, "s.csv")
	for _, name := range pp.Names() {
		text := drawn(name, "-stages", "3", "-microbatches", "7", "-csv", csv)
		assert.Contains(t, text, "<title>"+name+" on 3 ranks: 7 microbatches of a step</title>")
		assert.Equal(t, strings.ReplaceAll(text, name+" on", csv+" on"), drawn(csv), "from its file")
	}
	assert.Contains(t, drawn("1f1b"), ">33 units of time, of which ranks wait 27.3%; most microbatches of a stage that a rank holds: 4 3 2 1<")
	require.NoError(t, os.WriteFile(csv, []byte("0F0,0B0\n1B0,1F0\n"), 0o666))
	for args, want := range map[string]string{
		"dualpipev -stages 5 -o x.svg":            "DualPipeV needs at least 10 microbatches on 5 ranks, not 8",
		"1f1b -stages 0 -o x.svg":                 "-stages 0, -microbatches 8, -chunks 2: want 1 to 400 of each",
		"1f1b -stages 17 -o x.svg":                "a picture has at most 16 and 400",
		"1f1b -microbatches 200 -o x.svg":         "609 units of time: a picture has at most 16 and 400",
		"1f1b -o x.png":                           "-o x.png: the name must end in .svg",
		"2f2b -o x.svg":                           `"2f2b" is no schedule; there are a file .csv and: 1f1b, dualpipev`,
		dir + "/none.csv -o x.svg":                "no such file or directory",
		"1f1b -csv " + dir + "/no/x.csv -o x.svg": "no such file or directory",
		csv + " -o x.svg":                         "rank 1 waits for ever at 1B0 for 1F0, which comes later on this rank",
	} {
		_, stderr, code := run(t, append([]string{"viz", "schedule"}, strings.Fields(args)...)...)
		assert.NotEqual(t, 0, code, args)
		assert.Contains(t, stderr, want, args)
	}
	assert.NoFileExists(t, "x.svg")
}

func TestVizWritesAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.svg")
	stdout, stderr, code := run(t, "viz", "allreduce", "-algo", "ring", "-ranks", "3", "-o", file)
	assert.Equal(t, 0, code, stderr)
	assert.Empty(t, stdout+stderr)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<title>allreduce by ring on 3 ranks</title>")
	assert.Contains(t, string(text), ">12 messages in 4 steps<")
	assert.Contains(t, string(text), "S = 384 B; all ranks send 1.5 KiB = 2(n−1)·S, the busiest 512 B")
}

// In a ring, the messages between the last rank of a host and the first rank of the next go between hosts.
func TestVizHosts(t *testing.T) {
	v := vizCmd{Ranks: 8, Hosts: 3}
	assert.Equal(t, algo.Layout{0, 0, 0, 1, 1, 1, 2, 2}, evenly(v.Ranks, v.Hosts))
	s, err := record(t.Context(), backend.AllGather, "ring", evenly(v.Ranks, v.Hosts))
	require.NoError(t, err)
	text := picture(s)
	assert.Contains(t, text, "allgather by ring on 8 ranks of 3 hosts")
	assert.Contains(t, text, "; between hosts 2688 B (thick)<", "3 links × 7 steps × 128 bytes")
	assert.Equal(t, 3*7, strings.Count(text, `class="msg away"`))
	for h := range 3 {
		assert.Contains(t, text, fmt.Sprintf(">host %d<", h))
	}
	s, err = record(t.Context(), backend.AllGather, "ring", algo.OneHost(8))
	require.NoError(t, err)
	assert.NotContains(t, picture(s), "host")
}

func TestVizErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/is.svg", 0o755))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"allreduce", 2, "missing flags: -algo=NAME, -out=FILE"},
		{"-algo ring -o x.svg", 2, `expected "<op>"`},
		{"frob -algo ring -o x.svg", 2, `"frob" cannot be drawn; these can: broadcast, reduce, allreduce,`},
		{"batch -algo ring -o x.svg", 2, `"batch" cannot be drawn`},
		{"broadcast -algo ring -o x.svg", 2, `-algo "ring" cannot do broadcast, which has: linear, direct, chain, binomial`},
		{"allreduce -algo rank-order -o x.svg", 2, `-algo "rank-order" cannot do allreduce, which has: linear, direct, ring`},
		{"barrier -algo= -o x.svg", 2, `-algo "" cannot do barrier, which has: linear, direct, dissemination`},
		{"allreduce -algo ring -ranks 0 -o x.svg", 2, "-ranks 0: a picture has 2 to 16 ranks"},
		{"allreduce -algo ring -ranks 1 -o x.svg", 2, "-ranks 1:"},
		{"allreduce -algo ring -ranks 100 -o x.svg", 2, "-ranks 100:"},
		{"allreduce -algo ring -ranks=-3 -o x.svg", 2, "-ranks -3:"},
		{"allreduce -algo ring -hosts 0 -o x.svg", 2, "-hosts 0: 4 ranks lie on 1 to 4 hosts"},
		{"allreduce -algo ring -hosts 5 -o x.svg", 2, "-hosts 5:"},
		{"allreduce -algo ring -ranks x -o x.svg", 2, `"x"`},
		{"allreduce -algo ring -o x.png", 2, "-o x.png: the name must end in .svg"},
		{"allreduce -algo ring -o " + dir + "/none/x.svg", 1, "no such file or directory"},
		{"allreduce -algo ring -o " + dir + "/is.svg", 1, "is a directory"},
	} {
		_, stderr, code := run(t, append([]string{"viz"}, strings.Fields(c.args)...)...)
		assert.Equal(t, c.code, code, c.args)
		assert.Contains(t, stderr, c.want, c.args)
	}
	assert.NoFileExists(t, "x.svg")
}

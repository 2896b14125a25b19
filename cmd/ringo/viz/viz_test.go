package viz

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// onHosts puts ranks on hosts, in order and as evenly as they go.
func onHosts(ranks, hosts int) algo.Layout {
	at := make(algo.Layout, ranks)
	for r := range at {
		at[r] = r * hosts / ranks
	}
	return at
}

// everyScene calls fn for every collective, algorithm and some numbers of ranks, in the short form fewer.
func everyScene(t *testing.T, fn func(t *testing.T, s *Scene)) {
	sizes := []int{3, 5, 8}
	if reliability.Long(t) {
		sizes = []int{2, 3, 4, 5, 6, 8, 16}
	}
	for _, kind := range Kinds {
		for _, name := range algo.Names(kind) {
			for _, n := range sizes {
				t.Run(fmt.Sprintf("%v_%s_%d", kind, name, n), func(t *testing.T) {
					s, err := Record(t.Context(), kind, name, onHosts(n, 1+n/4))
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
	everyScene(t, func(t *testing.T, s *Scene) {
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

func TestLongScenes(t *testing.T) { reliability.AsLong(t, TestScenes) }

// follow replays the messages: a sender has all inputs of a chunk that it sends, its own or received in earlier steps.
func (s *Scene) follow(t *testing.T) {
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
func (s *Scene) promise(r, c int) []held {
	all := uint64(1)<<s.ranks - 1
	owner, at := 0, s.starts[c] // if parts belong to ranks
	for parts := shares(s.kind, s.ranks, s.bytes/8); owner < len(parts) && at >= parts[owner]; owner++ {
		at -= parts[owner]
	}
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
	everyScene(t, func(t *testing.T, s *Scene) {
		frame, labels := boxes(t, s.SVG())
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

func TestLongLabelsDoNotOverlap(t *testing.T) { reliability.AsLong(t, TestLabelsDoNotOverlap) }

func TestLabels(t *testing.T) {
	c := &canvas{s: &Scene{kind: backend.AllReduce, ranks: 8, at: algo.OneHost(8)}}
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

// In a ring, the messages between the last rank of a host and the first rank of the next go between hosts.
func TestHosts(t *testing.T) {
	s, err := Record(t.Context(), backend.AllGather, "ring", algo.Layout{0, 0, 0, 1, 1, 1, 2, 2})
	require.NoError(t, err)
	text := s.SVG()
	assert.Contains(t, text, "allgather by ring on 8 ranks of 3 hosts")
	assert.Contains(t, text, "; between hosts 2688 B (thick)<", "3 links × 7 steps × 128 bytes")
	assert.Equal(t, 3*7, strings.Count(text, `class="msg away"`))
	for h := range 3 {
		assert.Contains(t, text, fmt.Sprintf(">host %d<", h))
	}
	s, err = Record(t.Context(), backend.AllGather, "ring", algo.OneHost(8))
	require.NoError(t, err)
	assert.NotContains(t, s.SVG(), "host")
}

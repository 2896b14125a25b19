package dist

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// AllGatherObject returns the v of every rank, in rank order. v is sent as JSON: this is for control data, not for
// tensors. It is collective.
func AllGatherObject[V any](g *Group, v V) ([]V, error) {
	text, err := json.Marshal(v)
	if err != nil {
		g.Abort(&Error{Rank: g.c.rank, Group: g.name, Op: "allgatherobject", Cause: err})
		return nil, g.Err()
	}
	sizes := make([]int64, g.Size())
	if err := g.AllGather(tensor.FromSlice(sizes, len(sizes)), tensor.FromSlice([]int64{int64(len(text))}, 1)).Wait(); err != nil {
		return nil, err
	}
	counts, total := make([]int, len(sizes)), 0
	for i, n := range sizes {
		counts[i] = int(n)
		total += int(n)
	}
	all := make([]byte, total)
	if err := g.AllGatherV(tensor.FromSlice(all, total), tensor.FromSlice(text, len(text)), counts).Wait(); err != nil {
		return nil, err
	}
	out := make([]V, len(counts))
	for i, n := range counts {
		if err := json.Unmarshal(all[:n], &out[i]); err != nil {
			return nil, fmt.Errorf("dist: object of rank %d: %w", i, err)
		}
		all = all[n:]
	}
	return out, nil
}

// BroadcastObject returns the v of rank root on every rank. v is sent as JSON. It is collective.
func BroadcastObject[V any](g *Group, v V, root int) (V, error) {
	var text []byte
	size := []int64{0}
	if g.Rank() == root {
		var err error
		if text, err = json.Marshal(v); err != nil {
			g.Abort(&Error{Rank: g.c.rank, Group: g.name, Op: "broadcastobject", Cause: err})
			return v, g.Err()
		}
		size[0] = int64(len(text))
	}
	if err := g.Broadcast(tensor.FromSlice(size, 1), root).Wait(); err != nil {
		return v, err
	}
	if g.rank != root {
		text = make([]byte, size[0])
	}
	if err := g.Broadcast(tensor.FromSlice(text, len(text)), root).Wait(); err != nil {
		return v, err
	}
	if g.Rank() == root {
		return v, nil
	}
	var out V
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("dist: object of rank %d: %w", root, err)
	}
	return out, nil
}

// OnRank0 calls f on g's rank 0, for what one rank must do, such as looking at files. All ranks get what it returns, an error by its text.
// It is collective: after an error it returns when all ranks have it, because a rank that returns early may end the job.
func OnRank0[V any](g *Group, f func() (V, error)) (V, error) {
	var got struct {
		V   V
		Err string
	}
	var mine error
	if g.Rank() == 0 {
		if got.V, mine = f(); mine != nil {
			got.Err = mine.Error()
		}
	}
	got, err := BroadcastObject(g, got, 0)
	if err == nil && got.Err != "" {
		_ = g.Barrier().Wait() // its error would change nothing
		if mine == nil {
			mine = errors.New(got.Err)
		}
	}
	return got.V, errors.Join(mine, err)
}

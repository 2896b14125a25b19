package ckpt

import (
	"context"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// A rank can hash only the pieces that it loads completely. With the layout that saved the checkpoint, these are all
// pieces. With another layout, some pieces are read by several ranks, each a part. The ranks divide these pieces among
// them, and each one is read and hashed once more. So a load reads every byte at most twice, whatever the layouts, and
// one hash per piece is enough.

// What a rank knows about a piece after it has loaded its own parts.
const (
	pieceUnread   = iota
	piecePartial  // the rank loaded a part, which it cannot hash alone
	pieceVerified // the rank loaded all of it, and the hash is right
)

// verifyPartial verifies the pieces that ranks loaded in parts. It is collective. All ranks divide the work in the same
// way, because they have read the same ringo.json.
func (l *loader) verifyPartial(ctx context.Context) error {
	if len(l.pieces) == 0 {
		return nil
	}
	states, me, load := l.pieces, 0, make([]int64, 1)
	if l.g != nil { // of each piece, the highest state on any rank
		x := tensor.ToDevice(l.g.Device(), tensor.FromSlice(states, len(states)))
		if err := l.g.AllReduce(x, dist.Max).Wait(); err != nil {
			return err
		}
		states, me, load = tensor.ToHost(x).Bytes(), l.g.Rank(), make([]int64, l.g.Size())
	}
	var todo []func() error
	for _, x := range l.src.Each() {
		for k, p := range x.Pieces {
			if states[x.First+k] != piecePartial {
				continue
			}
			rank := least(load)
			load[rank] += int64(p.Len() * x.ElementSize())
			if rank == me {
				todo = append(todo, func() error {
					return x.ScanPiece(ctx, p, func(b []byte) { l.checked.Add(int64(len(b))) })
				})
			}
		}
	}
	return l.damaged(ctx, storage.Parallel(len(todo), func(i int) error { return todo[i]() }))
}

// least returns the index of the smallest value.
func least(load []int64) int {
	best := 0
	for i, n := range load {
		if n < load[best] {
			best = i
		}
	}
	return best
}

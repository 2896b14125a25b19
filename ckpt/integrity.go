package ckpt

import (
	"context"
	"errors"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// A rank can hash only the pieces that it loads completely. With the layout that saved the checkpoint, these are all
// pieces. With another layout, some pieces are read by several ranks, each a part. The ranks divide these pieces among
// them, and each one is read and hashed once more. So a load reads every byte at most twice, whatever the layouts, and
// one hash per piece is enough.

// pieceState is what a rank knows about a piece after it has loaded its own parts.
type pieceState byte

const (
	pieceUnread   pieceState = iota
	piecePartial             // the rank loaded a part, which it cannot hash alone
	pieceVerified            // the rank loaded all of it, and the hash is right
)

// verifyPartial verifies the pieces that ranks loaded in parts. It is collective. All ranks divide the work in the same
// way, because they have read the same ringo.json.
func (l *loader) verifyPartial(ctx context.Context) error {
	if len(l.pieces) == 0 {
		return nil
	}
	states, err := l.bestStates()
	if err != nil {
		return err
	}
	var todo []pieceOf
	me, load := 0, make([]int64, 1)
	if l.g != nil {
		me, load = l.g.Rank(), make([]int64, l.g.Size())
	}
	for _, x := range l.src.Each() {
		for k, p := range x.Pieces {
			if pieceState(states[x.First+k]) != piecePartial {
				continue
			}
			rank := least(load)
			load[rank] += int64(p.Len() * x.ElementSize())
			if rank == me {
				todo = append(todo, pieceOf{x, p})
			}
		}
	}
	return l.damaged(ctx, storage.Parallel(len(todo), func(i int) error {
		return todo[i].of.ScanPiece(ctx, todo[i].piece, func(b []byte) { l.checked.Add(int64(len(b))) })
	}))
}

// bestStates returns, for each piece, the highest state on any rank.
func (l *loader) bestStates() ([]byte, error) {
	mine := make([]byte, len(l.pieces))
	for i, s := range l.pieces {
		mine[i] = byte(s)
	}
	if l.g == nil {
		return mine, nil
	}
	x := tensor.New(l.g.Device(), tensor.Uint8, len(mine))
	b := hostMemory(x)
	copy(b, mine)
	if err := errors.Join(setBytes(x, b), l.g.AllReduce(x, dist.Max).Wait()); err != nil {
		return nil, err
	}
	return hostBytes(x)
}

type pieceOf struct {
	of    *storage.Tensor
	piece storage.Piece
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

package ckpt

import (
	"context"
	"errors"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// A rank hashes what it loads where it holds a piece completely: on the layout that saved, that is all. Pieces that are cut
// otherwise now, nobody holds; the ranks share them, and each reads and hashes some more. So a load reads every byte at most
// twice, whatever the layouts, and needs no hashes but those of the pieces.

// pieceState is what a rank knows of a piece after loading its own parts.
type pieceState byte

const (
	pieceUnread   pieceState = iota
	piecePartial             // it loaded a part of it, and cannot hash that
	pieceVerified            // it loaded all of it, and the hash is right
)

// verifyPartial verifies the pieces that ranks loaded in parts. It is collective, and the same on all ranks: they see the same
// ringo.json.
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
	for _, x := range l.src.each() {
		for k, p := range x.pieces {
			if pieceState(states[x.first+k]) != piecePartial {
				continue
			}
			rank := least(load)
			load[rank] += int64(p.len() * x.elementSize())
			if rank == me {
				todo = append(todo, pieceOf{x, p})
			}
		}
	}
	return l.damaged(ctx, parallel(len(todo), func(i int) error {
		return todo[i].of.scanPiece(ctx, todo[i].piece, func(b []byte) { l.checked.Add(int64(len(b))) })
	}))
}

// bestStates returns the most that any rank knows of each piece.
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
	of    *stored
	piece storedPiece
}

// least returns the place of the smallest.
func least(load []int64) int {
	best := 0
	for i, n := range load {
		if n < load[best] {
			best = i
		}
	}
	return best
}

package nn

import (
	"github.com/ringo-ml/ringo/tensor/ops"
)

// lookup returns the vectors of ids, and zeros for those in rows that other ranks have.
func (e *Embedding) lookup(w, ids T) T {
	boxes := e.W.Placement().Boxes()
	if w.Dim(0) == e.W.Global()[0] { // whole, or gathered where it is used
		return ops.Embedding(w, ids)
	}
	if b := boxes[0]; len(boxes) > 1 || b.Hi[1]-b.Lo[1] != e.W.Global()[1] {
		fail("Embedding", "%s must be sharded by rows, but its boxes are %v", e.W.Name(), boxes)
	}
	return ops.EmbeddingPart(w, ids, boxes[0].Lo[0], e.W.Global()[0])
}

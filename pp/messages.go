package pp

import (
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Messages of the pipeline are received in the order in which they are sent, which the schedule tells. Their shapes and Origins travel in
// front of them in the first step; from then on receives are posted ahead.
const (
	ahead     = 2 // messages that are posted before they are needed
	headerTag = 1
	dataTag   = 2
	headerLen = 2 + tensor.MaxRank + tensor.OriginLen
)

// origin is what a rank must know of a message before it can receive it: type, rank, dimensions, and tensor.Origin.
type origin [headerLen]int64

func originOf(x tensor.Tensor, from tensor.Origin) (o origin) {
	o[0], o[1] = int64(x.DType()), int64(x.Rank())
	for i := range x.Rank() {
		o[2+i] = int64(x.Dim(i))
	}
	list := from.Ints()
	copy(o[2+tensor.MaxRank:], list[:])
	return o
}

func (o *origin) shape() tensor.Shape {
	s := tensor.Shape{DType: tensor.DType(o[0]), Dims: make([]int, o[1])}
	for i := range s.Dims {
		s.Dims[i] = int(o[2+i])
	}
	return s
}

// inbox is what one rank sends to this one in a step.
type inbox struct {
	from, n      int
	origins      []origin
	arriving     []arriving
	posted, used int
	spare        []*buffer
}

type arriving struct {
	*buffer
	work dist.Work
}

// buffer is memory for messages of one origin.
type buffer struct {
	origin
	from tensor.Origin
	box  *inbox
	view tensor.Tensor
}

// post begins to receive what is needed next.
func (p *Pipeline) post() {
	for _, b := range p.boxes {
		for p.known && b.posted < min(b.used+ahead, b.n) {
			p.receive(b)
		}
	}
}

// receive begins to receive the next message.
func (p *Pipeline) receive(b *inbox) {
	o := &b.origins[b.posted]
	if !p.known {
		must(p.Group.Recv(tensor.FromSlice(o[:], headerLen), b.from, headerTag).Wait())
	}
	buf := b.take(o)
	if buf == nil {
		buf = p.newBuffer(b, o)
	}
	b.arriving[b.posted] = arriving{buf, p.note(p.Group.Recv(buf.view, b.from, dataTag))}
	b.posted++
}

func (p *Pipeline) newBuffer(b *inbox, o *origin) *buffer {
	s := o.shape()
	from, err := tensor.OriginOf([tensor.OriginLen]int64(o[2+tensor.MaxRank:]))
	must(err)
	return &buffer{*o, from, b, p.Group.Alloc(s.DType, s.Dims...).WithTypes(from.Types)}
}

// take returns a spare buffer for an origin, or nil.
func (b *inbox) take(o *origin) *buffer {
	for i, buf := range b.spare {
		if buf.origin == *o {
			b.spare = slices.Delete(b.spare, i, i+1)
			return buf
		}
	}
	return nil
}

// recv waits for what a task needs. The pass keeps the buffer, as its input or its gradient.
func (p *Pipeline) recv(t *task, s *pass, as int) *buffer {
	b := p.boxes[t.from]
	for b.posted <= t.index {
		p.receive(b)
	}
	b.used++
	a := &b.arriving[t.index]
	must(a.work.Wait())
	s.got[as] = a.buffer
	return a.buffer
}

// send sends a task's result. In the first step its origin goes before it; later ones must have the same.
func (p *Pipeline) send(i int, t *task, o origin, x tensor.Tensor) dist.Work {
	old := &p.sent[i]
	if !p.known {
		*old = o
		p.note(p.Group.Send(tensor.FromSlice(old[:], headerLen), t.to, headerTag))
	} else if o != *old {
		p.changed(t, o, *old)
	}
	return p.note(p.Group.Send(x, t.to, dataTag))
}

// note keeps a Work until the step ends, or fails.
func (p *Pipeline) note(w dist.Work) dist.Work {
	p.works = append(p.works, w)
	return w
}

// changed says what is another origin than in the first step. The receiver expects that one.
func (p *Pipeline) changed(t *task, o, old origin) {
	what := "output"
	if t.Kind != F {
		what = "gradient of the input"
	}
	if a, b := o.shape(), old.shape(); a.String() == b.String() {
		fail("the %s of stage %d has other rows of the batch than in the first step, or other types, for microbatch %d", what, t.Stage, t.Micro)
	}
	fail("the %s of stage %d is %v for microbatch %d, and was %v in the first step: leave out a last batch that is smaller, or make a "+
		"Pipeline for it", what, t.Stage, o.shape(), t.Micro, old.shape())
}

package pp

import (
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Messages of the pipeline are received in the order in which they are sent, which the schedule tells. Their shapes and Origins travel in
// front of them in the first step, and in the first step with other rows (SetRows); from then on receives are posted ahead.
const (
	ahead     = 2 // messages that are posted before they are needed
	headerTag = 1
	dataTag   = 2
	headerLen = 2 + tensor.MaxNDim + tensor.OriginLen
)

// header is what a rank must know of a message before it can receive it: data type, number of dimensions, dimensions, and tensor.Origin.
type header [headerLen]int64

func headerOf(x tensor.Tensor, from tensor.Origin) (h header) {
	h[0], h[1] = int64(x.DType()), int64(x.NDim())
	for i := range x.NDim() {
		h[2+i] = int64(x.Dim(i))
	}
	list := from.Ints()
	copy(h[2+tensor.MaxNDim:], list[:])
	return h
}

func (h *header) shape() tensor.Shape {
	s := tensor.Shape{DType: tensor.DType(h[0]), Dims: make([]int, h[1])}
	for i := range s.Dims {
		s.Dims[i] = int(h[2+i])
	}
	return s
}

// rows is what the shapes of a step's messages depend on.
type rows struct {
	at tensor.Rows
	n  int
}

// headers are those of a step's messages.
type headers struct {
	known bool
	out   []header   // by number of the task
	in    [][]header // by rank
}

// SetRows says that the steps from now on have n rows of the batch on this rank, at the place of at. All ranks of the pipeline call it
// alike, before each Step with other rows than the one before: a data.Loader's first batch, and the last one of an epoch, have other
// numbers. If all steps have the same, it is not needed.
func (p *Pipeline) SetRows(at tensor.Rows, n int) {
	at.Number = 0
	of := p.ofRows[rows{at, n}]
	if of == nil {
		of = &headers{out: make([]header, len(p.tasks))}
		for _, b := range p.boxes {
			of.in = append(of.in, make([]header, b.n))
		}
		p.ofRows[rows{at, n}] = of
	}
	p.headers = of
}

// inbox is what one rank sends to this one in a step.
type inbox struct {
	from, n, used int
	posted        []*buffer // of messages, in order
	spare         []*buffer
}

// buffer is memory for messages of one header.
type buffer struct {
	header
	from     tensor.Origin
	box      *inbox
	view     tensor.Tensor
	arriving dist.Work
}

// post begins to receive what is needed next.
func (p *Pipeline) post() {
	for _, b := range p.boxes {
		for p.known && len(b.posted) < min(b.used+ahead, b.n) {
			p.receive(b)
		}
	}
}

// receive begins to receive the next message.
func (p *Pipeline) receive(b *inbox) {
	h := &p.in[b.from][len(b.posted)]
	if !p.known {
		must(p.Group.Recv(tensor.FromSlice(h[:], headerLen), b.from, headerTag).Wait())
	}
	i := slices.IndexFunc(b.spare, func(buf *buffer) bool { return buf.header == *h })
	if i < 0 {
		i, b.spare = len(b.spare), append(b.spare, p.newBuffer(b, h))
	}
	buf := b.spare[i]
	b.spare = slices.Delete(b.spare, i, i+1)
	buf.arriving = p.note(p.Group.Recv(buf.view, b.from, dataTag))
	b.posted = append(b.posted, buf)
}

func (p *Pipeline) newBuffer(b *inbox, h *header) *buffer {
	s := h.shape()
	from, err := tensor.OriginOf([tensor.OriginLen]int64(h[2+tensor.MaxNDim:]))
	must(err)
	return &buffer{header: *h, from: from, box: b, view: p.Group.Alloc(s.DType, s.Dims...).WithTypes(from.Types)}
}

// recv waits for what a task needs. The pass keeps the buffer, as its input or its gradient.
func (p *Pipeline) recv(t *task, s *pass, as int) *buffer {
	b := p.boxes[t.from]
	for len(b.posted) <= t.index {
		p.receive(b)
	}
	b.used++
	s.got[as] = b.posted[t.index]
	must(s.got[as].arriving.Wait())
	return s.got[as]
}

// send sends a task's result. In the first step with these rows its header goes before it; later ones must have the same.
func (p *Pipeline) send(t *task, h header, x tensor.Tensor) dist.Work {
	old := &p.out[t.number]
	if !p.known {
		for j, q := range p.tasks[:t.number] {
			if t.Kind == F && q.Kind == F && q.Stage == t.Stage && p.out[j] == h && x.Origin().N() > 0 {
				fail("microbatches %d and %d have the same rows of the batch: losses divide by the rows of the whole step, Rows.Total, of which "+
					"each has some", q.Micro, t.Micro)
			}
		}
		*old = h
		p.works = append(p.works, p.Group.Send(tensor.FromSlice(old[:], headerLen), t.to, headerTag))
	} else if h != *old {
		fail("%v sends %v to the next rank, and sent %v in the first step with these rows; the shape, the rows of the batch or the types "+
			"differ: call SetRows before a Step with other rows, on all ranks of the pipeline; after Freeze or Unfreeze of a stage's "+
			"parameters, make another Pipeline", t.Action, h.shape(), old.shape())
	}
	return p.note(p.Group.Send(x, t.to, dataTag))
}

// note keeps a Work until the step ends, or fails.
func (p *Pipeline) note(w dist.Work) dist.Work {
	p.works = append(p.works, w)
	return w
}

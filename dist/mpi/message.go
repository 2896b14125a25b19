package mpi

import (
	"cmp"
	"encoding/json"
	"errors"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Ranks tell each other what MPI does not: by messages on a communicator of their own. They carry no data, except that of a Send that fits
// in one. All are received in one place and never wait for an operation, so a rank learns of a failure whatever it waits for.
const (
	msgArrive = iota // an operation is issued: round a of its dissemination, or the count a of an AllToAllV for the receiver
	msgDesc          // what the operation is: its fingerprint differed
	msgAbort         // the group has failed
	msgQuery         // how far are you? a: number of the question
	msgStatus        // the answer
	msgEnd           // no operation follows after seq; a: 1 if in no other group either
	msgLeft          // in no group at all
	msgBye           // the rank ends after a failure: it does not call MPI_Finalize
	msgClaim         // take part in making the communicator, then tell the next member
	msgGo            // all members take part
	msgSend          // a message of a bytes follows with tag b, or is here
	msgAck           // messages up to seq were received
)

const (
	maxMessage = 8 << 10
	inline     = 1 << 10 // a Send of at most so many bytes is one message
)

// head is the beginning of a message. All ranks of a job run the same program, so it is sent as it is in memory.
type head struct {
	kind, from      int32
	id              uint64
	seq, print      uint64
	a, b            int64
	length, reserve int32
}

const headBytes = int(unsafe.Sizeof(head{}))

// message is one that was received. text is valid until the next one.
type message struct {
	head
	text []byte
}

// post sends a message to a rank of the job, now or when the call that MPI is in has returned. e.mu is held.
func (e *Engine) post(to int, h head, text []byte) {
	if e.frozen != nil || e.over {
		return
	}
	h.from, h.length = int32(e.rank), int32(len(text))
	r := e.newRequest()
	r.own = append(append(r.own[:0], unsafe.Slice((*byte)(unsafe.Pointer(&h)), headBytes)...), text...)
	r.to = to
	if e.away != "" {
		e.outbox = append(e.outbox, r)
		return
	}
	e.launch(r)
}

// launch begins to send a message.
func (e *Engine) launch(r *request) {
	e.isend(r, e.ctl, r.to, 0, unsafe.Pointer(&r.own[0]), len(r.own))
	if e.start(r); r.over {
		e.recycle(r)
	}
}

// receive handles messages that are here: for b only up to one with which an operation gets further. e.mu is held.
func (e *Engine) receive(b *endpoint) {
	for i, moves := 0, e.moves; i < 64 && (b == nil || e.moves == moves); i++ {
		if !e.callable() || !e.test(&e.inbox) {
			break
		}
		if e.inbox.err != nil {
			e.failAll(e.inbox.err)
			break
		}
		e.inbox.own, e.letter = e.letter, e.inbox.own
		e.listen()
		m := message{head: *(*head)(unsafe.Pointer(&e.letter[0]))}
		m.text = e.letter[headBytes : headBytes+int(m.length)]
		e.dispatch(&m)
	}
}

// listen waits for the next message.
func (e *Engine) listen() {
	r := &e.inbox
	e.irecv(r, e.ctl, int(e.lib.AnySource), 0, unsafe.Pointer(&r.own[0]), maxMessage)
	r.over = r.err != nil
}

// dispatch handles one message.
func (e *Engine) dispatch(m *message) {
	switch m.kind {
	case msgLeft:
		e.left[m.from] = true
		for _, b := range e.ends {
			b.noteStop(int(m.from), 0, backend.ErrLeft)
		}
		return
	case msgBye:
		e.bye = cmp.Or(e.bye, errors.New(string(m.text)))
		return
	}
	b := e.open[m.id]
	if b == nil {
		e.dispatchEarly(m)
		return
	}
	b.dispatch(m)
}

// dispatchEarly handles a message for a group that is not open here: it is closed, or will be opened.
func (e *Engine) dispatchEarly(m *message) {
	left, closed := e.past[m.id]
	switch {
	case m.kind == msgQuery:
		e.post(int(m.from), head{kind: msgStatus, id: m.id, a: m.a}, nil)
	case closed && m.kind == msgEnd && left <= 1:
		delete(e.past, m.id)
	case closed && m.kind == msgEnd:
		e.past[m.id]--
	case !closed:
		e.early[m.id] = append(e.early[m.id], &message{m.head, append([]byte(nil), m.text...)})
	}
}

// dispatch handles a message for this end.
func (b *endpoint) dispatch(m *message) {
	from := b.index(int(m.from))
	if from < 0 {
		return
	}
	switch m.kind {
	case msgAbort:
		b.receiveAbort(m)
	case msgEnd:
		why := backend.ErrClosed
		if m.a == 1 {
			why = backend.ErrLeft
		}
		b.noteStop(int(m.from), m.seq, why)
	case msgQuery:
		b.e.post(int(m.from), head{kind: msgStatus, id: m.id, seq: b.issued, a: m.a}, nil)
	case msgStatus:
		if m.a == b.asked {
			b.answers[from] = m.seq
		}
	case msgDesc:
		b.receiveDesc(m)
	case msgArrive:
		b.receiveArrival(from, m)
	case msgSend:
		b.receiveSend(m)
	case msgAck:
		b.acked = max(b.acked, m.seq)
	case msgClaim:
		if b.err == nil { // else nobody would give the claim back
			b.e.claim(b)
		}
	case msgGo:
		b.makeComm()
	}
}

// tellAbort tells the other members why the group has failed.
func (b *endpoint) tellAbort(err *backend.Error) {
	b.toAll(head{kind: msgAbort, id: b.spec.ID}, err.Encode(false, maxMessage-headBytes))
}

// cut limits a text that must fit in a message.
func cut(s string) string { return s[:min(len(s), maxMessage-headBytes)] }

func (b *endpoint) receiveAbort(m *message) {
	err, _, decode := backend.DecodeError(m.text)
	if decode != nil {
		err = &backend.Error{Rank: int(m.from), Group: b.spec.Name, Cause: decode}
	}
	b.fail(err, true) // passed on: this rank may leave before all others have read it
}

// accuse tells a member, whose fingerprint of operation seq differs, what the operation is here. The member compares, and fails the group.
func (b *endpoint) accuse(member int, seq uint64) {
	b.e.post(b.spec.Ranks[member], head{kind: msgDesc, id: b.spec.ID, seq: seq}, backend.EncodeJSON(b.describe(seq), maxMessage-headBytes))
}

func (b *endpoint) describe(seq uint64) backend.Desc {
	d := backend.DescOf(&b.op(seq).Copy, b.spec.Name)
	d.Choice = b.Choice(&b.op(seq).Copy)
	return d
}

// receiveDesc compares an operation of a peer with the same one here.
func (b *endpoint) receiveDesc(m *message) {
	var theirs backend.Desc
	if json.Unmarshal(m.text, &theirs) != nil || m.seq > b.issued || b.issued-m.seq >= history {
		return // the peer waits, up to the timeout
	}
	mine := b.describe(m.seq)
	b.fail(backend.Disagreement(&mine, &theirs, b.e.rank, int(m.from)), true)
}

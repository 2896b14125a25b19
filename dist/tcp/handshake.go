package tcp

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
)

// The messages of the rendezvous are frames with JSON.

// The data connections of a link, as the rank sees them that accepts: one carries data to it, the other data from it.
const (
	dataIn  = 1
	dataOut = 2
)

// hello is the payload of frameHello and frameWelcome.
type hello struct {
	member
	Size  int
	Gen   uint32
	Plain bool   // encryption is off
	Mesh  bool   // after the table: a connection between two ranks other than rank 0
	Data  int    // 0 for a control connection; dataIn or dataOut
	Token string // of that link, which only its two ends know
}

// writeJSON sends a frame of the rendezvous.
func writeJSON(c net.Conn, typ frameType, gen uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := header{typ: typ, gen: gen, length: uint64(len(b))}
	out := make([]byte, headerBytes, headerBytes+len(b))
	h.put(out)
	_, err = c.Write(append(out, b...))
	return err
}

// rejected is the reason of a frameReject.
type rejected string

func (r rejected) Error() string { return string(r) }

// readJSON reads a frame of the rendezvous. A frameReject is an error of type rejected.
func readJSON(c net.Conn, typ frameType, v any) error {
	b := make([]byte, headerBytes)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	var h header
	if err := h.parse(b, 0); err != nil {
		return err
	}
	if h.typ != typ && h.typ != frameReject {
		return fmt.Errorf("frame of type %d during rendezvous, want %d", h.typ, typ)
	}
	b = make([]byte, h.length)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if h.typ == frameReject {
		var why string
		if err := json.Unmarshal(b, &why); err != nil {
			return err
		}
		return rejected(why)
	}
	return json.Unmarshal(b, v)
}

func marshalTable(part []member) ([]byte, error) {
	b, err := json.Marshal(part)
	if err == nil && len(b) > maxPayload {
		err = fmt.Errorf("tcp: table of %d bytes, at most %d are allowed", len(b), maxPayload)
	}
	return b, err
}

// reason is the payload of a frameReject.
func reason(err error) []byte {
	s := err.Error()
	b, jerr := json.Marshal(s[:min(len(s), maxPayload/8)])
	if jerr != nil {
		b = []byte(`""`)
	}
	return b
}

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ringo-ml/ringo/dist/backend"
)

// A frame is a header of 64 bytes and a payload. All numbers are little-endian.
//
//	0  magic "RNGO"     8  generation                    24  group              48  bytes of the whole message
//	4  version         12  CRC-32C of the other bytes    32  sequence number    56  fingerprint
//	5  type            16  bytes in this frame           40  tag
//	6  operation
const (
	headerBytes = 64
	maxPayload  = 256 << 10 // of one frame; longer messages take several
	magic       = 'R' | 'N'<<8 | 'G'<<16 | 'O'<<24
	version     = 1
)

type frameType uint8

const (
	frameData     frameType = iota // a message, or a part of one
	frameCredit                    // the receiver has taken total bytes
	frameMismatch                  // our fingerprints of operation seq differ; the payload is my descriptor
	frameAbort                     // the group has failed; the payload is the error
	frameQuery                     // which operation have you issued last? tag is the question's number
	frameStatus                    // the answer: seq
	frameAlive                     // a sign of life
	frameGoodbye                   // no operation will follow: the end of the connection is no failure
	frameHello                     // who dials
	frameWelcome                   // the dialer is accepted; who accepts
	frameReject                    // the dialer is not accepted; why
	frameTable                     // a part of the list of ranks
	frameRebuild                   // survivors of a failed group agree on the next generation
	numFrameTypes
)

// header is the first 64 bytes of a frame.
type header struct {
	typ    frameType
	kind   backend.Kind
	gen    uint32
	length uint64 // of the payload in this frame
	group  uint64
	seq    uint64
	tag    uint64
	total  uint64 // of the message's payload; credit: bytes taken
	print  uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func headerSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerBytes])
}

// put writes the header to b[:headerBytes].
func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	b[4], b[5], b[6], b[7] = version, byte(h.typ), byte(h.kind), 0
	le.PutUint32(b[8:], h.gen)
	for i, v := range [...]uint64{h.length, h.group, h.seq, h.tag, h.total, h.print} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[12:], headerSum(b))
}

// parse reads a header from b[:headerBytes] and checks all that can be checked without state: nobody allocates by a
// length that was not.
func (h *header) parse(b []byte) error {
	le := binary.LittleEndian
	if le.Uint32(b) != magic {
		return fmt.Errorf("frame starts with %q, not %q", b[:4], "RNGO")
	}
	if b[4] != version {
		return fmt.Errorf("frame of version %d, want %d", b[4], version)
	}
	if got, want := le.Uint32(b[12:]), headerSum(b); got != want {
		return fmt.Errorf("frame header has checksum %08x, want %08x", got, want)
	}
	*h = header{typ: frameType(b[5]), kind: backend.Kind(b[6]), gen: le.Uint32(b[8:]), length: le.Uint64(b[16:]),
		group: le.Uint64(b[24:]), seq: le.Uint64(b[32:]), tag: le.Uint64(b[40:]), total: le.Uint64(b[48:]),
		print: le.Uint64(b[56:])}
	switch {
	case h.typ >= numFrameTypes:
		return fmt.Errorf("frame of unknown type %d", h.typ)
	case h.kind >= backend.NumKinds:
		return fmt.Errorf("frame of unknown operation %d", h.kind)
	case h.length > maxPayload:
		return fmt.Errorf("frame of %d bytes, at most %d are allowed", h.length, maxPayload)
	case h.typ == frameData && h.length > h.total:
		return fmt.Errorf("frame of %d bytes in a message of %d", h.length, h.total)
	case h.typ == frameData && h.length == 0 && h.total > 0:
		return errors.New("empty frame in a message that is not")
	}
	return nil
}

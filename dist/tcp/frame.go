package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// A frame is a header of 64 bytes and a payload. All numbers are little-endian.
//
//	0  magic "RNGO"     8  generation                    24  group              48  bytes of the whole message
//	4  version         12  CRC-32C of the header         32  sequence number    56  fingerprint
//	5  type            16  bytes in this frame           40  which message of this operation and tag
//	6  operation       20  CRC-32C of the payload        44  which frame of the message: all but the last are full
//	7  tag
//
// On a connection that does not detect errors itself (one without TLS), frames have checksums: the payload has a checksum, and
// the header's covers the number of the frame in the connection, which both sides count. So a byte that changed, a frame
// that was lost, came twice or in the wrong place is noticed. Elsewhere both are 0. Frames of the rendezvous have no number.
const (
	headerBytes = 64
	maxPayload  = 256 << 10 // of one frame; longer messages take several
	magic       = 'R' | 'N'<<8 | 'G'<<16 | 'O'<<24
	version     = 2 // of the header alone; raise protocol (secret.go) with every change of frames
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
	frameEnd                       // I issue no operation after seq in this group; tag 1: nor in any other
	frameGoodbye                   // no operation will follow: the end of the connection is no failure
	frameFarewell                  // I have read your goodbye, hence all that you sent
	frameHello                     // who dials
	frameWelcome                   // the dialer is accepted; who accepts
	// the dialer is not accepted, or I give the job up while the ranks meet; why, and total is the rank to blame
	frameReject
	frameTable   // a part of the list of ranks
	frameRebuild // survivors of a failed group agree on the next generation
	frameForced  // I open a group that could be in shared memory over messages; the payload is the algorithm
	frameWaiting // I have waited for a message of operation seq for some time; its fingerprint is mine
	numFrameTypes
)

// header is the first 64 bytes of a frame.
type header struct {
	typ    frameType
	kind   backend.Kind
	gen    uint32
	length uint64 // of the payload in this frame
	sum    uint32 // of the payload, where frames have checksums
	group  uint64
	seq    uint64
	tag    uint8
	nth    uint32 // message of this operation with this tag
	part   uint32 // which frame of the message, from 0
	total  uint64 // of the message's payload; credit: bytes taken; query and status: number of the question
	print  uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// headerSum covers all of the header but itself, and the number of the frame.
func headerSum(b []byte, number uint32) uint32 {
	sum := crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerBytes])
	return sum ^ number*0x9e3779b1 // an odd factor: another number is another sum
}

// put writes the header to b[:headerBytes].
func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	b[4], b[5], b[6], b[7] = version, byte(h.typ), byte(h.kind), h.tag
	le.PutUint32(b[8:], h.gen)
	le.PutUint32(b[16:], uint32(h.length))
	le.PutUint32(b[20:], h.sum)
	for i, v := range [...]uint64{h.group, h.seq, uint64(h.nth) | uint64(h.part)<<32, h.total, h.print} {
		le.PutUint64(b[24+8*i:], v)
	}
	le.PutUint32(b[12:], headerSum(b, 0))
}

// checksumFrame makes the frame that b begins with one that shows errors. It returns the number of the next frame.
func checksumFrame(b []byte, number uint32, payload []byte) uint32 {
	binary.LittleEndian.PutUint32(b[20:], kernel.CRC32C(0, payload))
	binary.LittleEndian.PutUint32(b[12:], headerSum(b, number))
	return number + 1
}

// parse reads a header from b[:headerBytes] and checks all that can be checked without state: nobody allocates by a
// length that was not. number is that of the frame where frames have checksums, else 0.
func (h *header) parse(b []byte, number uint32) error {
	le := binary.LittleEndian
	if le.Uint32(b) != magic {
		return fmt.Errorf("frame starts with %q, not %q", b[:4], "RNGO")
	}
	if b[4] != version {
		return fmt.Errorf("frame of version %d, want %d", b[4], version)
	}
	if got, want := le.Uint32(b[12:]), headerSum(b, number); got != want {
		return fmt.Errorf("frame header has checksum %08x, want %08x: bytes or frames were lost or changed", got, want)
	}
	*h = header{typ: frameType(b[5]), kind: backend.Kind(b[6]), gen: le.Uint32(b[8:]), length: uint64(le.Uint32(b[16:])),
		sum: le.Uint32(b[20:]), group: le.Uint64(b[24:]), seq: le.Uint64(b[32:]), tag: b[7], nth: le.Uint32(b[40:]), part: le.Uint32(b[44:]),
		total: le.Uint64(b[48:]), print: le.Uint64(b[56:])}
	switch {
	case h.typ >= numFrameTypes:
		return fmt.Errorf("frame of unknown type %d", h.typ)
	case h.kind >= backend.NumKinds:
		return fmt.Errorf("frame of unknown operation %d", h.kind)
	case h.length > maxPayload:
		return fmt.Errorf("frame of %d bytes, at most %d are allowed", h.length, maxPayload)
	case h.typ == frameData && (h.at() > h.total || h.length > h.total-h.at()):
		return fmt.Errorf("frame of %d bytes at %d in a message of %d", h.length, h.at(), h.total)
	case h.typ == frameData && h.length == 0 && h.total > 0:
		return errors.New("empty frame in a message that is not")
	}
	return nil
}

// at returns where the payload begins in the message.
func (h *header) at() uint64 { return uint64(h.part) * maxPayload }

package tensorboard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of Event, Summary and Summary.Value.
const (
	eventTime    = 1 // double
	eventStep    = 2 // int64
	eventVersion = 3 // string
	eventSummary = 5 // Summary
	summaryValue = 1 // repeated Value
	valueTag     = 1 // string
	valueSimple  = 2 // float
)

// Writer writes one event file. It is a metrics.Writer.
type Writer struct{ f *os.File }

// Create makes the directory if need be, and in it a new file: a run that goes on has several, which TensorBoard joins.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%d.%s.%d.%d", now.Unix(), host, os.Getpid(), now.Nanosecond())
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w := &Writer{f}
	event := protowire.AppendTag(begin(now), eventVersion, protowire.BytesType)
	return w, w.record(protowire.AppendString(event, "brain.Event:2"))
}

// Write adds the values of a step, as float32.
func (w *Writer) Write(step int, at time.Time, values map[string]float64) error {
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), name)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(values[name])))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), value)
	}
	event := protowire.AppendVarint(protowire.AppendTag(begin(at), eventStep, protowire.VarintType), uint64(step))
	return w.record(protowire.AppendBytes(protowire.AppendTag(event, eventSummary, protowire.BytesType), summary))
}

// begin returns an Event with its time.
func begin(at time.Time) []byte {
	seconds := float64(at.UnixMicro()) / 1e6
	return protowire.AppendFixed64(protowire.AppendTag(nil, eventTime, protowire.Fixed64Type), math.Float64bits(seconds))
}

// record writes an event at once: a crash leaves whole records.
func (w *Writer) record(event []byte) error {
	buf := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	buf = binary.LittleEndian.AppendUint32(buf, masked(buf))
	buf = append(buf, event...)
	buf = binary.LittleEndian.AppendUint32(buf, masked(event))
	_, err := w.f.Write(buf)
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum of TFRecords.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

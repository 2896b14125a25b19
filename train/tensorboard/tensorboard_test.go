package tensorboard

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// The checksum of TensorFlow's own test of its records (lib/hash/crc32c_test.cc: 32 zeros), masked.
func TestMasked(t *testing.T) {
	sum := uint32(0x8a9136aa)
	require.Equal(t, (sum>>15|sum<<17)+0xa282ead8, masked(make([]byte, 32)))
}

// written writes a few values of two names, in two files, and returns the directory.
func written(t *testing.T) (dir string, at time.Time) {
	dir, at = filepath.Join(t.TempDir(), "run"), time.UnixMicro(1_700_000_000_250_000)
	for file := range 2 {
		w, err := Create(dir)
		require.NoError(t, err)
		for i := range 3 {
			step := 3*file + i + 1
			require.NoError(t, w.Write(step, at, map[string]float64{"loss": 1 / float64(step), "lr": 0.5}))
		}
		require.NoError(t, w.Close())
	}
	return dir, at
}

func TestEvents(t *testing.T) {
	dir, at := written(t)
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var got []string
	for len(text) > 0 {
		n := binary.LittleEndian.Uint64(text)
		require.Equal(t, masked(text[:8]), binary.LittleEndian.Uint32(text[8:]))
		event := text[12 : 12+n]
		require.Equal(t, masked(event), binary.LittleEndian.Uint32(text[12+n:]))
		got = append(got, flat(t, event, 0))
		text = text[16+n:]
	}
	require.Contains(t, got[0], "3=brain.Event:2;")
	require.Equal(t, []string{
		event(at, 1, 1), event(at, 2, 0.5), event(at, 3, float32(1)/3),
	}, got[1:])
}

// event is what flat returns for an Event of written.
func event(at time.Time, step int, loss float32) string {
	return fmt.Sprintf("1=%v;2=%d;5={1={1=loss;2=%v;}1={1=lr;2=0.5;}}", float64(at.UnixMicro())/1e6, step, loss)
}

// flat reads a message of the nesting of an Event.
func flat(t *testing.T, b []byte, depth int) (s string) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		require.Positive(t, n)
		b = b[n:]
		switch kind {
		case protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(b)
			s, b = s+fmt.Sprintf("%d=%v;", field, math.Float64frombits(v)), b[n:]
		case protowire.Fixed32Type:
			v, n := protowire.ConsumeFixed32(b)
			s, b = s+fmt.Sprintf("%d=%v;", field, math.Float32frombits(v)), b[n:]
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			s, b = s+fmt.Sprintf("%d=%d;", field, v), b[n:]
		default:
			v, n := protowire.ConsumeBytes(b)
			b = b[n:]
			if depth == 0 && field == eventSummary || depth == 1 {
				s += fmt.Sprintf("%d={%s}", field, flat(t, v, depth+1))
			} else {
				s += fmt.Sprintf("%d=%s;", field, v)
			}
		}
	}
	return s
}

// TensorBoard's own reader finds the values.
func TestPython(t *testing.T) {
	python := os.Getenv("RINGO_PYTHON")
	if python == "" {
		t.Skip("RINGO_PYTHON names no Python with the package tensorboard")
	}
	dir, at := written(t)
	out, err := exec.Command(python, "-c", `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
e = EventAccumulator(sys.argv[1])
e.Reload()
print(json.dumps({n: [[s.step, s.value, s.wall_time] for s in e.Scalars(n)] for n in e.Tags()["scalars"]}))`, dir).Output()
	require.NoError(t, err)
	var got map[string][][3]float64
	require.NoError(t, json.Unmarshal(out, &got))
	require.Len(t, got, 2)
	for i, s := range got["loss"] {
		require.Equal(t, [3]float64{float64(i + 1), float64(float32(1 / float64(i+1))), float64(at.UnixMicro()) / 1e6}, s)
	}
	require.Len(t, got["loss"], 6)
	require.Len(t, got["lr"], 6)
}

func TestCreateFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, err := Create(filepath.Join(file, "run"))
	require.ErrorContains(t, err, "tensorboard: mkdir "+file)
}

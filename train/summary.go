package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Summary says what a training did. A program embeds it in a struct with what it has measured besides, for Report. Losses are those of the
// global batch; bytes and memory are those of this rank.
type Summary struct {
	Example string `json:"example"` // the program; it also says the next three
	Optim   string `json:"optim"`
	DType   string `json:"dtype"`
	Batch   int    `json:"batch"`

	Backend      string         `json:"backend"`
	Ranks        int            `json:"ranks"`
	Threads      int            `json:"threads"` // of a rank; 0 if it computes on another device
	Steps        int            `json:"steps"`
	ResumedAt    int            `json:"resumed_at"` // steps done before this process began
	FirstLoss    metrics.Number `json:"first_loss"`
	FinalLoss    metrics.Number `json:"final_loss"`
	LossesSHA256 string         `json:"losses_sha256"`
	GoVersion    string         `json:"go"`

	WallS       float64                 `json:"wall_s"` // since Start
	StepsPerS   float64                 `json:"steps_per_s"`
	SamplesPerS float64                 `json:"samples_per_s"`
	TokensPerS  float64                 `json:"tokens_per_s"`          // with padding, of integers [rows, ..., n] with labels [rows, n]; else 0
	ExposedComm float64                 `json:"exposed_comm_fraction"` // of the time of steps: waits for groups of Measure
	CommBytes   map[string]uint64       `json:"comm_bytes"`            // sent in steps over groups of Measure, by operation
	PeakBytes   int                     `json:"peak_bytes"`
	Memory      map[string]memory.Bytes `json:"memory"` // by kind
	device      string
}

// Summary completes s with what has been done so far. Its losses are those that Sum got by the name "loss", up to the last Flush.
func (l *Loop) Summary(s Summary) Summary {
	s.Backend, s.Ranks, s.GoVersion, s.device = l.r.Engine(), l.r.World.Size(), runtime.Version(), fmt.Sprint(l.r.Device)
	s.PeakBytes, s.Memory = l.r.Device.Memory().Total().Peak, l.r.Device.Memory().ByName()
	s.WallS, s.CommBytes = time.Since(l.begun).Seconds(), map[string]uint64{}
	if host, ok := l.r.Device.(*cpu.Device); ok {
		s.Threads, s.device = host.Threads(), fmt.Sprintf("%d threads each", host.Threads())
	}
	s.Steps, s.ResumedAt = l.Done()
	hash := sha256.New()
	if _, losses := l.Values("loss"); len(losses) > 0 {
		s.FirstLoss, s.FinalLoss = metrics.Number(losses[0]), metrics.Number(losses[len(losses)-1])
		_ = binary.Write(hash, binary.LittleEndian, losses) // a hash takes all
	}
	s.LossesSHA256 = hex.EncodeToString(hash.Sum(nil))
	if m := &l.meter; m.time > 0 {
		s.StepsPerS, s.ExposedComm = float64(s.Steps-s.ResumedAt)/m.time.Seconds(), m.waited.Seconds()/m.time.Seconds()
		s.TokensPerS = float64(m.tokens) / m.time.Seconds()
	}
	s.SamplesPerS = s.StepsPerS * float64(s.Batch)
	for _, sent := range l.meter.sent {
		for op, n := range sent {
			s.CommBytes[op] += n
		}
	}
	return s
}

// PerStep is n, of all steps since this process began, as MiB of one step.
func (s *Summary) PerStep(n uint64) float64 {
	return float64(n) / float64(max(1, s.Steps-s.ResumedAt)) / (1 << 20)
}

// String returns lines for people: speed, communication and memory.
func (s Summary) String() string {
	all, sent := "", uint64(0)
	if s.ResumedAt > 0 {
		all = fmt.Sprintf(" (%d in all)", s.Steps)
	}
	for _, n := range s.CommBytes {
		sent += n
	}
	var peaks []string
	for k := memory.Parameters; k <= memory.Other; k++ {
		if peak := s.Memory[k.String()].Peak; peak > 0 {
			peaks = append(peaks, fmt.Sprint(k, " ", memory.Format(peak)))
		}
	}
	tokens := ""
	if s.TokensPerS > 0 {
		tokens = fmt.Sprintf(", %.0f tokens/s", s.TokensPerS)
	}
	return fmt.Sprintf("%d steps%s, world size %d (%s, %s) in %.1f s: %.1f steps/s, %.1f samples/s%s\n", s.Steps-s.ResumedAt, all, s.Ranks,
		s.Backend, s.device, s.WallS, s.StepsPerS, s.SamplesPerS, tokens) +
		fmt.Sprintf("exposed communication %.1f%%, sent %.1f MiB a step\n", 100*s.ExposedComm, s.PerStep(sent)) +
		fmt.Sprintf("memory of rank 0 %s at most: %s", memory.Format(s.PeakBytes), strings.Join(peaks, ", "))
}

// Report prints on rank 0: with Options.Quiet s, which embeds a Summary, as one JSON line, else text.
func (l *Loop) Report(s any, text ...string) error {
	if !l.o.Quiet {
		l.Logf("%s", strings.TrimSuffix(strings.Join(text, "\n"), "\n"))
		return nil
	}
	line, err := json.Marshal(s)
	l.r.Logf("%s", line)
	return err
}

// Measure has Summary count the waits for these groups, and the bytes that this rank sends over them, in steps. What Evaluate does is no
// part of a step.
func (l *Loop) Measure(groups ...*dist.Group) {
	l.meter.groups = groups
	for range groups {
		l.meter.sent = append(l.meter.sent, map[string]uint64{})
	}
}

// Sent returns how many bytes this rank has sent in steps over one of the groups of Measure.
func (l *Loop) Sent(g *dist.Group) (bytes uint64) {
	for i, sent := range l.meter.sent {
		for _, n := range sent {
			if l.meter.groups[i] == g {
				bytes += n
			}
		}
	}
	return bytes
}

// meter adds up what steps cost this rank.
type meter struct {
	groups       []*dist.Group
	on           bool
	begun        time.Time
	time, waited time.Duration
	tokens       int
	sent         []map[string]uint64 // by group and operation
}

// turn begins or ends the count. What groups have counted before is subtracted first.
func (m *meter) turn(on bool) {
	if m.on == on {
		return
	}
	m.on = on
	sign := time.Duration(1)
	if on {
		m.begun, sign = time.Now(), -1
	}
	m.time += time.Since(m.begun)
	for i, g := range m.groups {
		m.waited += sign * g.Waited()
		for op, n := range g.Stats().Wire {
			m.sent[i][op] += uint64(sign) * n // wraps around, and back
		}
	}
}

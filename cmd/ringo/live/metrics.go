package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/live"
	"github.com/ringo-ml/ringo/train/metrics"
)

// metric is what monitoring systems read: one number, or with a label one for each of its values.
type metric struct {
	name, kind, help string // kind is "gauge" or "counter"
	label            string // "": none
	rows             []row
}

type row struct {
	label string
	value metrics.Number
}

// one is a metric without a label.
func one[T int | float64](name, kind, help string, value T) metric {
	return metric{name, kind, help, "", []row{{"", metrics.Number(value)}}}
}

// metrics returns the state as numbers. Counters begin again at zero only when the job or a generation begins.
func (s *state) metrics() []metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view()
	all := []metric{
		one("ringo_generation", "gauge", "How often all ranks were started.", v.Job.Gen),
		one("ringo_ranks", "gauge", "Ranks of the job.", v.Job.Ranks),
		one("ringo_step", "gauge", "The last finished step, which a restart sets back.", v.Job.Step),
		one("ringo_steps_planned", "gauge", "Steps at the end of the training, 0 if unknown.", v.Job.Total),
		one("ringo_steps_total", "counter", "Finished steps, with those that a restart repeats.", s.done[0]),
		one("ringo_step_seconds_total", "counter", "Time that these steps took.", s.seconds),
		one("ringo_samples_total", "counter", "Samples of these steps, on all ranks.", s.done[1]),
		one("ringo_tokens_total", "counter", "Tokens of these samples, with padding, on all ranks.", s.done[2]),
	}
	last := metric{"ringo_value", "gauge", "The last value of a name that the program logs.", "name", nil}
	for _, x := range v.Values {
		if x.at > 0 {
			last.rows = append(last.rows, row{x.Name, x.Last})
		}
	}
	memory := metric{"ringo_memory_peak_bytes", "gauge", "The most memory of a kind that any rank had.", "kind", nil}
	for k, kind := range v.Kinds {
		memory.rows = append(memory.rows, row{kind, metrics.Number(v.Peaks[k])})
	}
	all = append(all, last, memory)
	for _, c := range []struct {
		name, help string
		of         func(o live.Op) float64
	}{
		{"calls", "Calls of an operation, over all ranks.", func(o live.Op) float64 { return float64(o.Calls) }},
		{"payload_bytes", "Bytes that callers asked for, over all ranks.", func(o live.Op) float64 { return float64(o.Payload) }},
		{"moved_bytes", "Bytes moved, over all ranks.", func(o live.Op) float64 { return float64(o.Wire) }},
		{"flight_seconds", "Time from issue to end, over all ranks.", func(o live.Op) float64 { return float64(o.Flight) / 1e6 }},
		{"exposed_seconds", "Time that no computation hid, over all ranks.", func(o live.Op) float64 { return float64(o.Waited) / 1e6 }},
	} {
		m := metric{"ringo_communication_" + c.name + "_total", "counter", c.help, "op", nil}
		for _, o := range v.Comm {
			m.rows = append(m.rows, row{o.Name, metrics.Number(c.of(o))})
		}
		all = append(all, m)
	}
	return all
}

// escaped escapes the value of a label.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// servePrometheus writes Prometheus' text form, version 0.0.4. A metric without a number is left out.
func (s *Server) servePrometheus(w http.ResponseWriter) {
	var text []byte
	for _, m := range s.metrics() {
		for i, r := range m.rows {
			if i == 0 {
				text = fmt.Appendf(text, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", m.name, m.help, m.kind)
			}
			text = append(text, m.name...)
			if m.label != "" {
				text = fmt.Appendf(text, `{%s="%s"}`, m.label, escaped.Replace(r.label))
			}
			text = strconv.AppendFloat(append(text, ' '), float64(r.value), 'g', -1, 64) // NaN, +Inf and -Inf are as Prometheus has them
			text = append(text, '\n')
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text)
}

// serveVars writes the same numbers as package expvar would: variables by name, each a number, or a map by its label.
func (s *Server) serveVars(w http.ResponseWriter) {
	vars := map[string]any{}
	for _, m := range s.metrics() {
		if m.label == "" {
			vars[m.name] = m.rows[0].value
			continue
		}
		rows := map[string]metrics.Number{}
		for _, r := range m.rows {
			rows[r.label] = r.value
		}
		vars[m.name] = rows
	}
	text, err := json.Marshal(vars)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(text)
}

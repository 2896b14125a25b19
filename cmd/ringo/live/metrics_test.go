package live

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/live"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/train/metrics"
)

// now is a report of one value in one step, which took half a second.
func now(step int, name string, value float64) live.Report {
	return live.Report{Step: step, Total: 9, Steps: 1, Elapsed: 5e5, Samples: 64, Tokens: 640,
		Values: []live.Values{{Name: name, Steps: []int{step}, Values: []metrics.Number{metrics.Number(value)}}},
		Memory: map[string]memory.Bytes{"gradients": {Live: 1, Peak: 1 << 40}},
		Comm:   []live.Op{{Name: `all"re`, Calls: 2, Payload: 3, Wire: 4, Flight: 5, Waited: 1_500_000}}}
}

func TestPrometheus(t *testing.T) {
	s := serve(t)
	defer s.Close(nil)
	answer, text := get(t, s.URL()+"metrics", nil)
	assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8", answer.Header.Get("Content-Type"))
	assert.Contains(t, text, "ringo_ranks 0\n", "before the job begins")
	assert.NotContains(t, text, "ringo_value")

	s.Started(1, 2, 2)
	s.Shown(1, 0, report(t, now(7, "loss", 2.5)))
	s.Shown(1, 1, report(t, now(7, "loss", 2.5)))
	s.Started(2, 2, 2)
	for name, x := range map[string]float64{"loss": math.NaN(), "up": math.Inf(1), "down": math.Inf(-1), "\\ \"\n{}é": 1e-7, "tiny": 0} {
		s.Shown(2, 0, report(t, now(6, name, x)))
	}
	_, text = get(t, s.URL()+"metrics", nil)
	for _, want := range []string{
		"# HELP ringo_step The last finished step, which a restart sets back.\n# TYPE ringo_step gauge\nringo_step 6\n",
		"# TYPE ringo_steps_total counter\nringo_steps_total 6\n",
		"\nringo_generation 2\n", "\nringo_ranks 2\n", "\nringo_steps_planned 9\n",
		"\nringo_step_seconds_total 3\n", "\nringo_samples_total 384\n", "\nringo_tokens_total 3840\n",
		"\nringo_value{name=\"loss\"} NaN\n", "\nringo_value{name=\"up\"} +Inf\n", "\nringo_value{name=\"down\"} -Inf\n",
		"\nringo_value{name=\"\\\\ \\\"\\n{}é\"} 1e-07\n", "\nringo_value{name=\"tiny\"} 0\n",
		"\nringo_memory_peak_bytes{kind=\"gradients\"} 1.099511627776e+12\n",
		"\nringo_communication_calls_total{op=\"all\\\"re\"} 2\n",
		"\nringo_communication_exposed_seconds_total{op=\"all\\\"re\"} 1.5\n",
	} {
		assert.Contains(t, text, want)
	}
	wellFormed(t, text)
}

// wellFormed checks lines against the grammar of the text form. Each metric has its lines together, behind one HELP and one TYPE.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	seen, at := map[string]bool{}, ""
	require.True(t, strings.HasSuffix(text, "\n"))
	for line := range strings.Lines(text) {
		require.Regexp(t, `^(# HELP [a-z_]+ [^\\\n]+|# TYPE [a-z_]+ (gauge|counter)|`+
			`[a-z_]+(\{[a-z]+="([^"\\\n]|\\["\\n])*"\})? (NaN|[+-]Inf|-?[0-9.]+(e[+-][0-9]+)?))`+"\n$", line)
		if name, help := strings.CutPrefix(line, "# HELP "); help {
			at, _, _ = strings.Cut(name, " ")
			require.False(t, seen[at], line)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), " ")
		name, _, _ = strings.Cut(name, "{")
		require.Equal(t, at, name)
		require.False(t, seen[line], "twice: %s", line)
		seen[at], seen[line] = true, true
	}
}

// Names that a report cuts in the middle of a letter are one name, and valid.
func TestCutNames(t *testing.T) {
	s := newState("train")
	s.Started(1, 1, 1)
	for _, name := range []string{"a\xe2", "a\xe2\x80"} {
		s.series(name).add(1, 1)
	}
	assert.Len(t, s.values, 1)
	assert.Equal(t, "a�", s.values[0].Name)
}

func TestVars(t *testing.T) {
	s := serve(t)
	defer s.Close(nil)
	s.Started(1, 1, 1)
	s.Shown(1, 0, report(t, now(7, "loss", math.Inf(-1))))
	answer, text := get(t, s.URL()+"debug/vars", nil)
	assert.Equal(t, "application/json; charset=utf-8", answer.Header.Get("Content-Type"))
	var vars map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &vars))
	assert.Equal(t, 7.0, vars["ringo_step"])
	assert.Equal(t, map[string]any{"loss": "-Inf"}, vars["ringo_value"])
	assert.Equal(t, map[string]any{`all"re`: 1.5}, vars["ringo_communication_exposed_seconds_total"])
	for _, m := range s.metrics() {
		assert.Contains(t, vars, m.name)
	}
}

// Numbers are for those who may see the page.
func TestWhoMayRead(t *testing.T) {
	s := serve(t)
	defer s.Close(nil)
	base := strings.TrimSuffix(s.URL(), s.token+"/")
	for _, what := range []string{"metrics", "debug/vars"} {
		for _, url := range []string{base + what, base + s.token[1:] + "/" + what} {
			answer, text := get(t, url, nil)
			assert.Equal(t, http.StatusForbidden, answer.StatusCode, url)
			assert.NotContains(t, text, "ringo_", url)
		}
		answer, _ := get(t, s.URL()+what, func(r *http.Request) { r.Host = "evil.example" })
		assert.Equal(t, http.StatusForbidden, answer.StatusCode)
		answer, _ = get(t, s.URL()+what, func(r *http.Request) { r.Method = http.MethodPost })
		assert.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	}
}

package pp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/pp"
)

// What is read can be checked, and a schedule that passes is the same after it was written.
func FuzzReadCSV(f *testing.F) {
	for _, text := range []string{"0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1", "0F0,1F0,1I0,0I0,1W0,0W0", "0F16777215", "0B0,0F0", "2F0\n\n,x",
		"0F0\n,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s *pp.Schedule
		var err error
		reliability.Bounded(t, len(text), func() { s, err = pp.ReadCSV("x", strings.NewReader(text)) })
		if err != nil {
			return
		}
		if _, err := s.Check(unit, pp.Limit{}); err != nil {
			return
		}
		var again strings.Builder
		require.NoError(t, s.WriteCSV(&again))
		require.Equal(t, s, must(pp.ReadCSV("x", strings.NewReader(again.String()))))
	})
}

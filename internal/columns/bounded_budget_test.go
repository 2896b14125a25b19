package columns_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

func TestBudget(t *testing.T) {
	b := bounded.New(10)
	require.NoError(t, b.Take(bounded.Base))
	require.NoError(t, b.Take(160))
	require.EqualError(t, b.Take(1), "it would take more than 67109024 bytes of memory, and a file of 10 bytes may take no more")
	b.Give(10)
	require.NoError(t, b.Take(10))
	require.Error(t, b.Take(1))
	b.Grow(1)
	require.NoError(t, b.Take(16))
	require.Error(t, b.Take(1))
	require.Error(t, bounded.New(0).Take(-1), "a product that overflowed")
	huge := bounded.New(math.MaxInt64)
	huge.Grow(math.MaxInt64)
	require.NoError(t, huge.Take(1<<59))
	require.Error(t, huge.Take(math.MaxInt64))
}

func TestJSON(t *testing.T) {
	require.NoError(t, bounded.JSON([]byte(`{"a": [1, {}]}`), bounded.Base/4))
	for _, text := range []string{`{"a": [1, 2, {}]}`, `{}{}{}{}{}`, `,,,,,`} {
		require.ErrorContains(t, bounded.JSON([]byte(text), bounded.Base/4), "it would take more than", text)
	}
}

// What is printed of a file's words neither fills a screen nor changes it.
func TestWords(t *testing.T) {
	long := strings.Repeat("x", 101)
	for word, want := range map[string][2]string{
		"a.b":         {`"a.b"`, "a.b"},
		"größe":       {`"größe"`, "größe"},
		"\x1b[2J":     {`"\x1b[2J"`, `"\x1b[2J"`},
		"a\nb":        {`"a\nb"`, `"a\nb"`},
		"\u202egnp":   {`"\u202egnp"`, `"\u202egnp"`},
		"\x9b1m":      {`"\x9b1m"`, `"\x9b1m"`},
		long[:100]:    {`"` + long[:100] + `"`, long[:100]},
		long:          {`"` + long[:100] + `"... (101 bytes)`, `"` + long[:100] + `"... (101 bytes)`},
		long + "\x1b": {`"` + long[:100] + `"... (102 bytes)`, `"` + long[:100] + `"... (102 bytes)`},
	} {
		require.Equal(t, want, [2]string{bounded.Quote(word), bounded.Plain(word)})
	}
}

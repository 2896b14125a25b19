package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStagesOfTheNight: what the gate leaves out has a reason in CONTRIBUTING.md, and the nightly workflow runs it.
func TestStagesOfTheNight(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(moduleRoot, name))
		require.NoError(t, err)
		return string(text)
	}
	stages := regexp.MustCompile(`(?m)^nightly=\((.*)\)$`).FindStringSubmatch(read(".ci/run"))
	require.NotNil(t, stages)
	_, table, ok := strings.Cut(read("CONTRIBUTING.md"), "Stages of the night")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n`internal/lint`")
	var said []string
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, "|"); len(cells) == 5 {
			for _, name := range regexp.MustCompile("`([a-z0-9]+)`").FindAllStringSubmatch(cells[1], -1) {
				said = append(said, name[1])
			}
		}
	}
	want := strings.Fields(stages[1])
	slices.Sort(want)
	slices.Sort(said)
	assert.Equal(t, want, said)
	assert.Contains(t, read(".github/workflows/nightly.yml"), "- run: bash .ci/run -all\n")
}

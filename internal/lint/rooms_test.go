package lint

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rooms are the folders of the module from the lowest to the highest: a package imports what is in its own room or in a lower one.
// Packages below internal/ are in no room: they stand as high as what they import.
const rooms = "layout tensor nn optim data dist ddp fsdp cp tp moe pp plan ckpt train models cmd bench examples"

// upwardArrows returns the imports of non-test files that go to a higher room, directly or through packages below internal/.
func upwardArrows(sources []*source) []string {
	imports := map[string]map[string]bool{}
	for _, s := range sources {
		if s.nested || s.test {
			continue
		}
		if imports[s.dir] == nil {
			imports[s.dir] = map[string]bool{}
		}
		for _, spec := range s.file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if own, ok := strings.CutPrefix(name, modulePath+"/"); ok {
				imports[s.dir][own] = true
			}
		}
	}
	order := strings.Fields(rooms)
	height := func(dir string) int {
		room, _, _ := strings.Cut(dir, "/")
		return slices.Index(order, room)
	}
	found := map[string]bool{}
	for dir := range imports {
		if hidden(dir) {
			continue
		}
		for to := range through(imports, dir) {
			if height(to) > height(dir) {
				found[dir+" -> "+to] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func hidden(dir string) bool { return within(dir, "internal") }

// through returns what dir imports: in the place of a package below internal/, what that imports.
func through(imports map[string]map[string]bool, dir string) map[string]bool {
	seen := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		for to := range imports[dir] {
			if !seen[to] {
				if seen[to] = true; hidden(to) {
					visit(to)
				}
			}
		}
	}
	visit(dir)
	maps.DeleteFunc(seen, func(to string, _ bool) bool { return hidden(to) })
	return seen
}

func TestRooms(t *testing.T) {
	sources := moduleSources(t)
	for _, s := range sources {
		room, _, _ := strings.Cut(s.dir, "/")
		require.True(t, s.nested || hidden(s.dir) || slices.Contains(strings.Fields(rooms), room), "%s is in no room", s.dir)
	}
	assert.Empty(t, upwardArrows(sources))
}

func TestUpwardArrows(t *testing.T) {
	file := func(dir, name string, imports ...string) (string, string) {
		text := "package x\n"
		for _, i := range imports {
			text += "import _ \"" + modulePath + "/" + i + "\"\n"
		}
		return dir + "/" + name, text
	}
	files := map[string]string{}
	add := func(path, text string) { files[path] = text }
	add(file("tensor", "a.go", "internal/low"))
	add(file("tensor", "a_test.go", "train"))
	add(file("internal/low", "a.go", "internal/lower"))
	add(file("internal/lower", "a.go", "optim/deep"))
	add(file("nn", "a.go", "tensor"))
	add(file("optim/deep", "a.go", "nn", "train"))
	add(file("train", "a.go", "nn"))
	assert.Equal(t, []string{"optim/deep -> train", "tensor -> optim/deep"}, upwardArrows(fixture(t, files)))
}

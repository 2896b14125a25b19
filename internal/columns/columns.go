package columns

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// pandasIndex is a name that pandas gives an index that has none, in Parquet, in CSV, and in CSV that was read and written again.
var pandasIndex = regexp.MustCompile(`^(__index_level_\d+__||Unnamed: \d+)$`)

// Select returns the places of the columns of x and of the target among names. Without x it is all but the target, without a target
// the last one; index has columns that are taken only if they are named. Without a name, a column that looks like an index is an error:
// numbers of rows would be learned.
func Select(names, x []string, target string, index []string) (xs []int, y int, err error) {
	return choose(names, x, target, index, false)
}

// Inputs returns the places of the columns of x where no column is the target.
func Inputs(names, x []string) (xs []int, err error) {
	xs, _, err = choose(names, x, "", nil, true)
	return xs, err
}

func choose(names, x []string, target string, index []string, none bool) (xs []int, y int, err error) {
	at := make(map[string]int, len(names))
	for i, name := range names {
		if j, twice := at[name]; twice {
			return nil, 0, fmt.Errorf("columns %d and %d are both called %s: rename one", j+1, i+1, bounded.Quote(name))
		}
		at[name] = i
	}
	y = len(names) - 1
	for y > 0 && slices.Contains(index, names[y]) {
		y--
	}
	if none {
		y = -1
	} else if target != "" {
		var found bool
		if y, found = at[target]; !found {
			return nil, 0, unknown(target, names)
		}
	}
	for k, name := range x {
		i, found := at[name]
		switch {
		case slices.Contains(x[:k], name):
			return nil, 0, fmt.Errorf("column %q is given twice", name)
		case !found:
			return nil, 0, unknown(name, names)
		case i == y:
			return nil, 0, fmt.Errorf("column %q is the target, and one of x too", name)
		}
		xs = append(xs, i)
	}
	for i, name := range names {
		if x == nil && i != y && !slices.Contains(index, name) {
			xs = append(xs, i)
		}
		taken := x == nil && i != y || target == "" && i == y
		if taken && pandasIndex.MatchString(name) && !slices.Contains(index, name) {
			end := ""
			if name == "" && i == len(names)-1 {
				end = "; if the lines end in a separator, remove it"
			}
			return nil, 0, fmt.Errorf("column %d, %q, looks like the index of pandas, and would be learned: write the file with index=False, "+
				"or name the columns of x and the target%s", i+1, name, end)
		}
	}
	if len(xs) == 0 {
		return nil, 0, fmt.Errorf("%d columns: want one for x and one for the target", len(names))
	}
	return xs, y, nil
}

// Categories returns the labels of columns of x that have names, by their places among all names. With missing, a name may be.
func Categories(names []string, xs []int, named []string, missing bool, budget *bounded.Budget) (map[int]*Labels, error) {
	all := map[int]*Labels{}
	for _, name := range named {
		i := slices.Index(names, name)
		if !slices.Contains(xs, i) {
			return nil, fmt.Errorf("column %s of Categories is none of x: there are %s", bounded.Quote(name), Quoted(names))
		}
		all[i] = &Labels{number: map[string]int64{}, Missing: missing, budget: budget}
	}
	return all, nil
}

// Rounded is the error of a whole number that float32 makes another one of: an identifier, a time, an amount of money.
func Rounded(number string, as float32) error {
	return fmt.Errorf("%s does not fit float32, which makes it %.0f: divide the column, subtract from it, or make it floats if that is "+
		"near enough", number, as)
}

func unknown(name string, names []string) error {
	return fmt.Errorf("no column %s: there are %s", bounded.Quote(name), Quoted(names))
}

// Quoted lists names, the first ones if there are many.
func Quoted(names []string) string {
	const most = 20
	text := make([]string, 0, most)
	for _, name := range names[:min(len(names), most)] {
		text = append(text, bounded.Quote(name))
	}
	if rest := len(names) - most; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(text, ", "), rest)
	}
	return strings.Join(text, ", ")
}

// Labels numbers classes.
type Labels struct {
	Y      []int64 // the class of each label that was added
	names  []string
	number map[string]int64
	fixed  bool

	Missing bool // a label may be missing: it is ""
	budget  *bounded.Budget
}

// missing are the texts of missing values: what pandas writes for them, or reads as them.
var missing = []string{"nan", "NaN", "<NA>", "NaT", "None", "NA", "N/A", "n/a", "#N/A", "NULL", "null"}

// IsMissing tells whether a text stands for a missing value.
func IsMissing(text string) bool { return text == "" || slices.Contains(missing, text) }

// classBytes is the memory of a class, besides its name.
const classBytes = 320

// NewLabels takes the names of all classes, in the order of their numbers, or nil for those that will come, which take memory
// from a budget.
func NewLabels(classes []string, budget *bounded.Budget) (*Labels, error) {
	l := &Labels{names: slices.Clone(classes), number: map[string]int64{}, fixed: classes != nil, budget: budget}
	for i, name := range classes {
		if _, twice := l.number[name]; twice {
			return nil, fmt.Errorf("class %q is given twice", name)
		}
		l.number[name] = int64(i)
	}
	return l, nil
}

// Add appends a label. It keeps no reference to a larger string that label is a part of.
func (l *Labels) Add(label string) error {
	if l.Missing && IsMissing(label) {
		label = ""
	}
	n, known := l.number[label]
	switch {
	case label == "" && !l.Missing:
		return errors.New("no label: fill it in, or remove the row")
	case !known && l.fixed:
		return fmt.Errorf("%s is not one of the classes %s", bounded.Quote(label), Quoted(l.names))
	case !known && slices.Contains(missing, label):
		return fmt.Errorf("%q stands for a missing label in pandas: remove the row, or give Classes if it is one", label)
	case !known:
		if err := l.budget.Take(int64(classBytes + len(label))); err != nil {
			return fmt.Errorf("more than %d classes: %w", len(l.names), err)
		}
		label = strings.Clone(label)
		n = int64(len(l.names))
		l.names, l.number[label] = append(l.names, label), n
	}
	l.Y = append(l.Y, n)
	return nil
}

// Fill writes the number of each label into column k of rows of x, and returns the names, as Done does.
func (l *Labels) Fill(x []float32, width, k int) []string {
	names := l.Done()
	for row, n := range l.Y {
		x[row*width+k] = float32(n)
	}
	return names
}

// Done returns the names of the classes. Those that were not given are sorted: as numbers if all are whole numbers.
func (l *Labels) Done() []string {
	if l.fixed {
		return l.names
	}
	used := map[string]bool{} // a row that was left out may have had the only label of its name
	for _, n := range l.Y {
		used[l.names[n]] = true
	}
	sorted := slices.Sorted(maps.Keys(used))
	if !slices.ContainsFunc(sorted, func(s string) bool { n, err := strconv.Atoi(s); return err != nil || strconv.Itoa(n) != s }) {
		slices.SortFunc(sorted, func(a, b string) int {
			m, _ := strconv.Atoi(a)
			n, _ := strconv.Atoi(b)
			return cmp.Compare(m, n)
		})
	}
	final := make([]int64, len(l.names))
	for i, name := range sorted {
		final[l.number[name]] = int64(i)
	}
	for i, n := range l.Y {
		l.Y[i] = final[n]
	}
	return sorted
}

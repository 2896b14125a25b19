package data

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// rowsOf returns the rows of a table that the ranks of a training get in an epoch, sorted, each row as x and then y.
func rowsOf(t *testing.T, ds Dataset, batch, ranks int) (rows [][]float64) {
	t.Helper()
	for r := range ranks {
		l := NewLoader(ds, Config{Batch: batch, Shuffle: true, Sharder: rankOf{r, ranks}})
		for _, b := range l.Epoch(t.Context(), 1) {
			xs, ys := tensor.Floats(b.X), tensor.Floats(b.Y)
			for i := range b.Rows {
				n := len(xs) / b.Rows
				rows = append(rows, append(slices.Clone(xs[i*n:(i+1)*n]), ys[i]))
			}
		}
		require.NoError(t, l.Err())
	}
	slices.SortFunc(rows, slices.Compare)
	return rows
}

// Every number of a file comes once, on any number of ranks.
func TestCSV(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 7, 50} {
		var text strings.Builder
		var want [][]float64
		for range n {
			row := make([]float64, 4)
			for j := range row {
				row[j] = float64(float32(r.NormFloat64()))
			}
			want = append(want, row)
			fmt.Fprintf(&text, "%v,%v,%g,%.12e\n", row[0], row[1], row[2], row[3])
		}
		slices.SortFunc(want, slices.Compare)
		ds, err := CSV(writeFile(t, t.TempDir(), "t.csv", []byte(text.String())), CSVConfig{})
		require.NoError(t, err)
		assert.Equal(t, []string{"1", "2", "3"}, ds.Columns)
		assert.Equal(t, "4", ds.Target)
		assert.Equal(t, fmt.Sprintf("%d rows of float32[3] and float32[1]", n), ds.String())
		for ranks := 1; ranks <= 3; ranks++ {
			assert.Equal(t, want, rowsOf(t, ds, 4, ranks), "%d ranks", ranks)
		}
	}
}

func TestCSVForms(t *testing.T) {
	rows := [][]float64{{1, 2.5, 0}, {3, -4, 1}}
	for name, c := range map[string]struct {
		text string
		cfg  CSVConfig
	}{
		"crlf, no newline at the end": {"1,2.5,0\r\n3,-4,1", CSVConfig{}},
		"byte order mark, header":     {"\xef\xbb\xbfa,b,y\n1,2.5,0\n3,-4,1\n", CSVConfig{Header: true, Columns: []string{"a", "b"}}},
		"quotes and spaces":           {"\"1\", 2.5 ,0\n 3,\"-4\",1\n", CSVConfig{}},
		"empty lines":                 {"\n1,2.5,0\n\n\r\n3,-4,1\n\n", CSVConfig{}},
		"semicolons":                  {"1;2.5;0\n3;-4;1\n", CSVConfig{Comma: ';'}},
		"tabs, columns chosen": {"id\ty\tb\ta\nu7\t0\t2.5\t1\nu8\t1\t-4\t3\n",
			CSVConfig{Header: true, Comma: '\t', Columns: []string{"a", "b"}, Target: "y"}},
		"columns by number":     {"2.5,0,1\n-4,1,3\n", CSVConfig{Columns: []string{"3", "1"}, Target: "2"}},
		"labels":                {"1,2.5,cat\n3,-4,dog\n", CSVConfig{Labels: true}},
		"labels of numbers":     {"1,2.5,9\n3,-4,10\n", CSVConfig{Labels: true}},
		"other columns are any": {"x,a,b,y\n\xff\x00,1,2.5,0\nz,3,-4,1\n", CSVConfig{Header: true, Columns: []string{"a", "b"}}},
		"a class called nan":    {"1,2.5,nan\n3,-4,a\n", CSVConfig{Classes: []string{"nan", "a"}}},
		"classes":               {"1,2.5,z\n3,-4,\"a\"\n", CSVConfig{Classes: []string{"z", "a", "b"}}},
		"carriage returns":      {"1,2.5,0\r3,-4,1\r", CSVConfig{}},
		"all kinds of lines":    {"1,\"2.5\",0\r\r\n3,-4,1\n\r", CSVConfig{}},
		"header of pandas":      {"0,1,2\n1,2.5,0\n3,-4,1\n", CSVConfig{Header: true}},
		"exact floats":          {"1,2.5,000\n+03,-4.0,1e0\n", CSVConfig{}},
		"header over two lines": {"\"a\nb\",c,y\n1,2.5,0\n3,-4,1\n", CSVConfig{Header: true}},
	} {
		ds, err := parseCSV(strings.NewReader(c.text), int64(len(c.text)), c.cfg)
		require.NoError(t, err, name)
		assert.Equal(t, rows, rowsOf(t, ds, 5, 1), name)
		parsedAlike(t, c.text, c.cfg)
	}
	ds, err := parseCSV(strings.NewReader("1,b\n2,a\n3,b\n"), 12, CSVConfig{Labels: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, ds.Classes)
	_, y := ds.Shapes()
	assert.Equal(t, "int64[]", y.String())
}

// Whole numbers are read as they are; others are rounded.
func TestCSVNumbers(t *testing.T) {
	text := "16777216,16777217.0\n-16777218,1.6777217e7\n340282346638528859811704183484516925440,0.1\n0000000001,-0\n"
	ds, err := parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{-16777218, 16777216}, {1, 0}, {16777216, 16777216}, {math.MaxFloat32, float64(float32(0.1))}},
		rowsOf(t, ds, 5, 1))
}

// A quote in one read of a file is known in the next one.
func TestCSVLongQuotes(t *testing.T) {
	label := strings.Repeat("x", 6000) + "\rand more"
	text := `1,"` + label + "\"\r2,b\r"
	ds, err := parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{Labels: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"b", label}, ds.Classes)
}

// The short way gives the numbers of strconv, also near the middle between two float32 numbers.
func TestDecimal(t *testing.T) {
	rng, known := rand.New(rand.NewPCG(1, 2)), 0
	same := func(text string) {
		v, n := decimal(text)
		if n != len(text) {
			return
		}
		known++
		want, err := strconv.ParseFloat(text, 32)
		require.NoError(t, err, text)
		require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(v), text)
	}
	for range 20_000 {
		x := math.Float32frombits(rng.Uint32N(0x3000_0000) + 0x2800_0000) // 7e-15 to 5e11
		middle := (float64(x) + float64(math.Nextafter32(x, 1))) / 2
		digits := 1 + rng.IntN(19)
		for _, v := range []float64{float64(x), -middle, math.Nextafter(middle, 0), math.Nextafter(middle, 1)} {
			same(strconv.FormatFloat(v, 'f', -1, 64))
			same(strconv.FormatFloat(v, 'f', digits, 64))
		}
	}
	require.Greater(t, known, 50_000)
	for _, text := range []string{"", "-", ".", "-.", "--1", "1.2.3", "1e3", "+1", " 1", "inf", "12345678", "99999999999999999999",
		"0.1234567:9", "1234567890.12345678901"} {
		_, n := decimal(text)
		require.True(t, n == 0 || n < len(text), text)
	}
	for _, text := range []string{"0", "-0", "5.", "-.5", "0.000000000000000001", "9999999999999999999.", "1234567", "0.1", "16777217.5"} {
		_, n := decimal(text)
		require.Equal(t, len(text), n, text)
		same(text)
	}
}

// BenchmarkCSV reads a table as pandas writes it. With RINGO_PYTHON, pandas reads it by turns.
func BenchmarkCSV(b *testing.B) {
	const rows, columns = 100_000, 14
	rng, text := rand.New(rand.NewPCG(1, 2)), []byte("a,b,c,d,e,f,g,h,i,j,k,l,m,n\n")
	for i := range rows * columns {
		switch i % columns {
		case columns - 1:
			text = append(strconv.AppendInt(text, rng.Int64N(1000), 10), '\n')
		case 0, 2, 4, 6, 8, 10:
			text = append(strconv.AppendFloat(text, rng.NormFloat64(), 'f', -1, 64), ',')
		default:
			text = append(strconv.AppendFloat(text, rng.NormFloat64(), 'f', 6, 64), ',')
		}
	}
	file := filepath.Join(b.TempDir(), "table.csv")
	require.NoError(b, os.WriteFile(file, text, 0o600))
	b.SetBytes(int64(len(text)))
	var peer float64
	for b.Loop() {
		_, err := CSV(file, CSVConfig{Header: true})
		require.NoError(b, err)
		if python := os.Getenv("RINGO_PYTHON"); python != "" {
			b.StopTimer()
			out, err := exec.Command(python, "-c", "import pandas, sys, time; pandas.read_csv(sys.argv[1]); s = time.time(); "+
				"pandas.read_csv(sys.argv[1]); print(time.time() - s)", file).Output()
			require.NoError(b, err)
			seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			require.NoError(b, err)
			peer += seconds
			b.StartTimer()
		}
	}
	if peer > 0 {
		b.ReportMetric(b.Elapsed().Seconds()/peer, "of-pandas")
	}
}

// The ends of errors about what is no number, or no text.
const (
	separated = " is not a number: write a decimal point, and no separators of thousands"
	fillIn    = ": fill it in, or remove the row"
	replaceIt = ": replace it, or remove the row"
	divideIt  = ": divide the column"
	leaveOut  = "; Columns can leave the column out, and Categories is for names"
	forLabels = "; Labels is for names of classes"
	separator = ": a field with a separator in it needs quotes, and the end of a line no separator"
	quotes    = ": a field with a quote in it needs quotes around it, and its quote twice"
	latin1    = "is no UTF-8: if it is Latin-1, convert it with iconv -f latin1 -t utf-8 FILE"
	zero      = "has a zero byte: the file is damaged, no text, or UTF-16: want UTF-8"
	utf16     = "the text is UTF-16 or UTF-32: want UTF-8, such as of iconv -f utf-16 -t utf-8 FILE"
)

func TestCSVErrors(t *testing.T) {
	header := CSVConfig{Header: true}
	for _, c := range []struct {
		text, want string
		cfg        CSVConfig
	}{
		{"", "no rows", CSVConfig{}},
		{"\xef\xbb\xbf", "no rows", CSVConfig{}},
		{"a,b\n", "no rows", header},
		{"1,2\n3\n", "line 2: 1 fields, want 2 as in the first line", CSVConfig{}},
		{"1,2\n\n3,4,5\n", "line 3: 3 fields, want 2 as in the first line" + separator, CSVConfig{}},
		{"1,2\n \n", "line 2: 1 fields, want 2 as in the first line", CSVConfig{}},
		{"1,1_000\n", `line 1, column 2: "1_000"` + separated, CSVConfig{}},
		{"\"1,234\",1\n", `line 1, column 1: "1,234"` + separated, CSVConfig{}},
		{"1;2,5\n", `line 1, column 2: "2,5"` + separated, CSVConfig{Comma: ';'}},
		{"1\u00a0000,1\n", `line 1, column 1: "1\u00a0000"` + separated, CSVConfig{}},
		{"0x1p3,1\n", `line 1, column 1: "0x1p3" is not a number` + leaveOut, CSVConfig{}},
		{"1,2\n3,five\n", `line 2, column 2: "five" is not a number` + forLabels, CSVConfig{}},
		{"a,b\n1,2\n,4\n", `line 3, column "a": no value` + fillIn, header},
		{"a,b\n\"x\ny\",2\n", "line 2, column \"a\": \"x\\ny\" is not a number" + leaveOut, header},
		{"1,2\n3, \n", "line 2, column 2: no value" + fillIn, CSVConfig{}},
		{"1,2\nNaN,4\n", `line 2, column 1: "NaN" is not a finite number` + replaceIt, CSVConfig{}},
		{"1,2\n3,-Inf\n", `line 2, column 2: "-Inf" is not a finite number` + replaceIt, CSVConfig{}},
		{"1,2\n3,1e39\n", `line 2, column 2: "1e39" is out of the range of float32` + divideIt, CSVConfig{}},
		{"1,2\r3,4,5\n", "line 2: 3 fields, want 2 as in the first line" + separator, CSVConfig{}},
		{"1,\"2\r3\"\n", `line 1, column 2: "2\r3" is not a number` + forLabels, CSVConfig{}},
		{"0,1,2\n3,4,5\n", "line 1 has 0, 1, 2 and so on, which are pandas' names of columns: set CSVConfig.Header, or, if it is a sample, " +
			"move it to another line", CSVConfig{}},
		{"1,16777217\n", "line 1, column 2: 16777217 does not fit float32, which makes it 16777216: divide the column, subtract from it, " +
			"or make it floats if that is near enough", CSVConfig{}},
		{"-0100000000000000000001,1\n", "line 1, column 1: -0100000000000000000001 does not fit float32, which makes it " +
			"-100000002004087734272: divide the column, subtract from it, or make it floats if that is near enough", CSVConfig{}},
		{"a,b\n1,2\n", `line 1, column 1: "a" is not a number; if the line has the names of the columns, set CSVConfig.Header`, CSVConfig{}},
		{"a,2\n", `line 1, column 1: "a" is not a number` + leaveOut, CSVConfig{}},
		{"a,b\n1,2\na,b\n", `line 3, column "a": "a" is not a number` + leaveOut, header},
		{"sep=;\na;b\n", `line 1, "sep=;", is for Excel alone: remove it, and set CSVConfig.Comma if that is no comma`,
			CSVConfig{Header: true, Comma: ';'}},
		{"a\xfc,b\n1,2\n", "line 1 " + latin1, header},
		{"1,cat\n2,k\xe4t\n", `line 2, column 2: the label "k\xe4t" ` + latin1, CSVConfig{Labels: true}},
		{"a\x00,\x00b\x00\n\x001\x00,\x002\x00\n\x00", "line 1 " + zero, header},
		{"1\x00,\x002\x00\n\x00", `line 1, column 1: "1\x00" ` + zero, CSVConfig{}},
		{"1,c\x00t\n", `line 1, column 2: the label "c\x00t" ` + zero, CSVConfig{Labels: true}},
		{"1,cat\n2,nan\n", `line 2, column 2: "nan" stands for a missing label in pandas: remove the row, or give Classes if it is one`,
			CSVConfig{Labels: true}},
		{"1,cat\n2, NA\n", `line 2, column 2: "NA" stands for a missing label in pandas: remove the row, or give Classes if it is one`,
			CSVConfig{Labels: true}},
		{"1,2\n3,4\n", "line 1 has numbers alone, no names of columns: CSVConfig.Header is for files that have them", header},
		{"1;2\n", `line 1 has one field (CSVConfig.Comma is ','): want x and a target: set it to ';'`, CSVConfig{}},
		{"a,b,a\n", `line 1: columns 1 and 3 are both called "a": rename one`, header},
		{"a,b\n1,2\n", `line 1: no column "c": there are "a", "b"; NoTarget is for rows without one`, CSVConfig{Header: true, Target: "c"}},
		{"1,2\n", `line 1: no column "0": there are "1", "2"`, CSVConfig{Columns: []string{"0"}}},
		{"1,2\n3,4\"\n", `parse error on line 2, column 4: bare " in non-quoted-field` + quotes, CSVConfig{}},
		{"1,2\n\"3,4\n5,6\n", `record on line 2; parse error on line 3, column 5: extraneous or missing " in quoted-field` + quotes, CSVConfig{}},
		{"1,2\n", "csv: invalid field or comment delimiter", CSVConfig{Comma: '"'}},
		{"\xff\xfe1\x00,\x002\x00", utf16, CSVConfig{}},
		{"1,cat\n2,dog\n", `line 2, column 2: "dog" is not one of the classes "cat"`, CSVConfig{Classes: []string{"cat"}}},
		{"1,cat\n2, \n", `line 2, column 2: no label` + fillIn, CSVConfig{Labels: true}},
		{"1,cat\n", `class "a" is given twice`, CSVConfig{Classes: []string{"a", "a"}}},
	} {
		file := writeFile(t, t.TempDir(), "t.csv", []byte(c.text))
		_, err := CSV(file, c.cfg)
		assert.EqualError(t, err, "data: "+file+": "+c.want, "%q", c.text)
		parsedAlike(t, c.text, c.cfg)
	}
	_, err := CSV(t.TempDir(), CSVConfig{})
	assert.ErrorContains(t, err, "is not a regular file")
	_, err = CSV(filepath.Join(t.TempDir(), "t.csv"), CSVConfig{})
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// The index that pandas writes without a name is no feature.
func TestCSVIndex(t *testing.T) {
	for _, text := range []string{",a,b\n0,1,2\n", "Unnamed: 0,a,b\n0,1,2\n", "a,b,\n1,2,0\n"} {
		_, err := parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{Header: true})
		require.ErrorContains(t, err, "looks like the index of pandas, and would be learned: write the file with index=False")
		ds, err := parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{Header: true, Columns: []string{"a"}, Target: "b"})
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, ds.Columns)
	}
}

// Files whose fields and classes would take far more memory than they have bytes are errors.
func TestCSVBombs(t *testing.T) {
	wide := func(n int, before string) string { return before + strings.Repeat(",", n) }
	var classes strings.Builder
	for i := range 600_000 {
		fmt.Fprintf(&classes, "1,%x\n", i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"one line":           {wide(3_000_000, ""), "the fields of one line: it would take more than"},
		"the second line":    {wide(5_000_000, "1,2\n"), "the fields of one line: it would take more than"},
		"behind a quote":     {wide(5_000_000, "1,\"\n\""), "the fields of one line: it would take more than"},
		"tabs":               {strings.ReplaceAll(wide(3_000_000, ""), ",", "\t"), "the fields of one line: it would take more than"},
		"columns":            {wide(300_000, "1"), "300001 columns: it would take more than"},
		"classes":            {classes.String(), "it would take more than"},
		"many lines":         {strings.Repeat("1,2\n", 2_000_000), ""},
		"a line, then lines": {"1,2\n" + strings.Repeat("1,\"a\nb\"\n", 10), `line 2, column 2: "a\nb" is not a number`},
	} {
		if (name == "the second line" || name == "behind a quote" || name == "tabs" || name == "many lines") != reliability.Long(t) {
			continue
		}
		cfg := CSVConfig{Labels: name == "classes"}
		if name == "tabs" {
			cfg.Comma = '\t'
		}
		reliability.Bounded(t, len(c.text), func() {
			_, err := parseCSV(strings.NewReader(c.text), int64(len(c.text)), cfg)
			if c.want == "" {
				require.NoError(t, err, name)
				return
			}
			require.ErrorContains(t, err, c.want, name)
			require.Less(t, len(err.Error()), 1000, name)
		})
	}
}

func TestLongCSVBombs(t *testing.T) { reliability.AsLong(t, TestCSVBombs) }

// The result equals that of encoding/csv and strconv for the whole text.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{
		"1,2\n3,4\n", "a,b\r\n1,2\r\n", "\xef\xbb\xbf\"1\",2", "1,2\n3\n", "1,\"2\n", "1,NaN", "", "\xff\xfe", "1e39,0x1p-2,1_0", "1,2\r3,4\r",
		"0,1,2\n",
	} {
		f.Add(text, false, false)
		f.Add(text, true, false)
		f.Add(text, false, true)
	}
	f.Fuzz(func(t *testing.T, text string, header, labels bool) {
		var ds *Table
		var err error
		reliability.Bounded(t, len(text), func() {
			ds, err = parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{Header: header, Labels: labels})
		})
		if err != nil {
			return
		}
		lines := []byte(strings.TrimPrefix(text, "\xef\xbb\xbf"))
		for i, c := range lines {
			if c == '\r' && bytes.Count(lines[:i], []byte{'"'})%2 == 0 && !bytes.HasPrefix(lines[i+1:], []byte("\n")) {
				lines[i] = '\n'
			}
		}
		records, err := csv.NewReader(bytes.NewReader(lines)).ReadAll()
		require.NoError(t, err)
		if header {
			records = records[1:]
		}
		require.Equal(t, len(records), ds.Len())
		width := len(records[0]) - 1
		x := tensor.FromSlice(make([]float32, width), 1, width)
		y := tensor.FromSlice(make([]float32, 1), 1, 1)
		if labels {
			y = tensor.FromSlice(make([]int64, 1), 1)
		}
		for i, record := range records {
			require.NoError(t, ds.Batch([]int{i}, x, y))
			for j, field := range record {
				field = strings.TrimSpace(field)
				if j == width && labels {
					require.Equal(t, field, ds.Classes[tensor.Data[int64](y)[0]])
					continue
				}
				v, err := strconv.ParseFloat(field, 32)
				require.NoError(t, err)
				require.Equal(t, v, append(tensor.Floats(x), tensor.Floats(y)...)[j])
			}
		}
	})
}

// parts is a reader of a few bytes at a time.
type parts struct {
	from io.Reader
	most int
}

func (p parts) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), p.most)]) }

// parsedAlike compares blocks of many lengths, which are parsed in parallel, with package encoding/csv alone.
func parsedAlike(t testing.TB, text string, cfg CSVConfig) {
	t.Helper()
	text = strings.Repeat("\n", 512) + text // the first block, of which nothing is plain
	alone := func() (*Table, error) {
		p := &csvParser{cfg: cfg, budget: bounded.New(int64(len(text)))}
		p.cfg.Comma = cmp.Or(cfg.Comma, ',')
		var err error
		if p.textRows, err = newTextRows(cfg.NoTarget, cfg.Labels, cfg.Classes, cfg.Missing, p.budget); err != nil {
			return nil, err
		}
		all, err := io.ReadAll(&lineEnds{text: bufio.NewReader(strings.NewReader(text))})
		require.NoError(t, err)
		if err := p.lineByLine(all); err != nil {
			return nil, err
		}
		return p.table()
	}
	want, wantErr := alone()
	for _, most := range []int{1, 2, 3, 7, 20, 100, 1 << 20} {
		got, err := parseCSV(parts{strings.NewReader(text), most}, int64(len(text)), cfg)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), "%q in parts of %d", text[512:], most)
		if err != nil {
			continue
		}
		require.Equal(t, want.xs, got.xs, "%q in parts of %d", text[512:], most)
		require.Equal(t, want.ys, got.ys)
		require.Equal(t, want.Classes, got.Classes)
		require.Equal(t, want.Categories, got.Categories)
		require.Equal(t, fmt.Sprint(want.Skipped), fmt.Sprint(got.Skipped))
	}
}

// Lines that are not plain between those that are give the same rows, numbers of names and errors.
func TestCSVBlocks(t *testing.T) {
	lines := []string{"1.5,Ulm,7,no\n", "-2,Bonn,0.25,yes\r\n", ".5,\"Ulm, a\nDonau\",1e3,no\n", "\n", "\r\n", "x,Ulm,1,no\n", ",,NaN,yes\n",
		"4,Ulm\n", "5,Trier,1,no,6\n", " 6 , Bonn ,16777217.5,  no\n", "7,Ulm,16777217,no\n", "8,K\xf6ln,1,no\n", "9,Ulm,1,\n", "1.25,Ulm,7,no\r",
		"12345678901234567890123,Ulm,0.1,no\n", "--1,Ulm,1.2.3,no\n", "1,Ulm,\"2\",\"y\"\"es\"\n", "1.,Ulm,-.,no\n"}
	seeds := uint64(3)
	if reliability.Long(t) {
		seeds = 20
	}
	for _, cfg := range []CSVConfig{
		{}, {Skip: true}, {Skip: true, Missing: true, Labels: true, Categories: []string{"town"}},
		{Skip: true, Missing: true, Target: "a", Columns: []string{"b"}},
		{Skip: true, Classes: []string{"no", "yes"}, Columns: []string{"b", "a"}},
		{Skip: true, NoTarget: true, Columns: []string{"b", "a"}},
		{Skip: true, NoTarget: true, Columns: []string{"a", "town", "b"}, Labels: true, Missing: true, Categories: []string{"town"}},
	} {
		cfg.Header = true
		for seed := range seeds {
			rng, text := rand.New(rand.NewPCG(seed, 2)), "a,town,b,y\n"
			for range 60 {
				text += lines[rng.IntN(2)]
				if rng.IntN(8) == 0 {
					text += lines[rng.IntN(len(lines))]
				}
			}
			parsedAlike(t, text, cfg)
			parsedAlike(t, strings.ReplaceAll(strings.ReplaceAll(text, ",no", ",0.5"), ",yes", ",2"), cfg)
		}
	}
	var text strings.Builder // as long as many blocks
	text.WriteString("a,town,b,y\n")
	for i := range 30_000 {
		text.WriteString(lines[i%2])
		if i%5000 == 4999 {
			text.WriteString(lines[2+i/5000])
		}
	}
	parsedAlike(t, text.String(), CSVConfig{Header: true, Skip: true, Missing: true, Labels: true, Categories: []string{"town"}})
}

func TestLongCSVBlocks(t *testing.T) { reliability.AsLong(t, TestCSVBlocks) }

// An error of the file comes behind those of its lines.
func TestCSVReadError(t *testing.T) {
	text := strings.Repeat("1,2\n", 50_000)
	from := func(text string) io.Reader {
		return io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("the disk is gone")))
	}
	_, err := parseCSV(from(text), 1<<20, CSVConfig{})
	require.EqualError(t, err, "the disk is gone")
	for _, part := range []string{"1", "1,", "1,\"2\n3\n", "1,2\n\"3\"\"\n4"} {
		_, err = parseCSV(from(text+part), 1<<20, CSVConfig{Skip: true})
		require.EqualError(t, err, "the disk is gone", part)
	}
	_, err = parseCSV(from(text+"1,x\n1,2\n"), 1<<20, CSVConfig{})
	require.ErrorContains(t, err, `line 50001, column 2: "x" is not a number`)
}

// A quote that is too much is told before its block, which has all lines behind it, counts as one.
func TestCSVQuoteBeforeManyLines(t *testing.T) {
	text := "1,2\n3,4\n5\",6\n" + strings.Repeat(strings.Repeat("1,", 19)+"1\n", 30_000)
	_, err := parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{})
	require.ErrorContains(t, err, `parse error on line 3, column 2: bare "`)
}

// Empty lines, and lines of other columns, are no reason for memory.
func TestCSVEmptyLinesTakeNoMemory(t *testing.T) {
	row := strings.Repeat("1,", 3000) + "1\n"
	for _, text := range []string{row + strings.Repeat("\n", 100_000) + row, row + row + strings.Repeat("\"1\"\n", 50_000)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseCSV(strings.NewReader(text), int64(len(text)), CSVConfig{Skip: true})
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
	}
}

func FuzzCSVBlocks(f *testing.F) {
	for _, text := range []string{"1,2\n3,4\n", "a,b\r\n1,2\r\n", "1,2\n\"3\",4\n5,6\n", "1,2\n,3\r4,5\r",
		"1,2\r\n-.5,7\n1.5.2,3\n", "1.2\n3.4\n", "1;2\n"} {
		f.Add(text, uint8(0), ',')
		f.Add(text, uint8(255), '.')
		f.Add(text, uint8(2), ';')
	}
	f.Fuzz(func(t *testing.T, text string, bits uint8, comma rune) {
		cfg := CSVConfig{Header: bits&1 != 0, Labels: bits&2 != 0, Missing: bits&4 != 0, Skip: bits&8 != 0, Comma: comma}
		if bits&16 != 0 {
			cfg.Categories = []string{"1"}
		}
		parsedAlike(t, text, cfg)
	})
}

// Memory is reserved for the rows of a file, in place of slices that are copied as they grow.
func TestCSVDoesNotAllocateTwice(t *testing.T) {
	const rows, columns = 60_000, 8
	file := filepath.Join(t.TempDir(), "long.csv")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("0.25,1,2,3,4,5,6,7\n", rows)), 0o666))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table, err := CSV(file, CSVConfig{})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Equal(t, rows, table.Len())
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*4*rows*columns))
}

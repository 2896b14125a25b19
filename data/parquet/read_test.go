package parquet

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// Files of pyarrow, with each compression, both versions of pages, and four row groups.
func TestPyArrow(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	require.NoError(t, err)
	require.Len(t, files, 8)
	files = slices.DeleteFunc(files, func(name string) bool { return filepath.Base(name) == "types.parquet" })
	numbers := []string{"list", "f64", "f32", "i8", "i64", "flag"}
	for _, file := range files {
		ds, err := Read(file, Config{Columns: numbers, Target: "kind", Labels: true})
		require.NoError(t, err)
		require.Equal(t, 400, ds.Len())
		assert.Equal(t, []string{"ant", "bee", "cat"}, ds.Classes)
		x, y := tensor.FromSlice(make([]float32, 6), 1, 6), tensor.FromSlice(make([]int64, 1), 1)
		for i := range 400 {
			require.NoError(t, ds.Batch([]int{i}, x, y))
			want := []float32{float32(i), float32(i) / 8, -float32(i) / 4, float32(i%7 - 3), float32(i * i), 0}
			if i%3 == 0 {
				want[5] = 1
			}
			require.Equal(t, want, tensor.Data[float32](x), "%s, row %d", file, i)
			require.Equal(t, []string{"cat", "ant", "bee"}[i%3], ds.Classes[tensor.Data[int64](y)[0]])
		}
	}
	for target, want := range map[string][]string{
		"u32": {"0", "4294967295"}, "flag": {"false", "true"}, "i8": {"-3", "-2", "-1", "0", "1", "2", "3"},
	} {
		ds, err := Read("testdata/zstd.parquet", Config{Columns: []string{"f64"}, Target: target, Labels: true})
		require.NoError(t, err)
		assert.Equal(t, want, ds.Classes)
	}
	for want, cfg := range map[string]Config{
		`column "id": holds STRING: want numbers, or Labels, if it is the target and has names of classes; ` +
			`Categories is for names in x`: {},
		`column "day": holds DATE: want numbers; days since 1970 are, of pandas, ` +
			`df["day"] = (pd.to_datetime(df["day"], utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)`: {
			Columns: []string{"f64"}, Target: "day"},
		`column "list": holds lists or groups: want one value a row, or lists of numbers in x`: {Columns: []string{"f64"}, Target: "list"},
		`column "u32": row 0: 4294967295 does not fit float32, which makes it 4294967296: divide the column, subtract from it, or make ` +
			`it floats if that is near enough`: {Columns: []string{"f64"}, Target: "u32"},
		`column "f64": holds DOUBLE: want text or whole numbers`: {Columns: []string{"f32"}, Target: "f64", Labels: true},
		`column "kind": row 1: "ant" is not one of the classes "cat", "bee"`: {Columns: []string{"f32"},
			Target: "kind", Classes: []string{"cat", "bee"}},
		`class "a" is given twice`: {Classes: []string{"a", "a"}},
		`no column "none": there are "id", "f64", "f32", "i8", "u32", "i64", "flag", "kind", "day", "list"`: {Target: "none"},
	} {
		_, err := Read("testdata/none.parquet", cfg)
		assert.EqualError(t, err, "data/parquet: testdata/none.parquet: "+want)
	}
	_, err = Read("testdata/missing.parquet", Config{})
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// Types that need more than one value or more than a conversion, of pyarrow with LZ4.
func TestTypes(t *testing.T) {
	ds, err := Read("testdata/types.parquet", Config{Columns: []string{"half", "fixed", "list", "halves"}, Target: "y"})
	require.NoError(t, err)
	require.Equal(t, []string{"half", "fixed[0]", "fixed[1]", "fixed[2]", "list[0]", "list[1]", "halves[0]", "halves[1]"}, ds.Columns)
	x, y := tensor.FromSlice(make([]float32, 8), 1, 8), tensor.FromSlice(make([]float32, 1), 1, 1)
	for i := range 50 {
		require.NoError(t, ds.Batch([]int{i}, x, y))
		v := float32(i)
		require.Equal(t, []float32{v / 4, v, v / 2, -v, v * 3, 1 - v, v * 8, -v / 8}, tensor.Data[float32](x))
		require.Equal(t, []float32{v}, tensor.Data[float32](y))
	}
	day := "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)"
	for column, want := range map[string]string{
		"time":   "holds " + day + ": want numbers; days since 1970 are, of pandas, df[\"time\"] = (pd.to_datetime(df[\"time\"], utc=True) - ",
		"money":  `holds DECIMAL(9,2): want numbers; of pandas, df["money"] = df["money"].astype(float)`,
		"ragged": "row 1: its list has less than 3 elements, which is the mean: want lists of one length",
		"longer": "row 3: its list has more than 2 elements, which is the mean: want lists of one length",
		"hole":   "row 5: no value",
		"none":   "row 5: no value",
		"texts":  "holds STRING: want numbers, or Labels, if it is the target and has names of classes; Categories is for names in x",
		"pair":   "holds lists or groups: want one value a row, or lists of numbers in x",
		"deep":   "holds lists or groups: want one value a row, or lists of numbers in x",
		"large":  "row 0: 9007199254740993 does not fit float32, which makes it 9007199254740992: ",
	} {
		_, err := Read("testdata/types.parquet", Config{Columns: []string{column}, Target: "y"})
		assert.ErrorContains(t, err, `types.parquet: column "`+column+`": `+want)
	}
}

// Lists that the library writes, in each version of pages and with each compression.
func TestLists(t *testing.T) {
	type listed struct {
		E []float32 `parquet:"e,list"`
		Y float64
	}
	var rows []listed
	for i := range 300 {
		rows = append(rows, listed{[]float32{float32(i), float32(i % 5), 7}, float64(i)})
	}
	for _, codec := range []pq.WriterOption{pq.Compression(&pq.Uncompressed), pq.Compression(&pq.Zstd), pq.Compression(&pq.Lz4Raw)} {
		for version := 1; version <= 2; version++ {
			ds, err := readBytes(write(t, rows, 77, codec, pq.DataPageVersion(version), pq.PageBufferSize(100)), Config{})
			require.NoError(t, err)
			x, y := tensor.FromSlice(make([]float32, 900), 300, 3), tensor.FromSlice(make([]float32, 300), 300, 1)
			all := make([]int, 300)
			for i := range all {
				all[i] = i
			}
			require.NoError(t, ds.Batch(all, x, y))
			for i, r := range rows {
				require.Equal(t, r.E, tensor.Data[float32](x)[3*i:3*i+3])
				require.Equal(t, float32(r.Y), tensor.Data[float32](y)[i])
			}
		}
	}
	for want, lengths := range map[string]map[int]int{
		"row 1: its list has more than 3":  {1: 4, 2: 2},
		"row 1: its list has less than 3":  {1: 2, 2: 4},
		"row 76: its list has less than 3": {76: 2, 77: 4}, // the last one of a row group
		"row 0: no value":                  {0: 0, 1: 5},
	} {
		bad := slices.Clone(rows)
		for i, n := range lengths {
			bad[i].E = make([]float32, n)
		}
		_, err := readBytes(write(t, bad, 77), Config{})
		require.ErrorContains(t, err, want)
	}
}

// Large pages that LZ4 hardly compresses.
func TestLZ4(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	rows := make([]row, 20_000)
	for i := range rows {
		b := int32(r.IntN(1 << 24))
		rows[i] = row{r.Float64(), &b, r.Float32()}
	}
	for version := 1; version <= 2; version++ {
		ds, err := readBytes(write(t, rows, len(rows), pq.Compression(&pq.Lz4Raw), pq.DataPageVersion(version)), Config{})
		require.NoError(t, err)
		x, y := tensor.FromSlice(make([]float32, 2), 1, 2), tensor.FromSlice(make([]float32, 1), 1, 1)
		for i, want := range rows {
			require.NoError(t, ds.Batch([]int{i}, x, y))
			require.Equal(t, []float32{float32(want.A), float32(*want.B)}, tensor.Data[float32](x), "row %d", i)
			require.Equal(t, want.Y, tensor.Data[float32](y)[0])
		}
	}
}

// Lists that the footer makes far longer than they are take no memory.
func TestHugeLists(t *testing.T) {
	good := write(t, []struct {
		E []float32 `parquet:"e,list"`
		Y float32
	}{{[]float32{1, 2}, 3}}, 1)
	f, err := pq.OpenFile(bytes.NewReader(good), int64(len(good)))
	require.NoError(t, err)
	f.Metadata().RowGroups[0].Columns[0].MetaData.NumValues = 1 << 40
	footer, err := thrift.Marshal(&thrift.CompactProtocol{}, f.Metadata())
	require.NoError(t, err)
	end := len(good) - 8 - int(binary.LittleEndian.Uint32(good[len(good)-8:]))
	bad := ended(append(bytes.Clone(good[:end]), footer...), len(footer))
	reliability.Bounded(t, len(bad), func() {
		_, err := readBytes(bad, Config{})
		require.ErrorContains(t, err, `column "e": lists of 16777216: it would take more than`)
	})
}

// messy has rows with nulls, NaN, lists of other lengths, and numbers that float32 does not have.
type messy struct {
	Age   *float64 `parquet:"age"`
	Town  *string  `parquet:"town"`
	Ids   []int32  `parquet:"ids,list"`
	Price *float64 `parquet:"price"`
}

func messyRow(age float64, town string, price float64, ids ...int32) messy {
	return messy{&age, &town, ids, &price}
}

// Names become numbers, sorted, missing values NaN or the name "", and rows that cannot be read are left out and counted, as of data.CSV.
func TestMessy(t *testing.T) {
	rows := []messy{messyRow(30, "Ulm", 1, 1, 2), messyRow(0, "Bonn", 2, 3, 4), messyRow(math.NaN(), "NA", 3, 5, 6),
		messyRow(math.Inf(1), "Ulm", 4, 1, 2), messyRow(10, "Trier", 5, 1, 2), messyRow(20, "Trier", 6, 1<<24+1, 2), messyRow(40, "", 7, 7, 8),
		messyRow(50, "Köln", 8, 1, 2, 3), messyRow(60, "Köln", 9, 1), messyRow(70, "Aachen", 10, 9, 0)}
	rows[1].Age, rows[2].Town, rows[3].Price, rows[4].Price = nil, nil, nil, nil
	cfg := Config{Categories: []string{"town"}, Missing: true, Skip: true}
	for _, group := range []int{1, 3, 100} {
		ds, err := readBytes(write(t, rows, group), cfg)
		require.NoError(t, err)
		require.Equal(t, []string{"age", "town", "ids[0]", "ids[1]"}, ds.Columns)
		require.Equal(t, map[string][]string{"town": {"", "Aachen", "Bonn", "Ulm"}}, ds.Categories)
		require.Equal(t, 5, ds.Skipped.Count)
		require.EqualError(t, ds.Skipped.First, `column "age": row 3: +Inf is not a finite number: replace it, or remove the row`)
		x, y := tensor.FromSlice(make([]float32, 20), 5, 4), tensor.FromSlice(make([]float32, 5), 5, 1)
		require.NoError(t, ds.Batch([]int{0, 1, 2, 3, 4}, x, y))
		xs := tensor.Data[float32](x)
		for _, i := range []int{4, 8} {
			require.True(t, math.IsNaN(float64(xs[i])))
			xs[i] = -1
		}
		require.Equal(t, []float32{30, 3, 1, 2, -1, 2, 3, 4, -1, 0, 5, 6, 40, 0, 7, 8, 70, 1, 9, 0}, xs)
		require.Equal(t, []float32{1, 2, 3, 7, 10}, tensor.Data[float32](y))
	}
	named := func(names ...string) Config { return Config{Categories: names} }
	missing, skip := named("town"), named("town")
	missing.Missing, skip.Skip = true, true
	for _, c := range []struct {
		want string
		row  int
		cfg  Config
	}{
		{`column "age": row 0: no value: fill it in, or remove the row`, 1, named("town")},
		{`column "age": row 0: NaN is not a finite number: replace it, or remove the row`, 2, named("town")},
		{`column "town": row 0: no label: fill it in, or remove the row`, 6, named("town")},
		{`column "price": row 0: no value: fill it in, or remove the row`, 4, missing},
		{`no rows: 1 skipped, the first one: column "age": row 0: no value: fill it in, or remove the row`, 1, skip},
		{`column "city" of Categories is none of x: there are "age", "town", "ids", "price"`, 0, named("city")},
		{`column "price" of Categories is none of x: there are "age", "town", "ids", "price"`, 0, named("price")},
		{`column "ids": holds lists or groups: want one value a row, or lists of numbers in x`, 0, named("ids", "town")},
	} {
		_, err := readBytes(write(t, rows[c.row:c.row+1], 1), c.cfg)
		require.EqualError(t, err, c.want)
	}
}

// Skip keeps labels and rows together, over the files of a folder, and names the file of the first row.
func TestSkipWithLabels(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, rows ...messy) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), write(t, rows, 2), 0o666))
	}
	bad := messyRow(2, "", 5, 1)
	file("a.parquet", messyRow(1, "no", 1, 1), messyRow(2, "yes", 2, 1), messyRow(3, "no", 3, 1))
	file("b.parquet", messyRow(4, "no", 4, 1), bad, messyRow(math.NaN(), "maybe", 3, 1))
	file("c.parquet", messyRow(math.Inf(-1), "never", 1, 1), messyRow(7, "yes", 8, 1))
	ds, err := Read(dir, Config{Columns: []string{"age", "price"}, Target: "town", Labels: true, Skip: true})
	require.NoError(t, err)
	require.Equal(t, []string{"no", "yes"}, ds.Classes)
	require.Equal(t, 3, ds.Skipped.Count)
	require.EqualError(t, ds.Skipped.First, filepath.Join(dir, "b.parquet")+`: column "town": row 1: no label: fill it in, or remove the row`)
	x, y := tensor.FromSlice(make([]float32, 10), 5, 2), tensor.FromSlice(make([]int64, 5), 5)
	require.NoError(t, ds.Batch([]int{0, 1, 2, 3, 4}, x, y))
	require.Equal(t, []float32{1, 1, 2, 2, 3, 3, 4, 4, 7, 8}, tensor.Data[float32](x))
	require.Equal(t, []int64{0, 1, 0, 0, 1}, tensor.Data[int64](y))
}

// The files of a folder come in the order of their names.
func TestFolder(t *testing.T) {
	type labeled struct {
		A    float64
		E    []float64 `parquet:"e,list"`
		Kind string
	}
	file := func(kinds ...string) []byte {
		var rows []labeled
		for i, kind := range kinds {
			rows = append(rows, labeled{float64(i), []float64{float64(i), 2}, kind})
		}
		return write(t, rows, 2)
	}
	files := map[string][]byte{"part-10.parquet": file("c", "a"), "part-2.parquet": file("b", "b", "c"),
		"_SUCCESS": nil, "Thumbs.db": nil, ".part.crc": nil,
		"part-1.parquet": write(t, []labeled{}, 2)}
	folder := func(more map[string][]byte) string {
		dir := t.TempDir()
		for _, all := range []map[string][]byte{files, more} {
			for name, content := range all {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o666))
			}
		}
		return dir
	}
	ds, err := Read(folder(nil), Config{Labels: true})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, ds.Classes)
	require.Equal(t, []string{"A", "e[0]", "e[1]"}, ds.Columns)
	x, y := tensor.FromSlice(make([]float32, 15), 5, 3), tensor.FromSlice(make([]int64, 5), 5)
	require.NoError(t, ds.Batch([]int{0, 1, 2, 3, 4}, x, y))
	require.Equal(t, []int64{2, 0, 1, 1, 2}, tensor.Data[int64](y))
	require.Equal(t, []float32{0, 0, 2, 1, 1, 2, 0, 0, 2, 1, 1, 2, 2, 2, 2}, tensor.Data[float32](x))

	for want, more := range map[string]map[string][]byte{
		`z.parquet: its columns are "a", "b", "y", and those of the first file "A", "e", "Kind"`: {"z.parquet": write(t, []row{}, 1)},
		"z.parquet: does not end as a Parquet file: truncated":                                   {"z.parquet": make([]byte, 20)},
		"notes.txt does not end in .parquet":                                                     {"notes.txt": nil},
		"z.parquet: its lists have other lengths than those of the first file": {
			"z.parquet": write(t, []labeled{{1, []float64{1}, "a"}}, 1)},
	} {
		_, err := Read(folder(more), Config{Labels: true})
		require.ErrorContains(t, err, want)
	}
	dir := folder(nil)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "year=2020"), 0o777))
	_, err = Read(dir, Config{})
	require.ErrorContains(t, err, "year=2020 is a folder: want files alone")
	_, err = Read(t.TempDir(), Config{})
	require.ErrorContains(t, err, "has no files that end in .parquet")
}

type rank struct{ rank, size int }

func (r rank) Rank() int { return r.rank }
func (r rank) Size() int { return r.size }

// write returns a Parquet file of rows, with row groups of the given size.
func write[T any](t testing.TB, rows []T, group int, options ...pq.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pq.NewGenericWriter[T](&b, options...)
	for len(rows) > 0 {
		n := min(group, len(rows))
		_, err := w.Write(rows[:n])
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		rows = rows[n:]
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

type row struct {
	A float64 `parquet:"a"`
	B *int32  `parquet:"b"`
	Y float32 `parquet:"y"`
}

// Every row comes once an epoch, on any number of ranks.
func TestRanks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 7, 50} {
		var rows []row
		var want [][]float64
		for i := range n {
			b := int32(r.IntN(1000))
			rows = append(rows, row{float64(i), &b, r.Float32()})
			want = append(want, []float64{float64(i), float64(b), float64(rows[i].Y)})
		}
		file := filepath.Join(t.TempDir(), "t.parquet")
		require.NoError(t, os.WriteFile(file, write(t, rows, 20, pq.Compression(&pq.Snappy)), 0o666))
		ds, err := Read(file, Config{})
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, ds.Columns)
		for ranks := 1; ranks <= 3; ranks++ {
			var got [][]float64
			for i := range ranks {
				l := data.NewLoader(ds, data.Config{Batch: 4, Shuffle: true, Sharder: rank{i, ranks}})
				for _, b := range l.Epoch(t.Context(), 1) {
					for j, y := range tensor.Floats(b.Y) {
						got = append(got, append(tensor.Floats(b.X)[2*j:2*j+2:2*j+2], y))
					}
				}
				require.NoError(t, l.Err())
			}
			slices.SortFunc(got, slices.Compare)
			assert.Equal(t, want, got, "%d ranks", ranks)
		}
	}
}

func readBytes(b []byte, cfg Config) (*data.Table, error) {
	t := newTable(cfg, 1)
	if err := t.add(bytes.NewReader(b), int64(len(b))); err != nil {
		return nil, err
	}
	return t.whole()
}

// The index that pandas writes is a column like others, and the footer says which. A file without this word is refused.
func TestPandasIndex(t *testing.T) {
	type indexed struct {
		A, B  float64
		Index int64 `parquet:"__index_level_0__"`
	}
	rows := []indexed{{1, 2, 0}, {3, 4, 1}}
	for meta, want := range map[string]string{
		`{"index_columns": ["__index_level_0__"], "columns": []}`:       "",
		`{"index_columns": [{"kind": "range", "start": 0, "stop": 2}]}`: `column 3, "__index_level_0__", looks like the index of pandas`,
		`{"index_columns": "__index_level_0__"}`:                        `column 3, "__index_level_0__", looks like the index of pandas`,
		``:                                                              `column 3, "__index_level_0__", looks like the index of pandas`,
		`{"index_columns": ["B", "__index_level_0__"]}`:                 "want one for x and one for the target",
	} {
		b := write(t, rows, 2, pq.KeyValueMetadata("pandas", meta))
		ds, err := readBytes(b, Config{})
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"A"}, ds.Columns)
		require.Equal(t, "B", ds.Target)
		ds, err = readBytes(b, Config{Columns: []string{"__index_level_0__"}, Target: "A"})
		require.NoError(t, err, "named")
		require.Equal(t, []string{"__index_level_0__"}, ds.Columns)
	}
}

func TestValueErrors(t *testing.T) {
	one := int32(1)
	good := row{1, &one, 1}
	for want, bad := range map[string]row{
		`column "a": row 5: NaN is not a finite number: replace it, or remove the row`:  {math.NaN(), &one, 1},
		`column "a": row 5: -Inf is not a finite number: replace it, or remove the row`: {math.Inf(-1), &one, 1},
		`column "a": row 5: 1e+39 is out of the range of float32: divide the column`:    {1e39, &one, 1},
		`column "b": row 5: no value: fill it in, or remove the row`:                    {1, nil, 1},
		`column "y": row 5: NaN is not a finite number: replace it, or remove the row`:  {1, &one, float32(math.NaN())},
	} {
		_, err := readBytes(write(t, []row{good, good, good, good, good, bad, good}, 4), Config{})
		assert.EqualError(t, err, want)
	}
	_, err := readBytes(write(t, []row{}, 4), Config{})
	assert.EqualError(t, err, "no rows")
	_, err = readBytes(write(t, []struct{ A []int32 }{{[]int32{1}}}, 4), Config{})
	assert.EqualError(t, err, "1 columns: want one for x and one for the target")
}

// A file that is cut off anywhere is an error. One with a wrong byte is an error or has all its rows: it never panics, and never has fewer
// rows.
func TestBroken(t *testing.T) {
	one, rows := int32(1), []row{}
	for i := range 20 {
		rows = append(rows, row{float64(i), &one, float32(i)})
	}
	whole := write(t, rows, 15)
	for n := range whole {
		_, err := readBytes(whole[:n], Config{})
		require.Error(t, err, "%d bytes", n)
	}
	broken := 0
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x55
		ds, err := readBytes(b, Config{})
		if err != nil {
			broken++
			continue
		}
		require.Equal(t, 20, ds.Len(), "byte %d", i)
	}
	t.Logf("%d of %d wrong bytes are errors", broken, len(whole))
	assert.Greater(t, broken, len(whole)/2)
}

// Lengths that are larger than the file are errors before memory is allocated for them.
func TestHostileLengths(t *testing.T) {
	footer := func(b ...byte) []byte {
		file := append([]byte("PAR1"), b...)
		return append(append(file, byte(len(b)), 0, 0, 0), "PAR1"...)
	}
	for want, b := range map[string][]byte{
		"11 bytes are no Parquet file":                         []byte("PAR1\x00\x00\x00PAR1"),
		"does not end as a Parquet file":                       []byte("PAR1PAR1PAR2"),
		"a footer of 4294967295 bytes: the file has 12 in all": []byte("PAR1\xff\xff\xff\xffPAR1"),
		"the footer: at byte 1: a length beyond the end":       footer(0x15),
		"the footer: at byte 7: a length beyond the end":       footer(0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0),
		"the footer: at byte 6: a length beyond the end":       footer(0x28, 0xff, 0xff, 0xff, 0xff, 0x07, 0),
		"the footer: at byte 1: no type 14":                    footer(0x1e, 0),
		"the footer: at byte 1: a map, which no header has":    footer(0x1b, 0),
		"nested too deep":                                      footer(bytes.Repeat([]byte{0x1c}, 40)...),
	} {
		_, err := readBytes(b, Config{})
		assert.ErrorContains(t, err, want)
	}
}

// For any file, the result is an error or a table with as many rows as the library says. The library's panics count as errors.
func FuzzRead(f *testing.F) {
	one := int32(1)
	for _, codec := range []pq.WriterOption{pq.Compression(&pq.Uncompressed), pq.Compression(&pq.Snappy), pq.DataPageVersion(1)} {
		f.Add(write(f, []row{{1, &one, 2}, {3, &one, 4}, {5, &one, 6}}, 2, codec))
	}
	f.Add(write(f, []struct{ A, B, C string }{{"a", "b", "c"}}, 2))
	f.Add(write(f, []struct {
		A []float32 `parquet:",list"`
		B float32
	}{{[]float32{1, 2}, 3}, {[]float32{4, 5}, 6}}, 2))
	for _, codec := range []pq.WriterOption{pq.Compression(&pq.Gzip), pq.Compression(&pq.Brotli), pq.Compression(&pq.Zstd),
		pq.Compression(&pq.Lz4Raw)} {
		good, bad := inflating(f, codec, 2)
		f.Add(good)
		f.Add(bad)
	}
	for _, b := range bombs(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, cfg := range []Config{{}, {Labels: true}, {Missing: true}, {Skip: true, Missing: true}} {
			var ds *data.Table
			var err error
			reliability.Bounded(t, len(b), func() { ds, err = readBytes(b, cfg) })
			if err != nil {
				continue
			}
			file, err := pq.OpenFile(bytes.NewReader(b), int64(len(b)), pq.SkipPageIndex(true), pq.SkipBloomFilters(true))
			require.NoError(t, err)
			require.Equal(t, file.NumRows(), int64(ds.Len()+ds.Skipped.Count))
		}
	})
}

package docs

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// own are the changes to the tutorial's program for own data that make it read other files. OPTIONS is a config of the reader as JSON.
var own = map[string]string{
	"csv":     opens("data.CSVConfig", `data.CSV("table.csv", options)`, ""),
	"jsonl":   opens("data.JSONLConfig", `data.JSONL("table.jsonl", options)`, ""),
	"labels":  opens("data.CSVConfig", `data.CSV("table.csv", options)`, "") + classifies("len(table.Columns)", "tape.Input(b.X)"),
	"parquet": opens("parquet.Config", `parquet.Read("table", options)`, "parquet") + classifies("len(table.Columns)", "tape.Input(b.X)"),
	"photos": opens("images.Config", `images.Open("photos", options)`, "images") +
		classifies("3*4*4", "nn.Flatten{}.Forward(tape.Input(b.X))"),
}

// opens is the part of a diff that opens a dataset, perhaps of a package below data.
func opens(config, call, imported string) string {
	if imported != "" {
		imported = "+\t\"github.com/ringo-ml/ringo/data/" + imported + "\"\n"
	}
	return `@@
 	"context"
+	"encoding/json"
@@
 	"github.com/ringo-ml/ringo/data"
` + imported + `@@
-	table, err := data.CSV("table.csv", data.CSVConfig{})
+	var options ` + config + `
+	if err := json.Unmarshal([]byte(os.Getenv("OPTIONS")), &options); err != nil {
+		return err
+	}
+	table, err := ` + call + "\n"
}

// classifies is the part that trains a classifier, on parts of as many numbers as it says.
func classifies(inputs, x string) string {
	return `@@
-	model := nn.NewLinear(len(table.Columns), 1)
+	model := nn.NewLinear(` + inputs + `, len(table.Classes))
@@
-	for epoch := range 100 {
+	for epoch := range 20 {
@@
-			loss := nn.MSE(model.Forward(tape.Input(b.X)), b.Y)
+			loss := nn.CrossEntropy(model.Forward(` + x + "), b.Y)\n"
}

// files are those of a folder, with their names.
type files map[string]string

// with returns the files and another one, or without the one that it gives no text.
func (f files) with(name, text string) files {
	all := maps.Clone(f)
	if all[name] = text; text == "" {
		delete(all, name)
	}
	return all
}

// quirk is a run of a program.
type quirk struct {
	options string // of the reader
	files   files
	says    []string // of the error; none: it prints what the first run of the program prints
}

// runs starts a program on all files, in the short form on the first few: those after them show errors that tests of the packages see, too.
// The first ones are good.
func runs(t *testing.T, program string, few int, list []quirk) {
	t.Helper()
	good := ""
	if !reliability.Long(t) {
		list = list[:few]
	}
	for i, q := range list {
		t.Setenv("OPTIONS", q.options)
		out, err := start(t, program, q.files)
		switch {
		case i == 0:
			require.NoError(t, err, out)
			require.Contains(t, out, "  loss ")
			good = out
		case q.says == nil:
			require.NoError(t, err, "%d: %s", i, out)
			assert.Equal(t, good, out, "%s, %d", program, i)
		default:
			require.Error(t, err, "%s, %d: %s", program, i, out)
			for _, words := range q.says {
				assert.Contains(t, out, words, "%s, %d", program, i)
			}
		}
	}
}

// What a server or Git has in place of a file, and what their errors say.
const (
	pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
	sign    = "<!DOCTYPE html>\n<html><body>Sign in</body></html>\n"
)

var (
	isPointer = []string{"this is a Git LFS pointer", "run git lfs pull in its folder"}
	isPage    = []string{"this is a web page", "get the file itself, with a login if it needs one"}
)

func TestLongOwnTables(t *testing.T) { reliability.AsLong(t, TestOwnTables) }

// A stranger's table as pandas, Excel and old programs write it gives the same training, or an error with the way out.
func TestOwnTables(t *testing.T) {
	const rows, header = "1,2,3\n2,1,5\n0.5,1,4\n1,-2,0.25\n", `{"Header": true}`
	csv := func(text string) files { return files{"table.csv": text} }
	with := func(old, text string) string { return strings.ReplaceAll(rows, old, text) }
	runs(t, "csv", 2, []quirk{
		{"{}", csv(rows), nil},
		{"{}", csv("\xef\xbb\xbf" + with("\n", "\r")), nil},
		{`{"Comma": 59}`, csv("\xef\xbb\xbf" + with(",", ";")), nil},
		{`{"Comma": 9, "Header": true}`, csv("a\tb\ty\r\n" + strings.NewReplacer(",", "\t", "\n", "\r\n").Replace(rows)), nil},
		{`{"Header": true, "Columns": ["a", "b"], "Target": "y"}`, csv(",a,b,y\n0," + strings.TrimSuffix(with("\n", "\n7,"), "7,")), nil},
		{header, csv(",a,b,y\n0,1,2,3\n"), []string{"table.csv: line 1: column 1", "index of pandas", "write the file with index=False"}},
		{header, csv("Unnamed: 0,a,y\n0,1,2\n"), []string{"index of pandas", "write the file with index=False, or name the columns"}},
		{`{"Comma": 59}`, csv("1,5;2;3\n"), []string{"table.csv: line 1, column 1", `"1,5" is not a number: write a decimal point`}},
		{"{}", csv(with(",", ";")), []string{"table.csv: line 1 has one field (CSVConfig.Comma is ','", "set it to ';'"}},
		{"{}", csv("a,b,y\n" + rows), []string{`line 1, column 1: "a" is not a number`, "set CSVConfig.Header"}},
		{"{}", csv(with("-2", "")), []string{"line 4, column 2: no value: fill it in, or remove the row"}},
		{"{}", csv(with("-2", "nan")), []string{`line 4, column 2: "nan" is not a finite number: replace it`}},
		{"{}", csv(with("-2", "2\"")), []string{"line 4", "a field with a quote in it needs quotes around it, and its quote twice"}},
		{"{}", csv("\xff\xfe1\x00,\x002\x00\n\x00"), []string{"table.csv: the text is UTF-16", "iconv -f utf-16 -t utf-8 FILE"}},
		{"{}", csv(pointer), isPointer},
		{"{}", csv(sign), isPage},
	})
	runs(t, "labels", 2, []quirk{
		{`{"Labels": true}`, csv("1,2,kät\n1,3,dog\n"), nil},
		{`{"Labels": true}`, csv("1,2,k\xe4t\n1,3,dog\n"), []string{`the label "k\xe4t" is no UTF-8`, "iconv -f latin1 -t utf-8 FILE"}},
		{`{"Labels": true}`, csv("1,2,nan\n1,3,dog\n"), []string{"stands for a missing label in pandas: remove the row, or give Classes"}},
	})
	const lines = "{\"a\": 1, \"y\": 3}\n{\"a\": 2, \"y\": 5}\n"
	json := func(text string) files { return files{"table.jsonl": text} }
	runs(t, "jsonl", 2, []quirk{
		{"{}", json(lines), nil},
		{"{}", json("\xef\xbb\xbf" + strings.NewReplacer("\n", "\r", `{"a": 2, "y": 5}`, `{"y":5.0,"a":2}`).Replace(lines)), nil},
		{"{}", json("[" + lines + "]"), []string{"line 1: want an object", `df.to_json(file, orient="records", lines=True)`}},
		{"{}", json(lines + "{\"a\": 1, \"y\": null}\n"), []string{`line 3, "y": no value: fill it in, or remove the row`}},
		{"{}", json(lines + "{\"a\": [1], \"y\": 1}\n"), []string{`line 3, "a": a list or an object`, "Columns and Target can name others"}},
		{"{}", json(sign), isPage},
	})
}

func TestLongOwnParquet(t *testing.T) { reliability.AsLong(t, TestOwnParquet) }

// So does a stranger's folder of Parquet files, as pandas and Spark leave it.
func TestOwnParquet(t *testing.T) {
	const options = `{"Columns": ["f64", "i8"], "Target": "kind", "Labels": true}`
	table := read(t, "data/parquet/testdata/zstd.parquet")
	good := files{"table/1.parquet": table}
	runs(t, "parquet", 3, []quirk{
		{options, good, nil},
		{options, good.with("table/2.csv", "1,2"), []string{"2.csv does not end in .parquet: remove it, or rename it"}},
		{options, files{"table/kind=ant/1.parquet": table}, []string{"kind=ant is a folder", "to_parquet writes them without partition_cols"}},
		{options, good.with("table/_SUCCESS", " ").with("table/.1.parquet.crc", " ").with("table/Thumbs.db", " "), nil},
		{options, files{"table/a.parquet": read(t, "data/parquet/testdata/lz4.parquet")}, nil},
		{options, good.with("table/2.parquet", table[:len(table)/2]), []string{"2.parquet: does not end as a Parquet file", "get it again"}},
		{options, good.with("table/2.parquet", pointer), isPointer},
		{options, good.with("table/2.parquet", sign), isPage},
		{options, good.with("table/2.parquet", read(t, "data/parquet/testdata/types.parquet")),
			[]string{"2.parquet: its columns are ", "a folder has files of one table"}},
		{`{"Columns": ["day"], "Target": "kind", "Labels": true}`, good, []string{`column "day": holds DATE`, "pd.to_datetime("}},
		{`{"Columns": ["f64"], "Target": "kind"}`, good, []string{`column "kind": holds STRING: want numbers, or Labels`}},
		{`{"Columns": ["u32"], "Target": "kind", "Labels": true}`, good, []string{"4294967295 does not fit float32", "divide the column"}},
	})
}

// picture is a PNG of 4 x 2 pixels in grays, or, as some cameras write it, of 2 x 4 with an EXIF that says how to turn it.
func picture(t *testing.T, dark uint8, lying bool) string {
	img := image.NewGray(image.Rect(0, 0, 4, 2))
	if lying {
		img = image.NewGray(image.Rect(0, 0, 2, 4))
	}
	for y := range 2 {
		for x := range 4 {
			if gray := (color.Gray{Y: uint8(20*x+90*y) / dark}); lying {
				img.SetGray(y, 3-x, gray)
			} else {
				img.SetGray(x, y, gray)
			}
		}
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	if !lying {
		return b.String()
	}
	chunk := "eXIfII*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06" + strings.Repeat("\x00", 7) // 6: turn it to the right
	exif := string(binary.BigEndian.AppendUint32(nil, uint32(len(chunk)-4))) + chunk
	exif += string(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(chunk))))
	const header = 33 // bytes
	return b.String()[:header] + exif + b.String()[header:]
}

func TestLongOwnPictures(t *testing.T) { reliability.AsLong(t, TestOwnPictures) }

// So do a stranger's pictures: the rank that meets a broken one says so, not that it is out of step with others.
func TestOwnPictures(t *testing.T) {
	const options = `{"Height": 4, "Width": 4}`
	up := picture(t, 1, false)
	good := files{"photos/ant/1.png": up, "photos/bee/1.png": picture(t, 3, false)}
	bad := func(name, text string, says ...string) quirk {
		return quirk{options, good.with("photos/bee/"+name, text), append([]string{name}, says...)}
	}
	runs(t, "photos", 4, []quirk{
		{options, good, nil},
		{options, good.with("photos/ant/Thumbs.db", " ").with("photos/.DS_Store", " ").with("photos/__MACOSX/ant/._1.png", " "), nil},
		{options, good.with("photos/ant/1.png", picture(t, 1, true)), nil},
		bad("2.png", "not a picture\n", "neither PNG, JPEG, GIF, BMP, TIFF nor WebP: get it again, or remove it"),
		bad("2.png", up[:len(up)-30], "png: invalid format", "get it again, or remove it"),
		bad("2.jpg", "\x00\x00\x00\x18ftypheic", "HEIC or AVIF: convert it to PNG, such as with ImageMagick: magick FILE FILE.png"),
		bad("2.png", pointer, isPointer...),
		bad("2.jpg", sign, isPage...),
		bad("notes.txt", " ", "does not have the extension of an image: remove it, or name it with one of"),
		{options, good.with("photos/2.png", up), []string{"2.png lies in no class's folder: move it to one"}},
		{options, good.with("photos/cat/Thumbs.db", " "), []string{"cat has no images: remove it, or put some there"}},
	})
}

func TestLongOwnModel(t *testing.T) { reliability.AsLong(t, TestOwnModel) }

// So does a model of Hugging Face's form that a stranger downloads and finetunes; what comes out can be finetuned again.
func TestOwnModel(t *testing.T) {
	dir := t.TempDir()
	out, err := startIn(t, dir, "finetune", files{"model/tokenizer.json": read(t, "data/tokenizer/testdata/gpt2/tokenizer.json")}, "-new")
	require.NoError(t, err, out)
	const text = "The rays of light are very small bodies.\n"
	good := files{"text.txt": strings.Repeat(text, 9)}
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		content, err := os.ReadFile(filepath.Join(dir, "model", name))
		require.NoError(t, err)
		good["model/"+name] = string(content)
	}
	config, weights := good["model/config.json"], good["model/model.safetensors"]
	bare := good.with("model/model.safetensors", "")
	runs(t, "finetune", 3, []quirk{
		{"", good, nil},
		{"", bare.with("model/pytorch_model.bin", "PK"), []string{"ringo ckpt convert model/pytorch_model.bin NEW", "mv NEW/model* model puts"}},
		{"", good.with("model/tokenizer.json", ""), []string{`AutoTokenizer.from_pretrained("model").save_pretrained("model")`}},
		{"", good.with("model/config.json", "\xef\xbb\xbf"+config), nil},
		{"", good.with("text.txt", "\xef\xbb\xbf"+strings.ReplaceAll(good["text.txt"], "\n", "\r\n")), nil},
		{"", good.with("model/pytorch_model.bin", "PK").with("model/README.md", "# A model").with("model/.gitattributes", " "), nil},
		{"", good.with("model/model.safetensors", pointer), append(isPointer, "model.safetensors")},
		{"", good.with("model/model.safetensors", sign), append(isPage, "model.safetensors")},
		{"", good.with("model/model.safetensors", weights[:len(weights)/2]), []string{"model.safetensors", "the file is cut off, get it again"}},
		{"", bare.with("model/pytorch_model.bin.index.json", "{}"), []string{"write it again in Python", "save_pretrained of transformers"}},
		{"", good.with("model/config.json", pointer), isPointer},
		{"", good.with("model/config.json", ""), []string{"config.json", "save_pretrained of transformers writes it"}},
		{"", good.with("model/config.json", strings.Replace(config, `"llama"`, `"bert"`, 1)), []string{"there are gpt2, llama, "}},
		{"", good.with("model/tokenizer.json", sign), isPage},
		{"", good.with("text.txt", "caf\xe9\n"), []string{"text.txt: line 1 is no UTF-8", "iconv -f latin1 -t utf-8 FILE"}},
	})
	losses := []float64{}
	for _, model := range []string{"model", filepath.Join(dir, "out", "step-00000004")} {
		to := t.TempDir()
		if model == "model" {
			to = dir
		}
		out, err := startIn(t, to, "finetune", files{"text.txt": good["text.txt"]}, "-model", model)
		require.NoError(t, err, out)
		losses = append(losses, numbers(t, out, `  loss (\S+)`)...)
	}
	require.Len(t, losses, 2)
	assert.Less(t, losses[1], losses[0]-0.01)
}

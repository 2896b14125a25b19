package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// write creates a safetensors file from a header and data.
func write(t *testing.T, dir, name, header string, data []byte) {
	t.Helper()
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(append(b, header...), data...), 0o666))
}

// edit replaces a part of a file and returns the old content.
func edit(t *testing.T, file, old, new string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte(old), []byte(new), 1), 0o666))
}

// rehash changes ringo.json and updates its hash, as an attacker would.
func rehash(t *testing.T, path string, change func(m *storage.Manifest)) {
	t.Helper()
	file := filepath.Join(path, storage.ManifestName)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	m, err := storage.DecodeManifest(text)
	require.NoError(t, err)
	change(m)
	text, err = m.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o666))
}

// reindex changes the index and updates its hash.
func reindex(t *testing.T, path, old, new string) {
	t.Helper()
	edit(t, filepath.Join(path, storage.IndexName), old, new)
	text, err := os.ReadFile(filepath.Join(path, storage.IndexName))
	require.NoError(t, err)
	rehash(t, path, func(m *storage.Manifest) { m.IndexHash = storage.Sum(text) })
}

const (
	broken1 = "model-00001-of-00002.safetensors"
	broken2 = "model-00002-of-00002.safetensors"
)

// breaks are the ways to damage a folder, with the expected error.
var breaks = map[string]struct {
	do   func(t *testing.T, path string)
	says []string
}{
	"header of 2^63": {func(t *testing.T, path string) {
		f, err := os.OpenFile(filepath.Join(path, broken1), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, 1<<63), 0)
		require.NoError(t, errors.Join(err, f.Close()))
	}, []string{broken1, "a header of 9223372036854775808 bytes"}},
	"overlap": {func(t *testing.T, path string) {
		edit(t, filepath.Join(path, broken2), `"shape":[3],"data_offsets":[0,24]`, `"shape":[1],"data_offsets":[0,8] `)
	}, []string{broken2, "blocks.0.qkv.weight", "leave a gap"}},
	"offsets that reach into the next": {func(t *testing.T, path string) {
		edit(t, filepath.Join(path, broken2), `"shape":[3],"data_offsets":[0,24]`, `"shape":[9],"data_offsets":[0,72]`)
	}, []string{broken2, "overlap"}},
	"out of range": {func(t *testing.T, path string) {
		edit(t, filepath.Join(path, broken1), `"shape":[17,16],"data_offsets":[0,1088]`, `"shape":[17,17],"data_offsets":[0,1156]`)
	}, []string{broken1, "tok.weight", "the file is cut off"}},
	"shape product": {func(t *testing.T, path string) {
		write(t, path, broken1, `{"tok.weight":{"dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[0,0]}}`, nil)
	}, []string{broken1, "tok.weight", "overflows"}},
	"wrong hash": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model[0].Pieces[0].SHA256 = strings.Repeat("0", 64) })
	}, []string{broken1, `"tok.weight"`, "SHA-256"}},
	"truncated": {func(t *testing.T, path string) {
		info, err := os.Stat(filepath.Join(path, broken1))
		require.NoError(t, err)
		require.NoError(t, os.Truncate(filepath.Join(path, broken1), info.Size()-1))
	}, []string{broken1, "the file is cut off"}},
	"missing file": {func(t *testing.T, path string) { require.NoError(t, os.Remove(filepath.Join(path, broken1))) },
		[]string{broken1, "no such file"}},
	"trailing garbage": {func(t *testing.T, path string) {
		f, err := os.OpenFile(filepath.Join(path, broken1), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("x")
		require.NoError(t, errors.Join(err, f.Close()))
	}, []string{broken1, "trailing garbage"}},
	"newer version": {func(t *testing.T, path string) { rehash(t, path, func(m *storage.Manifest) { m.Version = 2 }) },
		[]string{storage.ManifestName, "format version 2; this program reads 1 to 1"}},
	"two steps mixed": {func(t *testing.T, path string) {
		other := save(t, t.TempDir(), layouts["fsdp2"], 5)
		text, err := os.ReadFile(filepath.Join(other, broken1))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(path, broken1), text, 0o666))
	}, []string{broken1, `"tok.weight"`, "SHA-256"}},
	"no ringo.json": {func(t *testing.T, path string) {
		for _, name := range []string{storage.ManifestName, storage.IndexName} {
			require.NoError(t, os.Remove(filepath.Join(path, name)))
		}
	}, []string{"no complete checkpoint"}},
	"file not in the folder": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Files[0].Name, m.Model[0].File = "../x.safetensors", "../x.safetensors" })
	}, []string{`"../x.safetensors" is not the name of a file in the folder`}},
	"index with ../": {func(t *testing.T, path string) { reindex(t, path, broken1, "../"+broken1) },
		[]string{storage.IndexName, "is not the name of a file"}},
	"index with an absolute path": {func(t *testing.T, path string) { reindex(t, path, broken1, "/etc/passwd") },
		[]string{storage.IndexName, `"/etc/passwd" is not the name of a file`}},
	"link": {func(t *testing.T, path string) {
		file := filepath.Join(path, broken1)
		require.NoError(t, os.Rename(file, filepath.Join(path, "..", "x")))
		require.NoError(t, os.Symlink("../x", file))
	}, []string{broken1, "is a link"}},
	"a name that the file has not": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model[0].Name = "tok.height" })
	}, []string{broken1, `"tok.height"`, "has it in this file, which has not"}},
	"a tensor that the list has not": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model = m.Model[1:] })
	}, []string{broken1, `"tok.weight"`, "does not list it"}},
	"the same tensor twice": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model = append(m.Model, m.Model[0]) })
	}, []string{broken1, `"tok.weight"`, "which has not"}},
	"a piece missing": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model[0].Pieces = m.Model[0].Pieces[1:] })
	}, []string{`"tok.weight"`, "nobody has elements 0 to 136"}},
	"a piece twice": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model[0].Pieces[1] = m.Model[0].Pieces[0] })
	}, []string{`"tok.weight"`, "twice"}},
	"a piece out of bounds": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model[0].Pieces[1].Flat[1] = 1 << 62 })
	}, []string{`"tok.weight"`, "elements 136 to 4611686018427387904"}},
	"another shape": {func(t *testing.T, path string) {
		rehash(t, path, func(m *storage.Manifest) { m.Model[0].Shape = []int{16, 17} })
	},
		[]string{`"tok.weight"`, "F32[17 16]", "F32[16 17]"}},
	"unlisted file": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(filepath.Join(path, "x"), nil, 0o666))
	},
		[]string{"x: the file is not part"}},
	"index damaged": {func(t *testing.T, path string) {
		edit(t, filepath.Join(path, storage.IndexName), "tok.weight", "tok.wEight")
	},
		[]string{storage.IndexName, "SHA-256"}},
	"ringo.json not ours": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(filepath.Join(path, storage.ManifestName), []byte("{}"), 0o666))
	}, []string{storage.ManifestName, "not a ringo.json"}},
}

// TestBroken: Verify finds every damage. Load refuses it with the file, the tensor and the reason, but ignores unlisted
// files.
func TestBroken(t *testing.T) {
	whole := save(t, t.TempDir(), layouts["fsdp2"], 2)
	for name, c := range breaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), storage.StepName(2))
			require.NoError(t, os.CopyFS(path, os.DirFS(whole)))
			c.do(t, path)
			v := mustVerify(t, path, inspect.VerifyConfig{})
			require.False(t, v.OK)
			for _, s := range c.says {
				require.Contains(t, strings.Join(v.Errors, "\n"), s)
			}
			err := tryRanks(2, func(g *dist.Group) error {
				st := newState(t, g, layouts["fsdp2"], 0)
				st.Extra = nil
				_, err := Load(context.Background(), g, path, st, LoadConfig{})
				return err
			})
			if name == "unlisted file" {
				require.NoError(t, err)
				return
			}
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

// TestRenamed: a folder that got the name of another step is refused, as it would hide or repeat steps.
func TestRenamed(t *testing.T) {
	path := save(t, t.TempDir(), layouts["ddp1"], 2)
	other := filepath.Join(filepath.Dir(path), storage.StepName(900))
	require.NoError(t, os.Rename(path, other))
	want := "ringo.json is of step 2: the folder had another name, which is step-00000002"
	require.Equal(t, []string{want}, mustVerify(t, other, inspect.VerifyConfig{}).Errors)
	_, err := Latest(filepath.Dir(path))
	require.ErrorContains(t, err, want)
	free := filepath.Join(filepath.Dir(path), "best")
	require.NoError(t, os.Rename(other, free))
	require.True(t, mustVerify(t, free, inspect.VerifyConfig{}).OK, "other names are free")
}

// TestBrokenIndex is about folders of other programs, which have no hashes.
func TestBrokenIndex(t *testing.T) {
	one := `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`
	for text, want := range map[string]string{
		`{"weight_map":{"a":"m.safetensors","b":"m.safetensors"}}`: "",
		`{"weight_map":{"a":"m.safetensors"}}`: `m.safetensors: tensor "b": ` +
			storage.IndexName + " does not list it",
		`{"weight_map":{"a":"m.safetensors","b":"m.safetensors","c":"m.safetensors"}}`: `m.safetensors: tensor "c"`,
		`{"weight_map":{"a":"m.safetensors","a":"m.safetensors","b":"m.safetensors"}}`: `tensor "a": the name is there twice`,
		`{"weight_map":{"a":"../m.safetensors"}}`:                                      `"../m.safetensors" is not the name`,
		`{"weight_map":{"a":"/m.safetensors"}}`:                                        `"/m.safetensors" is not the name`,
		`{"weight_map":{"a":"c:\\m.safetensors"}}`:                                     `is not the name`,
		`{"weight_map":{"a":"n.safetensors"}}`:                                         "n.safetensors",
		`{"weight_map":{"a":"l.safetensors"}}`:                                         "is a link",
		`{"weight_map":{"a":5}}`:                                                       `tensor "a": the file is 5`,
		`{"weight_map":5}`:                                                             "weight_map is no object",
		`{`:                                                                            storage.IndexName,
	} {
		dir := t.TempDir()
		write(t, dir, "m.safetensors", one, []byte{1, 2})
		require.NoError(t, os.Symlink("m.safetensors", filepath.Join(dir, "l.safetensors")))
		if !strings.Contains(text, "l.safe") {
			require.NoError(t, os.Remove(filepath.Join(dir, "l.safetensors")))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, storage.IndexName), []byte(text), 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), nil, 0o666))
		v := mustVerify(t, dir, inspect.VerifyConfig{})
		if want == "" {
			require.True(t, v.OK, v.Errors)
			require.NotEmpty(t, v.Unchecked)
			continue
		}
		require.Contains(t, strings.Join(v.Errors, "\n"), want, text)
	}
}

// TestBeingWritten: a folder with a temporary name is not read.
func TestBeingWritten(t *testing.T) {
	path := save(t, t.TempDir(), layouts["ddp1"], 2)
	tmp := filepath.Join(filepath.Dir(path), storage.TmpPrefix+"step-00000002-ABCDEFGH")
	require.NoError(t, os.Rename(path, tmp))
	require.Contains(t, mustVerify(t, tmp, inspect.VerifyConfig{}).Errors[0], "is being written")
	_, err := Latest(filepath.Dir(path))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestListBombs has lists of tensors that are far larger in memory than in the file; in the short form, one of each list.
func TestListBombs(t *testing.T) {
	data := append(binary.LittleEndian.AppendUint64(nil, 8), "{}      "...)
	many := func(n int, entry string) string { return strings.TrimSuffix(strings.Repeat(entry, n), ",") }
	var names strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&names, `"%x":"%x.safetensors",`, i, i)
	}
	for name, c := range map[string]struct{ body, idx, want string }{
		"no entries":    {`{"version":1,"model":[` + many(1_000_000, `null,`) + `]}`, `{}`, "ringo.json: it would take more than"},
		"empty entries": {`{"version":1,"model":[` + many(500_000, `{},`) + `]}`, `{}`, "ringo.json: it would take more than"},
		"pieces":        {`{"version":1,"model":[{"pieces":[` + many(500_000, `{},`) + `]}]}`, `{}`, "ringo.json: it would take more than"},
		"an index":      {``, `{"weight_map":{` + many(500_000, `"":"",`) + `}}`, "index.json: it would take more than"},
		"many problems": {``, `{"weight_map":{` + strings.TrimSuffix(names.String(), ",") + `}}`, "no such file"},
		"a long name": {``, `{"weight_map":{"` + strings.Repeat("x", 1_000_000) + `":"model.safetensors"}}`,
			`model.safetensors: tensor "xxx`},
		"a long shape": {`{"version":1,"files":[{"name":"model.safetensors"}],"model":[{"name":"` + strings.Repeat("x", 1_000_000) +
			`","file":"model.safetensors"}]}`, `{}`, `model.safetensors: tensor "xxx`},
	} {
		if strings.HasSuffix(name, " entries") && !reliability.Long(t) {
			continue
		}
		text := bytes.Join([][]byte{storage.ManifestHead, []byte(storage.Sum([]byte(c.body))), storage.ManifestBody, []byte(c.body),
			storage.ManifestEnd}, nil)
		dir := t.TempDir()
		for name, b := range map[string][]byte{"model.safetensors": data, storage.ManifestName: text, storage.IndexName: []byte(c.idx)} {
			if len(c.body) > 0 || name != storage.ManifestName {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
			}
		}
		reliability.Bounded(t, len(text)+len(c.idx)+len(data), func() {
			v := mustVerify(t, dir, inspect.VerifyConfig{})
			require.Contains(t, strings.Join(v.Errors, "\n"), c.want, name)
			require.LessOrEqual(t, len(v.Errors), 1010, name)
			require.Less(t, len(v.Errors[0]), 1000, name)
		})
	}
}

func TestLongListBombs(t *testing.T) { reliability.AsLong(t, TestListBombs) }

// FuzzManifest: whatever ringo.json and the index contain, Verify returns.
func FuzzManifest(f *testing.F) {
	p, _, err := newPlan([]localPlan{{Optimizer: true, Items: []writeItem{{Model: true, Name: "a", DType: "F32", Shape: []int{2, 3}}}}},
		Rules{"a": {Dim: 1}}, 100)
	require.NoError(f, err)
	text, err := p.Manifest.Encode()
	require.NoError(f, err)
	m, err := storage.DecodeManifest(text)
	require.NoError(f, err)
	require.Equal(f, &p.Manifest, m)
	body := text[len(storage.ManifestHead)+64+len(storage.ManifestBody) : len(text)-len(storage.ManifestEnd)]
	f.Add(string(body), `{"weight_map":{"a":"model.safetensors"}}`)
	f.Add(
		`{"version":1,"model":[{"name":"a","dtype":"F32","shape":[2,3],"file":"model.safetensors","pieces":[{"flat":[0,-1]},{"boxes":[{"Lo":[0,0],"Hi":[2,9]}]}]}]}`,
		`{}`)
	f.Add(
		`{"version":1,"model":[{"name":"a","dtype":"F32","shape":[2,3],"transposed":true,"unit":"u","place":-1,"tp":{"dim":2},"file":"model.safetensors","pieces":[{}]}]}`,
		`{}`)
	single, err := safetensors.New([]safetensors.Tensor{{Name: "a", DType: "F32", Shape: []int{2, 3}}}, map[string]string{"format": "pt"})
	require.NoError(f, err)
	bare := storage.BareHash(single)
	f.Add(`{"version":1,"header_sha256":"`+bare+`","model":[{"name":"a","dtype":"F32","shape":[2,3],"pieces":[{}]}]}`, `{}`)
	f.Add(`{"version":1,"header_sha256":"`+bare+`","optimizer":{"tensors":[{"name":"a","dtype":"F32","shape":[2,3],"pieces":[{}]}]}}`, `{}`)
	head := `{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`
	data := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), make([]byte, 24)...)
	f.Fuzz(func(t *testing.T, body, idx string) {
		text := bytes.Join([][]byte{storage.ManifestHead, []byte(storage.Sum([]byte(body))), storage.ManifestBody, []byte(body),
			storage.ManifestEnd}, nil)
		single.Metadata[storage.MetadataName] = string(text)
		dir := t.TempDir()
		for name, b := range map[string][]byte{"model.safetensors": data, storage.ManifestName: text, storage.IndexName: []byte(idx),
			"one.safetensors": append(single.Encode(), make([]byte, 24)...)} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
		}
		size := len(text) + len(idx) + len(data)
		reliability.Bounded(t, size, func() { mustVerify(t, dir, inspect.VerifyConfig{Layout: "tp=2,fsdp=3"}) })
		reliability.Bounded(t, size, func() {
			mustVerify(t, filepath.Join(dir, "one.safetensors"), inspect.VerifyConfig{Layout: "tp=2,fsdp=3"})
		})
		require.NoError(t, os.Remove(filepath.Join(dir, storage.ManifestName)))
		reliability.Bounded(t, size, func() { mustVerify(t, dir, inspect.VerifyConfig{}) })
	})
}

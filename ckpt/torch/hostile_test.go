package torch

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// entry is an entry of an archive.
type entry struct {
	name, data string
	method     uint16
}

// zipped returns an archive of the given entries.
func zipped(t testing.TB, entries ...entry) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e.name, Method: e.method})
		require.NoError(t, err)
		_, err = w.Write([]byte(e.data))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return out.String()
}

// Pieces of pickles.
const (
	proto   = "\x80\x02"
	tensor2 = "ctorch._utils\n_rebuild_tensor_v2\n"
	ordered = "ccollections\nOrderedDict\n)R"
)

// ref is a reference to storage 0, of n float32.
func ref(n string) string {
	return "(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + n + "tQ"
}

// tensorOn is a tensor with this offset, sizes and strides on a storage.
func tensorOn(store, offset, sizes, strides string) string {
	return tensor2 + "(" + store + offset + sizes + strides + "\x89" + ordered + "tR"
}

// TestHostile has pickles that PyTorch never writes, with the expected errors.
func TestHostile(t *testing.T) {
	refuseAll(t, []hostile{
		{"os.system", "cos\nsystem\nX\x02\x00\x00\x00id\x85R.",
			`byte 2: "os.system" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"posix.system", "\x8c\x05posix\x8c\x06system\x93.",
			`byte 17: "posix.system" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"eval", "c__builtin__\neval\n.", `byte 2: "__builtin__.eval" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"builtins.eval", "cbuiltins\neval\n.", `byte 2: "builtins.eval" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"a name of torch", "ctorch\nload\n.", `byte 2: "torch.load" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"a name below a known one", "ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
			`byte 2: "torch._utils._rebuild_tensor_v2.__globals__" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"no module", "\x8c\x00\x8c\x12torch.FloatStorage\x93.",
			`byte 24: ".torch.FloatStorage" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"complex128", "ctorch\nComplexDoubleStorage\n.",
			`byte 2: "torch.ComplexDoubleStorage" is not a name that may be in a checkpoint; nothing of it was executed`},
		{"a call of a class without behaviour", "ctorch\nFloatStorage\n)R.",
			`byte 23: torch.FloatStorage is called with 0 arguments; that is none of its known uses`},
		{"a call of a string", "X\x01\x00\x00\x00x)R.", `byte 9: str is called`},
		{"INST", "(ios\nsystem\n.", `byte 3: operation 0x69 is not one that PyTorch's checkpoints have`},
		{"extension", "\x82\x01.", `byte 2: operation 0x82 is not one that PyTorch's checkpoints have`},
		{"arguments of OrderedDict", "ccollections\nOrderedDict\n]\x85R.", `byte 29: collections.OrderedDict: 1 arguments`},
		{"bytes in a code", "c_codecs\nencode\nX\x01\x00\x00\x00xX\x03\x00\x00\x00rot\x86R.",
			`_codecs.encode: arguments other than a string and latin1`},
		{"huge string", "X\xff\xff\xff\xffabc.", `byte 2: the pickle ends early: 4294967295 bytes are wanted, 4 are left`},
		{"huge string of 8 bytes", "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.",
			`byte 2: the pickle ends early: 18446744073709551615 bytes are wanted, 4 are left`},
		{"huge bytes", "B\xff\xff\xff\xff.", `byte 2: the pickle ends early: 4294967295 bytes are wanted, 1 are left`},
		{"huge integer", "\x8a\xff.", `byte 2: the pickle ends early: 255 bytes are wanted, 1 are left`},
		{"integer of 9 bytes", "\x8a\x09123456789.", `byte 2: an integer of 9 bytes; at most 8 are read`},
		{"no UTF-8", "X\x01\x00\x00\x00\xff.", `byte 2: a string is no UTF-8`},
		{"truncated", "(K\x01", `byte 5: the pickle ends early: 1 bytes are wanted, 0 are left`},
		{"truncated name", "ctorch", `byte 2: the pickle ends within a name`},
		{"empty stack", "0.", `byte 2: the stack is empty`},
		{"below a mark", "K\x01(0.", `byte 5: the stack is empty`},
		{"no mark", "t.", `byte 2: there is no mark`},
		{"two values at the end", "NN.", `byte 4: it ends with 2 values and 0 marks`},
		{"memo", "h\x07.", `byte 2: value 7 is wanted before it was made`},
		{"protocol", "\x80\x06.", `byte 2: protocol 6; 2 to 5 are read`},
		{"append to a number", "K\x01K\x01a.", `byte 6: values are appended to int`},
		{"odd items", "}(Nu.", `byte 5: 1 keys and values are put into dict`},
		{"unhashable key", "}]Ns.", `byte 5: a dict has a key of the type list`},
		{"attributes of a name", "ctorch\nfloat32\n}b.", `byte 18: attributes of torch.float32`},
		{"an array that is called otherwise", "cnumpy\nndarray\n)\x81.",
			`numpy.ndarray is called with 0 arguments; that is none of its known uses`},
		{"another namespace", "cargparse\nNamespace\nK\x01\x85R.",
			`argparse.Namespace is called with 1 arguments; that is none of its known uses`},
		{"a class of a program", "c__main__\nConfig\n.", `where it was made, save the tensors alone: torch.save(model.state_dict(), file)`},
		{"reference to a module", "X\x06\x00\x00\x00moduleQ.", `byte 13: a reference to str, not to a storage`},
		{"reference of another kind", "(X\x06\x00\x00\x00moduleNNNNtQ.", `byte 19: a reference to tuple, not to a storage`},
	})
}

// TestHostileTensors has pickles whose tensors do not fit their storage.
func TestHostileTensors(t *testing.T) {
	big := "J\xff\xff\xff\x7f" // 2^31-1
	huge := "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
	refuseAll(t, []hostile{
		{"another storage", strings.Replace(ref("K\x06"), "\x000X", "\x009X", 1) + ".", `there is no storage "9" in the archive`},
		{"more elements than the storage", ref("K\x07") + ".", `storage "0" has 24 bytes, which are not 7 elements of F32`},
		{"huge storage", ref(huge) + ".", `storage "0" has 24 bytes, which are not 9223372036854775807 elements of F32`},
		{"negative storage", ref("J\xff\xff\xff\xff") + ".", `storage "0" has 24 bytes, which are not -1 elements of F32`},
		{"offset", tensorOn(ref("K\x06"), "K\x01", "K\x06\x85", "K\x01\x85") + ".",
			`sizes [6], strides [1] and offset 1 lead out of the storage of 6 elements`},
		{"huge offset", tensorOn(ref("K\x06"), huge, "K\x06\x85", "K\x01\x85") + ".",
			`offset 9223372036854775807 lead out of the storage of 6 elements`},
		{"negative offset", tensorOn(ref("K\x06"), "J\xff\xff\xff\xff", "K\x06\x85", "K\x01\x85") + ".", `an offset is -1`},
		{"huge stride", tensorOn(ref("K\x06"), "K\x00", "K\x02K\x02\x86", huge+huge+"\x86") + ".", `lead out of the storage of 6 elements`},
		{"negative stride", tensorOn(ref("K\x06"), "K\x00", "K\x02\x85", "J\xff\xff\xff\xff\x85") + ".", `a size is -1`},
		{"overflow", tensorOn(ref("K\x06"), "K\x00", "("+big+big+big+"t", "(K\x00K\x00K\x00t") + ".",
			`the product of the shape [2147483647 2147483647 2147483647] overflows`},
		{"expanded", tensorOn(ref("K\x06"), "K\x00", big+"\x85", "K\x00\x85") + ".",
			`2147483647 elements of a storage of 6: expanded tensors are not read`},
		{"sizes without strides", tensorOn(ref("K\x06"), "K\x00", "K\x06\x85", ")") + ".", `1 sizes and 0 strides`},
		{"65 dimensions", tensorOn(ref("K\x06"), "K\x00", "("+strings.Repeat("K\x01", 65)+"t", ")") + ".", `65 dimensions; at most 64 are read`},
		{"no storage", tensorOn("N", "K\x00", "K\x06\x85", "K\x01\x85") + ".", `torch._utils._rebuild_tensor_v2: None where a storage should be`},
	})
}

// hostile is a pickle and the error that it must lead to.
type hostile struct{ name, pickle, says string }

func refuseAll(t *testing.T, cases []hostile) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := zipped(t, entry{name: "a/data.pkl", data: proto + c.pickle}, entry{name: "a/data/0", data: strings.Repeat("\x00", 24)})
			_, err := (&Checkpoint{budget: bounded.New(0)}).load("f.pt", strings.NewReader(in), int64(len(in)))
			require.ErrorContains(t, err, "f.pt: data.pkl, ")
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestEndless: a walk over a tree without end stops with an error.
func TestEndless(t *testing.T) {
	for name, c := range map[string]struct{ pickle, says string }{
		"contains itself": {"}(X\x01\x00\x00\x00x" + one + "X\x05\x00\x00\x00model}q\x00X\x01\x00\x00\x00sh\x00su.",
			"torch: the tree is deeper than 64, or it contains itself"},
		"deep": {"}(X\x05\x00\x00\x00model}X\x01\x00\x00\x00x" + one + "sX\x01\x00\x00\x00y" + strings.Repeat("]", 99) +
			strings.Repeat("a", 98) + "u.", "torch: the tree is deeper than 64, or it contains itself"},
		"doubled": {"}(X\x05\x00\x00\x00model}X\x01\x00\x00\x00x" + one + "sX\x01\x00\x00\x00y" + doubled(40) + "u.",
			"torch: it would take more than 67122016 bytes of memory, and a file of 822 bytes may take no more"},
	} {
		in := zipped(t, entry{name: "a/data.pkl", data: proto + c.pickle}, entry{name: "a/data/0", data: strings.Repeat("\x00", 24)})
		x := &Checkpoint{budget: bounded.New(int64(len(in))), bytes: int64(len(in))}
		var err error
		x.Root, err = x.load("f.pt", strings.NewReader(in), int64(len(in)))
		require.NoError(t, err, name)
		_, err = x.Parts(false)
		require.EqualError(t, err, c.says, name)
	}
}

// doubled is a list of twice the same list, n levels deep: 2ⁿ values.
func doubled(n int) string {
	s := "]q\x00"
	for i := range n {
		s += "0](h" + string([]byte{byte(i)}) + "h" + string([]byte{byte(i)}) + "eq" + string([]byte{byte(i + 1)})
	}
	return s
}

func TestHostileArchive(t *testing.T) {
	pkl := entry{name: "a/data.pkl", data: proto + "N."}
	whole := zipped(t, pkl)
	for _, c := range []struct{ name, file, says string }{
		{"compressed", zipped(t, pkl, entry{"a/data/0", strings.Repeat("\x00", 9999), zip.Deflate}),
			`f.pt: entry "a/data/0": it is compressed or encrypted; torch.save stores entries as they are`},
		{"twice", zipped(t, pkl, pkl), `f.pt: entry "a/data.pkl": the name is there twice`},
		{"two pickles", zipped(t, pkl, entry{name: "b/data.pkl"}), `f.pt: entry "b/data.pkl": there is another data.pkl`},
		{"no pickle", zipped(t, entry{name: "a/x"}), `f.pt: there is no data.pkl: not an archive of torch.save`},
		{"big-endian", zipped(t, pkl, entry{name: "a/byteorder", data: "big"}), `f.pt: the byte order is "big"; only little is read`},
		{"no archive", "\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
			`f.pt: PyTorch before 1.6 wrote it: write it again with a newer one`},
		{"truncated", whole[:len(whole)-1], `f.pt: the end is missing: the file is cut off, get it again (not an archive of torch.save`},
		{"TorchScript", zipped(t, pkl, entry{name: "a/constants.pkl", data: "N."}, entry{"a/code/m.py", "x", zip.Deflate}),
			`f.pt: it is a program, of torch.jit.save: write its tensors, by torch.save(torch.jit.load(file).state_dict(), new)`},
		{"safetensors", "\x40\x00\x00\x00\x00\x00\x00\x00{\"a\":", `f.pt: it is a safetensors file: give it a name that ends in .safetensors`},
		{"a pointer", "version https://git-lfs.github.com/spec/v1\n", `f.pt: this is a Git LFS pointer in place of the file: run git lfs pull`},
		{"a page", "<!DOCTYPE html><html>", `f.pt: this is a web page`},
		{"nothing", "", `f.pt: the file is empty`},
		{"a word", "PyTorch", `f.pt: not an archive of torch.save: zip: not a valid zip file`},
		{"overlapping", overlapping(t), `f.pt: entry "a/data/1": the entries have more bytes than the archive`},
		{"out of the file", outside(t), `f.pt: entry "a/data/0": 2000 bytes at 98 lead out of the archive of`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := (&Checkpoint{budget: bounded.New(0)}).load("f.pt", strings.NewReader(c.file), int64(len(c.file)))
			require.ErrorContains(t, err, c.says)
		})
	}
}

// overlapping is an archive with two entries on the same bytes.
func overlapping(t *testing.T) string {
	s := zipped(t, entry{name: "a/data.pkl", data: proto + "N."}, entry{name: "a/data/0", data: strings.Repeat("x", 1000)},
		entry{name: "a/data/1", data: strings.Repeat("y", 10)})
	at := strings.LastIndex(s, "a/data/1") - 46 // offset of the directory's entry
	from := strings.LastIndex(s, "a/data/0") - 46
	b := []byte(s)
	copy(b[at+20:at+28], b[from+20:from+28]) // sizes
	copy(b[at+42:at+46], b[from+42:from+46]) // offset of the data
	return string(b)
}

// outside is an archive with an entry that is longer than the file.
func outside(t *testing.T) string {
	s := zipped(t, entry{name: "a/data.pkl", data: proto + "N."}, entry{name: "a/data/0", data: "x"})
	b := []byte(s)
	for _, at := range []int{20, 24} {
		at += strings.LastIndex(s, "a/data/0") - 46
		b[at], b[at+1] = 0xd0, 0x07
	}
	return string(b)
}

// TestHostileFolder changes the .metadata that PyTorch wrote.
func TestHostileFolder(t *testing.T) {
	for _, c := range []struct{ name, old, new, says string }{
		{"as it is", "__0_0.distcp", "__0_0.distcp", ""},
		{"another folder", "\x0c__0_0.distcp", "\x0c../_0.distcp", `"../_0.distcp" is not the name of a file in the folder`},
		{"absolute", "\x0c__0_0.distcp", "\x0c/_0_0.distcp", `"/_0_0.distcp" is not the name of a file in the folder`},
		{"of Windows", "\x0c__0_0.distcp", "\x0cC:_0_.distcp", `"C:_0_.distcp" is not the name of a file in the folder`},
		{"up", "\x0c__0_0.distcp", "\x02..", `".." is not the name of a file in the folder`},
		{"a file that is not there", "\x0c__0_0.distcp", "\x0c__9_0.distcp", `__9_0.distcp: no such file`},
		{"a link", "\x0c__0_0.distcp", "\x0c__l_0.distcp", `__l_0.distcp is a link or no regular file`},
		{"another name", "\x0cMetadataIndex"[1:], "MetadatbIndex",
			`"torch.distributed.checkpoint.metadata.MetadatbIndex" is not a name that may be in a checkpoint`},
		{"a storage", "N\x8c\x07modules", "NQ\x8c\x06module", `a reference to a storage, which this pickle has not`},
		{"length", "M)\x06", "M\xff\xff", `65535 bytes at 2522 lead out of __1_0.distcp, which has 8830`},
		{"shape", "K\x07K\x05\x86", "K\x07K\x06\x86", `"model.rows": the chunks have 35 elements, the shape [7 6] has 42`},
		{"chunk", "K\x04K\x05\x86", "K\x04K\x04\x86", `"model.rows": the chunk at [0 0] is F32[4 5] in its file, and F32[4 4] in .metadata`},
		{"chunk out of the shape", "K\x04K\x05\x86", "K\x08K\x05\x86", `"model.rows": the chunk at [0 0] of [8 5] leads out of the shape [7 5]`},
		{"dtype", "\x08bfloat16", "\x07float16", `"model.whole": the chunk at [0] is BF16[3] in its file, and F16[3] in .metadata`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/tree2")))
			require.NoError(t, os.Symlink("__0_0.distcp", filepath.Join(dir, "__l_0.distcp")))
			name := filepath.Join(dir, metadataFile)
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Contains(t, string(b), c.old)
			require.NoError(t, os.WriteFile(name, bytes.Replace(b, []byte(c.old), []byte(c.new), 1), 0o666))
			x, err := Open(dir)
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, x.Close())
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestBeside: settings and numbers of a program are no reason to refuse its model. They are as Python 3.12 and NumPy 1.26 and 2
// write them.
func TestBeside(t *testing.T) {
	float := func(module string) string {
		return "c" + module + ".multiarray\nscalar\ncnumpy\ndtype\nX\x02\x00\x00\x00f8\x89\x88\x87R(K\x03X\x01\x00\x00\x00<NNN" +
			"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbc_codecs\nencode\nX\x08\x00\x00\x0012345678X\x06\x00\x00\x00latin1\x86R\x86R"
	}
	array := "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x01\x85cnumpy\ndtype\nX\x02\x00\x00\x00u4" +
		"\x89\x88\x87R\x89C\x041234tb"
	namespace := func(class, made string) string {
		return "c" + class + "\n)" + made + "}X\x02\x00\x00\x00lrG?\xf0\x00\x00\x00\x00\x00\x00sb"
	}
	in := zipped(t, entry{name: "a/data.pkl", data: proto + "}(" + text("model") + "}" + text("w") + one + "s" +
		text("args") + namespace("argparse\nNamespace", "\x81") + text("more") + namespace("types\nSimpleNamespace", "R") +
		text("best") + float("numpy.core") + text("new") + float("numpy._core") + text("random") + array +
		text("seen") + "ccollections\nCounter\n}" + text("a") + "K\x02s\x85R" + text("epoch") + "K\x07u."},
		entry{name: "a/data/0", data: strings.Repeat("\x00", 24)})
	path := filepath.Join(t.TempDir(), "x.pt")
	require.NoError(t, os.WriteFile(path, []byte(in), 0o666))
	c, err := Open(path)
	require.NoError(t, err)
	defer c.Close()
	p, err := c.Parts(false)
	require.NoError(t, err)
	require.Len(t, p.Model, 1)
	require.Equal(t, map[string]any{"epoch": int64(7)}, p.Extra)
	require.Equal(t, []string{"args: argparse.Namespace", "more: types.SimpleNamespace", "best: numpy.core.multiarray.scalar",
		"new: numpy._core.multiarray.scalar", "random: numpy.core.multiarray._reconstruct", "seen: collections.Counter"}, p.LeftOut)
}

// TestNoFile: what is no regular file is not opened, whatever its name.
func TestNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pt")
	require.NoError(t, os.Symlink(os.DevNull, path))
	require.True(t, Is(path))
	_, err := Open(path)
	require.EqualError(t, err, "torch: "+path+" is not a regular file")
	path += "h"
	require.NoError(t, os.Symlink("none", path))
	require.False(t, Is(path))
	_, err = Open(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzOpen: whatever an archive or a pickle contains, reading it ends, with an error or with readable tensors, and takes no
// more memory than the file justifies.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"module.pt", "state.pt", "sgd.pt"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &Checkpoint{budget: bounded.New(int64(len(in))), bytes: int64(len(in))}
		var err error
		reliability.Bounded(t, len(in), func() {
			if c.Root, err = c.load("f.pt", bytes.NewReader(in), int64(len(in))); err == nil {
				_, _ = c.Parts(false)
			}
		})
		if err == nil {
			readAll(t, c, len(in))
		}
	})
}

// FuzzPickle is FuzzOpen for the pickle alone.
func FuzzPickle(f *testing.F) {
	for _, s := range []string{tensorOn(ref("K\x06"), "K\x00", "K\x06\x85", "K\x01\x85") + ".", "}X\x01\x00\x00\x00xK\x01s.",
		"](K\x01K\x02e\x94\x85.", ordered + "}b.", "c_codecs\nencode\nX\x01\x00\x00\x00xX\x06\x00\x00\x00latin1\x86R."} {
		f.Add([]byte(proto + s))
	}
	meta, err := os.ReadFile("testdata/tree1/.metadata")
	require.NoError(f, err)
	f.Add(meta)
	store := strings.Repeat("\x00\x00\x80\x3f", 6)
	f.Fuzz(func(t *testing.T, in []byte) {
		size := int64(len(in) + len(store))
		budget := bounded.New(size)
		a := &archive{name: "f.pt", r: strings.NewReader(store), entries: map[string]extent{"data/0": {0, int64(len(store))}}}
		var v any
		var err error
		reliability.Bounded(t, int(size), func() {
			if v, err = unpickle("data.pkl", in, budget, a.storage); err == nil {
				_, _ = (&Checkpoint{Root: v, budget: budget, bytes: size}).Parts(false)
			}
		})
		if err != nil {
			return
		}
		readAll(t, &Checkpoint{Root: v, budget: budget, bytes: size}, len(store))
		if d := (&folder{
			Checkpoint: &Checkpoint{files: map[string]*source{}, budget: budget}, dir: "testdata/tree1", places: map[string]place{},
		}); d.read(v) == nil {
			readAll(t, &Checkpoint{Root: d.Root, budget: budget, bytes: size + d.bytes}, 1<<20)
			_ = d.Close()
		}
	})
}

// readAll reads the tensors of a checkpoint. None may be larger than its source.
func readAll(t *testing.T, c *Checkpoint, size int) {
	for _, modelOnly := range []bool{false, true} {
		p, err := c.Parts(modelOnly)
		if err != nil {
			continue
		}
		for _, x := range p.Model {
			require.LessOrEqual(t, x.Bytes(), int64(size))
			b := make([]byte, x.Bytes())
			_, err := x.ReadAt(b, 0)
			if err != nil && !strings.Contains(err.Error(), "is in no chunk") {
				require.NoError(t, err)
			}
		}
	}
}

package torch

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// text is a string in a pickle.
func text(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// shared is a tuple of two times the same tuple, 60 levels deep: 2⁶⁰ values.
func shared() string {
	s := "K\x01q\x00"
	for i := range 60 {
		s += fmt.Sprintf("h%c\x86q%c", i, i+1)
	}
	return s
}

// one is a tensor of six elements.
var one = tensorOn(ref("K\x06"), "K\x00", "K\x06\x85", "K\x01\x85")

// run is a sequence of values: a tuple, a dict or a list is around it.
func run(n int, value func(i int) string) string {
	var s strings.Builder
	for i := range n {
		s.WriteString(value(i))
	}
	return s.String()
}

// TestBombs has files whose values are short in the file and long in memory. Each is an error that says so, and costs no more
// memory than its bytes justify.
func TestBombs(t *testing.T) {
	long, much := strings.Repeat("x", 60_000), "it would take more than "
	model := text("model") + "}" + text("w") + one + "s"
	again := func(int) string { return "h\x00" }
	keyed := func(i int) string { return text(fmt.Sprint(i)) + "h\x00" }
	sgd := func(groups, states string) string {
		return "}(" + model + text("optimizer") + "}(" + text("param_groups") + groups + text("state") + states + "uu."
	}
	for _, c := range []struct{ name, pickle, says string }{
		{"tuples in a size", shared() + tensorOn(ref("K\x06"), "K\x00", "h\x3c\x85", "K\x01\x85") + ".", "a size is tuple"},
		{"tuples as an offset", shared() + tensorOn(ref("K\x06"), "h\x3c", "K\x06\x85", "K\x01\x85") + ".", "an offset is tuple"},
		{"tuples in a storage",
			shared() + "(" + text("storage") + "ctorch\nFloatStorage\nh\x3cNh\x3ctQ.", "with the key tuple and tuple elements"},
		{"tuples in a key", shared() + "0}(" + model + record("torch.distributed.checkpoint.metadata:Metadata") + "h\x3cbNu.", ""},
		{"tuples in a tree", shared() + "0}(" + model + text("x") + "h\x3cu.", much},
		{"tuples as a step", shared() + "0" + sgd("](}("+text("params")+"]("+text("w")+"e"+text("lr")+"K\x01ue",
			"}"+text("w")+"}"+text("step")+"h\x3css"), "optimizer: the step of w: tuple is no number"},
		{"one string many times", text(long) + "q\x000}(" + model + text("x") + "](" + run(5000, again) + "eu.", much},
		{"one key many times",
			text(long) + "q\x000}(" + model + text("x") + "](" + run(5000, func(int) string { return "}h\x00Ns" }) + "eu.", much},
		{"one string in bytes",
			text(long) + "q\x000(" + run(5000, func(int) string { return "c_codecs\nencode\nh\x00" + text("latin1") + "\x86R" }) + "t.", much},
		{"names below a long one", "}" + text("model") + "}" + text(long) + one + "q\x000}(" + run(5000, keyed) + "uss.", much},
		{"names below names",
			"}" + text("model") + text(long) + "q\x010" + one + "q\x000}" + run(20, func(int) string { return "h\x01}" }) +
				"(" + run(5000, keyed) + "u" + strings.Repeat("s", 21) + ".", much},
		{"names of one tensor", one + "q\x000}(" + run(500, keyed) + "uq\x000}" + text("model") + "}(" + run(200, keyed) + "us.", much},
		{"dicts of one key", "K\x01q\x000(" + strings.Repeat("}h\x00Ns", 1_000_000) + "t.", much},
		{"empty dicts", "(" + strings.Repeat("}", 5_000_000) + "t.", much},
		{"numbers in the memo", "K\x01" + strings.Repeat("\x94", 900_000) + ".", much},
		{"many numbers in the memo", "K\x01" + strings.Repeat("\x94", 5_000_000) + ".", much},
		{"keys of a dict", "}(" + run(1_000_000, func(i int) string {
			return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(i))) + "N"
		}) + "u.", much},
		{"keys one by one", "}" + run(500_000, func(i int) string {
			return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(i))) + "Ns"
		}) + ".", much},
		{"storages", ref("K\x06") + "0" + "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + "NK\x06tq\x000(" +
			strings.Repeat("h\x00Q", 1_000_000) + "t.", much},
		{"names of parameters",
			"](" + strings.Repeat("N", 100_000) + "eq\x000}(" + text("params") + ")" + text("param_names") + "h\x00" + text("lr") +
				"K\x01uq\x000" + sgd("]("+run(3000, again)+"e", "}"), much},
		{"a flat optimizer", "}(" + model + text("optimizer") + "}(" + run(100_000, func(i int) string {
			return text(fmt.Sprintf("state.%x.step", i)) + "N"
		}) + "uu.", "optimizer: " + much},
		{"groups",
			"}q\x00(" + run(1000, func(i int) string { return text(fmt.Sprint(i)) + "N" }) + text("params") + ")" + text("lr") + "K\x01u0" +
				sgd("]("+run(3000, again)+"e", "}"), much},
	} {
		if (len(c.pickle) > 1<<20 && c.name != "keys one by one" && c.name != "a flat optimizer") != reliability.Long(t) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			in := zipped(t, entry{name: "a/data.pkl", data: proto + c.pickle}, entry{name: "a/data/0", data: strings.Repeat("\x00", 24)})
			reliability.Bounded(t, len(in), func() {
				x := &Checkpoint{budget: bounded.New(int64(len(in))), bytes: int64(len(in))}
				var err error
				if x.Root, err = x.load("f.pt", strings.NewReader(in), x.bytes); err == nil {
					_, err = x.Parts(false)
				}
				if c.says == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.says)
				require.Less(t, len(err.Error()), 1000)
			})
		})
	}
}

func TestLongBombs(t *testing.T) { reliability.AsLong(t, TestBombs) }

// TestManyEntries: the directory of an archive and its pickle take from one budget.
func TestManyEntries(t *testing.T) {
	entries := []entry{{name: "a/data.pkl", data: proto + "(" + strings.Repeat("N", 1_500_000) + "t."}}
	for i := range 100_000 {
		entries = append(entries, entry{name: fmt.Sprintf("a/%x", i)})
	}
	in := zipped(t, entries...)
	reliability.Bounded(t, len(in), func() {
		x := &Checkpoint{budget: bounded.New(int64(len(in)))}
		_, err := x.load("f.pt", strings.NewReader(in), int64(len(in)))
		require.ErrorContains(t, err, "f.pt: data.pkl, byte ")
		require.ErrorContains(t, err, "it would take more than ")
	})
}

// record is an object of a distributed checkpoint; attributes are keys and values in turn.
func record(class string, attributes ...string) string {
	s := "c" + strings.Replace(class, ":", "\n", 1) + "\n)\x81}("
	for i := 0; i < len(attributes); i += 2 {
		s += text(attributes[i]) + attributes[i+1]
	}
	return s + "ub"
}

// TestFolderBombs is TestBombs for the .metadata of a distributed checkpoint.
func TestFolderBombs(t *testing.T) {
	const kind = "torch.distributed.checkpoint.metadata:"
	long := text(strings.Repeat("x", 60_000)) + "q\x000"
	properties := record(kind+"TensorProperties", "dtype", "ctorch\nfloat32\n")
	info := record("torch.distributed.checkpoint.filesystem:_StorageInfo", "relative_path", text("a"), "offset", "K\x00",
		"length", "M\xff\x00")
	index := func(fqn, offset string) string { return record(kind+"MetadataIndex", "fqn", fqn, "offset", offset) }
	metadata := func(stored, listed string) string {
		return record(kind+"Metadata", "storage_data", "}("+stored+"u", "state_dict_metadata", "}("+listed+"u", "planner_data", "N") + "."
	}
	one := zipped(t, entry{name: "a/data.pkl", data: proto + "N."}) + strings.Repeat("\x00", 255)
	for _, c := range []struct{ name, pickle, says string }{
		{"tuples in a name", shared() + "0" + metadata(index("h\x3c", "N")+"N", ""), "tuple: None where _StorageInfo should be"},
		{"tuples in a transform", shared() + "0" + metadata(index(text("w"), "N")+record("torch.distributed.checkpoint.filesystem:_StorageInfo",
			"transform_descriptors", "](h\x3ce"), ""), `"w": it was stored with 1 transforms, such as tuple`},
		{"one name many times",
			long + metadata(run(3000, func(i int) string { return index("h\x00", "K"+string(rune(i%100))+"\x85") + info }), ""), "is there twice"},
		{"names of many places", long + metadata(run(1500, func(i int) string {
			return index("h\x00", "M"+string([]byte{byte(i), byte(i >> 8)})+"\x85") + info
		}), ""), "it would take more than "},
		{"one place many times", metadata(run(200, func(i int) string { return index(text(fmt.Sprint(i)), "N") + info }),
			run(200, func(i int) string { return text(fmt.Sprint(i)) + record(kind+"BytesStorageMetadata") })),
			"the items in a have more bytes than the file"},
		{"many tensors of nothing",
			properties + "q\x010" + record(kind+"TensorStorageMetadata", "properties", "h\x01", "size", "K\x00\x85", "chunks", ")") +
				"q\x020" + metadata("", run(50_000, func(i int) string { return text(fmt.Sprint(i)) + "h\x02" })), "it would take more than "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), []byte(proto+c.pickle), 0o666))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte(one), 0o666))
			reliability.Bounded(t, len(c.pickle)+len(one), func() {
				_, err := Open(dir)
				require.ErrorContains(t, err, c.says)
				require.Less(t, len(err.Error()), 1000)
			})
		})
	}
}

// TestSharedStorage: a storage may have a few names, such as tied weights, but not thousands: a copy would fill the disk.
func TestSharedStorage(t *testing.T) {
	const bytes = 4 << 20
	store := ref("J\x00\x00\x10\x00")
	tensor := tensorOn(store, "K\x00", "J\x00\x00\x10\x00\x85", "K\x01\x85")
	for names, says := range map[int]string{
		4: "", 2000: `up to "32", the tensors have far more bytes than the file: too many share one storage`,
	} {
		in := zipped(t, entry{name: "a/data.pkl", data: proto + "}" + text("model") + tensor + "q\x000}(" + run(names, func(i int) string {
			return text(fmt.Sprint(i)) + "h\x00"
		}) + "us."}, entry{name: "a/data/0", data: strings.Repeat("\x00", bytes)})
		path := filepath.Join(t.TempDir(), "x.pt")
		require.NoError(t, os.WriteFile(path, []byte(in), 0o666))
		c, err := Open(path)
		require.NoError(t, err)
		_, err = c.Parts(false)
		require.NoError(t, c.Close())
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
	}
}

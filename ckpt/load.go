package ckpt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Strategy says which rank reads what.
type Strategy int

const (
	// Sharded: each rank reads its part of every tensor (FSDP, tensor parallelism). All ranks list all names.
	Sharded Strategy = iota
	// Broadcast: rank 0 reads everything once and broadcasts it. No other rank uses the disk (data parallelism).
	Broadcast
	// Owned: each rank reads its part of the tensors that it lists (pipeline parallelism). Together the ranks list all
	// names.
	Owned
)

// LoadConfig changes Load.
type LoadConfig struct {
	Strategy Strategy
	// Partial loads what fits and reports the rest, instead of returning an error.
	Partial bool
	// Cast converts floating-point tensors whose type differs from the State's, such as bfloat16 files into float32
	// parameters.
	Cast bool
	// Rename returns the name here of what is called name in the files; nil: names stay. It is also asked for the optimizer's tensors, such
	// as w.exp_avg, and for step counts: change beginnings of names, not whole names.
	Rename func(name string) string
	// AllowMissing has patterns (path.Match) for names of tensors that the checkpoint need not have, nor the optimizer's
	// state for them (see Report.Anew). AllowUnexpected has patterns for names, such as "h.*.attn.bias", that the
	// checkpoint may have although no rank asks for them. Other missing or unexpected names are an error.
	AllowMissing, AllowUnexpected []string
}

// Report says what Load did on this rank.
type Report struct {
	Tensors      int      // number of stored tensors that were loaded
	BytesRead    int64    // bytes of tensor data that were loaded from the disk
	BytesChecked int64    // bytes that were read again, to verify pieces that ranks loaded in parts
	Unverified   int64    // the part of BytesRead that has no hash: files of other programs
	Missing      []string // names in the State that the checkpoint does not have
	Unexpected   []string // names in the checkpoint that the State does not have
	Misfits      []string // tensors whose shape or type differs
	// Anew lists the optimizer's parameters that were not resumed: the checkpoint does not have their step count and all
	// of their moments. They keep what they had before the load.
	Anew []string
	// Replaced lists settings of the program that the checkpoint replaced, such as "the learning rate 0.1 by 0.05". To
	// keep your own learning rate, call Optimizer.SetLR after Load.
	Replaced []string
}

// Load fills the tensors of st (Param.Local and the optimizer's) from a checkpoint: a folder that Save wrote with any
// layout, a Hugging Face folder, or a single .safetensors file. It also sets st.Step, the optimizer's counts and
// learning rate, and the variables that st.Extra points to, if the checkpoint has them: files of other programs have no
// optimizer state and no extra state. It is collective.
//
// Each rank reads the byte ranges that it needs, and everything with a hash is verified, with every layout. If several
// ranks read parts of one piece, one of them reads the piece once more. Names, shapes and types are compared on all
// ranks before anything is changed. Unless Partial is set, one error lists everything that is missing, unexpected, or
// of another shape or type. After a later error (of the disk, or a wrong hash) the values of the tensors are undefined.
func Load(ctx context.Context, g *dist.Group, path string, st *State, c LoadConfig) (*Report, error) {
	if st == nil {
		return nil, fmt.Errorf("ckpt: loading %s: the State is nil", path)
	}
	r, err := load(ctx, g, disk.OS{}, path, st, c)
	if err != nil {
		return r, fmt.Errorf("ckpt: loading %s: %w", path, err)
	}
	return r, nil
}

// loader is one Load on one rank.
type loader struct {
	g      *dist.Group // nil: one rank without a group
	path   string
	st     *State
	c      LoadConfig
	src    *storage.Reader // nil on ranks that do not read
	cat    catalog
	items  []item
	report Report
	anew   map[string]bool // see Report

	pieces     []byte // states of all pieces; a state is written only by the goroutine that fills its tensor
	read       atomic.Int64
	checked    atomic.Int64
	unverified atomic.Int64 // bytes read that have no hash
}

func load(ctx context.Context, g *dist.Group, fsys disk.FS, path string, st *State, c LoadConfig) (*Report, error) {
	l := &loader{g: g, path: path, st: st, c: c}
	var err error
	if c.Strategy != Broadcast || g.Rank() == 0 {
		l.src, err = storage.Open(fsys, path)
		if err = storage.WithPrevious(fsys, path, err); err == nil {
			defer l.src.Close() // opened for reading only
			l.pieces = make([]byte, l.src.Pieces)
			if err = l.src.Rename(c.Rename); err == nil {
				l.cat, err = newCatalog(l.src)
			}
		}
	}
	if err := l.agree(err); err != nil {
		return nil, err
	}
	if err := l.match(); err != nil {
		return &l.report, err
	}
	for _, p := range st.Params {
		p.Changed() // Backward refuses what was computed with the old values
	}
	st.optimizer() // takes what the program has written until now: masters of the checkpoint are not rounded to its values
	if c.Strategy == Broadcast {
		err = l.broadcast(ctx)
	} else {
		all := l.byTensor()
		err = l.damaged(ctx, storage.Parallel(len(all), func(i int) error { return l.fillAll(ctx, all[i]) }))
	}
	if err := gatherErrors(g, err); err != nil {
		return &l.report, err
	}
	if c.Strategy != Broadcast { // with Broadcast, rank 0 has read and verified whole pieces
		if err := gatherErrors(g, l.verifyPartial(ctx)); err != nil {
			return &l.report, err
		}
	}
	l.report.BytesRead, l.report.BytesChecked, l.report.Unverified = l.read.Load(), l.checked.Load(), l.unverified.Load()
	l.report.Tensors = len(l.byTensor())
	return &l.report, gatherErrors(g, l.restore())
}

// damaged adds the checkpoint to go back to, if there is one, to an error from reading.
func (l *loader) damaged(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return storage.WithPrevious(l.src.FS, l.path, err)
}

// byTensor groups the items by the stored tensor that they are parts of.
func (l *loader) byTensor() (list [][]*item) {
	at := map[string]int{}
	for i := range l.items {
		key := l.items[i].fromKey
		if _, there := at[key]; !there {
			at[key] = len(list)
			list = append(list, nil)
		}
		list[at[key]] = append(list[at[key]], &l.items[i])
	}
	return list
}

// fillAll fills the items of a stored tensor, one after another, because they share the states of its pieces.
func (l *loader) fillAll(ctx context.Context, items []*item) error {
	for _, x := range items {
		if err := x.fill(func(file []byte) error { return l.readPart(ctx, x, x.part, file) }); err != nil {
			return err
		}
	}
	return nil
}

// fill calls read with memory for an item's part, in the type and order of the file, and stores what read puts there.
func (x *item) fill(read func(file []byte) error) error {
	b := hostMemory(x.data)
	file := b
	if x.memory != nil || x.fromType != x.data.DType() {
		file = make([]byte, x.data.Len()*x.fromType.Size())
	}
	if err := read(file); err != nil {
		return err
	}
	if x.fromType != x.data.DType() {
		to := b
		if x.memory != nil {
			to = make([]byte, len(b))
		}
		if err := storage.CastAll(to, x.data.DType(), file, x.fromType); err != nil {
			return fmt.Errorf("tensor %s: %w", x.fromKey, err)
		}
		file = to
	}
	if x.memory != nil {
		x.memory.FromFile(b, file, x.data.DType().Size())
	}
	return setBytes(x.data, b)
}

// readPart reads a part of an item's stored tensor into b, and verifies the pieces that are complete in it.
func (l *loader) readPart(ctx context.Context, x *item, p shard.Part, b []byte) error {
	s := l.src.Tensors[x.fromKey]
	if err := s.Read(ctx, p, b); err != nil {
		return err
	}
	l.read.Add(int64(len(b)))
	return l.check(s, p, b, x.fromType.Size())
}

// check verifies the hashes of the pieces that are complete in b, which is part p of a stored tensor. It marks the
// other pieces as partial.
func (l *loader) check(s *storage.Tensor, p shard.Part, b []byte, size int) error {
	if len(s.Pieces) == 0 {
		l.unverified.Add(int64(len(b)))
	}
	if len(b) == 0 {
		return nil
	}
	for i, piece := range s.Pieces {
		h := sha256.New()
		at, within := p.Find(piece.Part)
		switch {
		case piece.Equal(p):
			h.Write(b)
		case within:
			h.Write(b[at*size : (at+piece.Len())*size])
		case p.Whole():
			for at, n := range piece.Runs() {
				h.Write(b[at*size : (at+n)*size])
			}
		default:
			l.pieces[s.First+i] = max(piecePartial, l.pieces[s.First+i])
			continue
		}
		if err := s.Compare(piece, hex.EncodeToString(h.Sum(nil))); err != nil {
			return err
		}
		l.pieces[s.First+i] = pieceVerified
	}
	return nil
}

// broadcast lets rank 0 read one tensor after another, and every rank takes its part. It first checks that all ranks
// have the same names, because otherwise their broadcasts would not match.
func (l *loader) broadcast(ctx context.Context) error {
	all := l.byTensor()
	names := make([]string, len(all))
	for i, items := range all {
		names[i] = items[0].fromKey
	}
	first, err := dist.BroadcastObject(l.g, names, 0)
	if err != nil {
		return err
	}
	var wrong error
	if !slices.Equal(first, names) {
		wrong = errors.New("ranks have different tensors; with the strategy Broadcast all must have the same")
	}
	if err := gatherErrors(l.g, wrong); err != nil {
		return err
	}
	var failed error
	for _, items := range all {
		x := items[0]
		if shard.Product(x.Shape) == 0 {
			continue
		}
		buf := x.data
		if !x.part.Whole() || x.memory != nil || x.fromType != x.data.DType() {
			buf = tensor.New(l.g.Device(), x.fromType, x.Shape...)
		}
		if l.src != nil && failed == nil {
			failed = l.damaged(ctx, l.fillWhole(ctx, x, buf))
		}
		if err := l.g.Broadcast(buf, 0).Wait(); err != nil {
			return err
		}
		for _, x := range items {
			if err := x.takePart(buf); err != nil && failed == nil {
				failed = err
			}
		}
	}
	return failed
}

func (l *loader) fillWhole(ctx context.Context, x *item, buf tensor.Tensor) error {
	b := hostMemory(buf)
	if err := l.readPart(ctx, x, shard.WholePart(x.Shape), b); err != nil {
		return err
	}
	return setBytes(buf, b)
}

// takePart copies an item's part out of the whole tensor.
func (x *item) takePart(whole tensor.Tensor) error {
	if whole == x.data {
		return nil
	}
	from, size := tensor.ToHost(whole).Bytes(), x.fromType.Size()
	return x.fill(func(file []byte) error {
		for at, n := range x.part.Runs() {
			file = file[copy(file, from[at*size:(at+n)*size]):]
		}
		return nil
	})
}

// restore sets everything in the State that is not a tensor.
func (l *loader) restore() error {
	if l.st.Optimizer != nil && l.cat.Optimizer != nil {
		if err := l.restoreOptimizer(); err != nil {
			return err
		}
	}
	if l.st.Optimizer != nil {
		l.st.Optimizer.Reload(l.without(masterKey), l.without(averageKey))
	}
	for key, ptr := range l.st.Extra {
		text, ok := l.cat.Extra[key]
		if !ok {
			continue
		}
		if err := json.Unmarshal(text, ptr); err != nil {
			return fmt.Errorf("extra %q: %w", key, err)
		}
	}
	if l.st.Tape != nil && l.cat.Random != nil {
		l.st.Tape.SetState(*l.cat.Random)
	}
	l.st.Step = l.cat.Step
	return nil
}

// restoreOptimizer sets the step counts, learning rate and scaler; the tensors are filled already. A parameter whose
// moments were not loaded keeps its count.
func (l *loader) restoreOptimizer() error {
	have := l.st.Optimizer.State()
	next := optim.State{Steps: l.cat.Optimizer.Steps, LR: l.cat.Optimizer.LR, Counts: have.Counts, Scaler: have.Scaler, Tensors: have.Tensors}
	if next.LR != have.LR {
		l.report.Replaced = append(l.report.Replaced, fmt.Sprintf("the learning rate %v by %v", have.LR, next.LR))
	}
	if have.Scaler != nil && l.cat.Optimizer.Scaler != nil {
		next.Scaler = l.cat.Optimizer.Scaler
	}
	names := l.st.inFiles(have.Counts)
	for name := range next.Counts {
		if l.anew[name] {
			continue
		}
		for i, as := range names(name) {
			n, ok := l.cat.Optimizer.Counts[as]
			switch { // match has reported missing counts
			case ok && i > 0 && n != next.Counts[name]:
				return fmt.Errorf("%d steps of %s, but %d of another tensor of %s", n, as, next.Counts[name], name)
			case ok:
				next.Counts[name] = n
			}
		}
	}
	return l.st.Optimizer.SetState(next)
}

// without returns the parameters that were loaded without their optimizer tensor of this key.
func (l *loader) without(key string) (params nn.Params) {
	loaded, names := l.loaded(), l.st.inFiles(l.st.optimizer().Counts)
	for _, p := range l.st.Params {
		keys := names(p.Name()) // of the optimizer
		for i, as := range storedNames(p) {
			if loaded[storage.ItemKey(true, as)] && !loaded[storage.ItemKey(false, keys[min(i, len(keys)-1)]+key)] {
				params = append(params, p)
				break
			}
		}
	}
	return params
}

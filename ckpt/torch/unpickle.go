package torch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// The memory of values, in bytes. They are what the largest take, with their places on the stack, in the memo and in the
// list or dict that has them, also while these grow.
const (
	valueBytes   = 128
	memoBytes    = 96
	pairBytes    = 256
	storageBytes = 128
	tensorBytes  = 512
)

// machine runs a pickle. What it makes is taken from a budget, because a pickle may use one value many times.
type machine struct {
	in         []byte
	at         int
	stack      []any
	marks      []int // heights of the stack at the marks
	memo       map[uint32]any
	budget     *bounded.Budget
	persistent func(id any) (any, error) // resolves persistent ids; nil: none are allowed
}

// unpickle returns the value that a pickle makes. name is the pickle's name in errors.
func unpickle(name string, in []byte, budget *bounded.Budget, persistent func(id any) (any, error)) (any, error) {
	m := &machine{in: in, memo: map[uint32]any{}, budget: budget, persistent: persistent}
	for {
		start := m.at
		done, err := m.step()
		if err != nil {
			return nil, fmt.Errorf("%s, byte %d: %w", name, start, err)
		}
		if done {
			return m.stack[0], nil
		}
	}
}

// take returns the next n bytes.
func (m *machine) take(n uint64) ([]byte, error) {
	if left := uint64(len(m.in) - m.at); n > left {
		return nil, fmt.Errorf("the pickle ends early: %d bytes are wanted, %d are left", n, left)
	}
	b := m.in[m.at : m.at+int(n)]
	m.at += int(n)
	return b, nil
}

// number returns an unsigned little-endian number of size bytes.
func (m *machine) number(size int) (uint64, error) {
	b, err := m.take(uint64(size))
	n := uint64(0)
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return n, err
}

// sized returns bytes that follow their length, which is a number of size bytes.
func (m *machine) sized(size int) ([]byte, error) {
	n, err := m.number(size)
	if err != nil {
		return nil, err
	}
	b, err := m.take(n)
	if err == nil {
		err = m.takeText(len(b))
	}
	return b, err
}

// takeText takes the memory of a copy of a text, which may be rounded up by an eighth.
func (m *machine) takeText(n int) error { return m.budget.Take(int64(n + n/8)) }

// line returns the text up to the next line feed.
func (m *machine) line() (string, error) {
	i := bytes.IndexByte(m.in[m.at:], '\n')
	if i < 0 {
		return "", fmt.Errorf("the pickle ends within a name")
	}
	b, err := m.take(uint64(i + 1))
	if err == nil {
		err = m.takeText(len(b))
	}
	return string(b[:i]), err
}

// push puts a new value on the stack.
func (m *machine) push(v any) error {
	if len(m.stack) == cap(m.stack) {
		m.stack = slices.Grow(m.stack, len(m.stack)+64)
	}
	m.stack = append(m.stack, v)
	return m.budget.Take(valueBytes)
}

// pop removes and returns the topmost n values. They must be above the last mark.
func (m *machine) pop(n int) ([]any, error) {
	floor := 0
	if len(m.marks) > 0 {
		floor = m.marks[len(m.marks)-1]
	}
	if len(m.stack)-floor < n {
		return nil, fmt.Errorf("the stack is empty")
	}
	out := m.stack[len(m.stack)-n:]
	m.stack = m.stack[:len(m.stack)-n]
	return out, nil
}

// popMark removes and returns the values above the last mark. They are valid until the next push.
func (m *machine) popMark() ([]any, error) {
	if len(m.marks) == 0 {
		return nil, fmt.Errorf("there is no mark")
	}
	from := m.marks[len(m.marks)-1]
	m.marks = m.marks[:len(m.marks)-1]
	out := m.stack[from:]
	m.stack = m.stack[:from]
	return out, nil
}

// top returns the topmost value without removing it.
func (m *machine) top() (any, error) {
	v, err := m.pop(1)
	if err != nil {
		return nil, err
	}
	m.stack = append(m.stack, v[0])
	return v[0], nil
}

// step runs one operation; done is true after STOP. It knows the operations of protocols 2 to 5 that torch.save and
// torch.distributed.checkpoint write.
func (m *machine) step() (done bool, err error) {
	op, err := m.number(1)
	if err != nil {
		return false, err
	}
	switch op {
	case '.': // STOP
		if len(m.stack) != 1 || len(m.marks) != 0 {
			return false, fmt.Errorf("it ends with %d values and %d marks", len(m.stack), len(m.marks))
		}
		return true, nil
	case 0x80: // PROTO
		v, err := m.number(1)
		if err == nil && (v < 2 || v > 5) {
			err = fmt.Errorf("protocol %d; 2 to 5 are read", v)
		}
		return false, err
	case 0x95: // FRAME
		_, err = m.take(8)
	case '(': // MARK
		m.marks = append(m.marks, len(m.stack))
	case '0': // POP
		_, err = m.pop(1)
	case '1': // POP_MARK
		_, err = m.popMark()
	case 'q', 'r', 0x94, 'h', 'j':
		err = m.remember(byte(op))
	case 'a', 'e', 's', 'u':
		err = m.collect(byte(op))
	case 't', ')', 0x85, 0x86, 0x87:
		err = m.tuple(byte(op))
	case 'c', 0x93, 'R', 0x81, 'b', 'Q':
		err = m.object(byte(op))
	default:
		var v any
		if v, err = m.literal(byte(op)); err == nil {
			err = m.push(v)
		}
	}
	return false, err
}

// literal returns the value that is part of the operation itself.
func (m *machine) literal(op byte) (v any, err error) {
	switch op {
	case 'N':
		return nil, nil
	case 0x88, 0x89:
		return op == 0x88, nil
	case '}':
		return &Dict{}, nil
	case ']':
		return &List{}, nil
	case 'K', 'M': // BININT1, BININT2
		n, err := m.number(map[byte]int{'K': 1, 'M': 2}[op])
		return int64(n), err
	case 'J': // BININT
		n, err := m.number(4)
		return int64(int32(n)), err
	case 0x8a: // LONG1
		b, err := m.sized(1)
		if err != nil {
			return nil, err
		}
		return integer(b)
	case 'G': // BINFLOAT
		b, err := m.take(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case 'X', 0x8c, 0x8d: // BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
		b, err := m.sized(map[byte]int{'X': 4, 0x8c: 1, 0x8d: 8}[op])
		if err == nil && !utf8.Valid(b) {
			err = fmt.Errorf("a string is no UTF-8")
		}
		return string(b), err
	case 'B', 'C', 0x8e: // BINBYTES, SHORT_BINBYTES, BINBYTES8
		b, err := m.sized(map[byte]int{'B': 4, 'C': 1, 0x8e: 8}[op])
		return bytes.Clone(b), err
	}
	return nil, fmt.Errorf("operation %#x is not one that PyTorch's checkpoints have", op)
}

// integer returns a number in two's complement, little endian.
func integer(b []byte) (int64, error) {
	if len(b) > 8 {
		return 0, fmt.Errorf("an integer of %d bytes; at most 8 are read", len(b))
	}
	n := uint64(0)
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	if k := len(b); k > 0 && k < 8 && b[k-1]&0x80 != 0 {
		n |= math.MaxUint64 << (8 * k)
	}
	return int64(n), nil
}

// remember stores the topmost value in the memo, or pushes a value of the memo.
func (m *machine) remember(op byte) error {
	n, err := uint64(len(m.memo)), error(nil) // MEMOIZE
	switch op {
	case 'q', 'h':
		n, err = m.number(1)
	case 'r', 'j':
		n, err = m.number(4)
	}
	if err != nil {
		return err
	}
	if op == 'h' || op == 'j' {
		v, ok := m.memo[uint32(n)]
		if !ok {
			return fmt.Errorf("value %d is wanted before it was made", n)
		}
		return m.push(v)
	}
	v, err := m.top()
	if err == nil {
		err = m.budget.Take(memoBytes)
	}
	m.memo[uint32(n)] = v
	return err
}

// collect adds values to a list or dict.
func (m *machine) collect(op byte) (err error) {
	var values []any
	switch op {
	case 'a': // APPEND
		values, err = m.pop(1)
	case 's': // SETITEM
		values, err = m.pop(2)
	default: // APPENDS, SETITEMS
		values, err = m.popMark()
	}
	if err != nil {
		return err
	}
	into, err := m.top()
	if err != nil {
		return err
	}
	// top has pushed the container back below the values, which are still in place.
	if op == 'a' || op == 'e' {
		list, ok := into.(*List)
		if !ok {
			return fmt.Errorf("values are appended to %s", kindOf(into))
		}
		list.Items = append(list.Items, values...)
		return nil
	}
	d, ok := into.(*Dict)
	if !ok || len(values)%2 != 0 {
		return fmt.Errorf("%d keys and values are put into %s", len(values), kindOf(into))
	}
	if err := m.budget.Take(int64(len(values) / 2 * pairBytes)); err != nil {
		return err
	}
	for i := 0; i < len(values); i += 2 {
		if err := d.set(values[i], values[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// tuple makes a tuple of the topmost values.
func (m *machine) tuple(op byte) (err error) {
	var values []any
	switch op {
	case 't': // TUPLE
		values, err = m.popMark()
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		values, err = m.pop(int(op) - 0x84)
	}
	if err != nil {
		return err
	}
	return m.push(append(Tuple{}, values...))
}

package fsdp

import "fmt"

// Format is the form of numbers on their way between ranks.
type Format uint8

// The forms. A quantized number is an integer times the scale of its block of 256: the largest magnitude of the block divided by the
// largest integer. Scales are float32, so an element takes 1/64 of a byte more than its integer. A rank's part begins with a block of
// its own. A block with an infinity or NaN becomes NaN as a whole. One of magnitudes below 127·2⁻¹²⁶ becomes zero.
const (
	unquantized Format = iota
	Int8               // −127 to 127
	Int4               // −7 to 7, two in a byte
)

// String returns the name, such as "int8".
func (f Format) String() string {
	if names := [...]string{"unquantized", "int8", "int4"}; int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Format(%d)", f)
}

// checkFormats refuses a Config.Weights or a Config.Grads that does not fit the rest.
func (c *Config) checkFormats() error {
	switch {
	case c.Weights != unquantized && c.Weights != Int8:
		return fmt.Errorf("fsdp: Config.Weights is %v, not int8", c.Weights)
	case c.Grads == unquantized:
		return nil
	case c.Grads != Int4:
		return fmt.Errorf("fsdp: Config.Grads is %v, not int4", c.Grads)
	case c.Host == nil:
		return fmt.Errorf("fsdp: Config.Grads is %v, and Host, in which they are added up first, is not set", c.Grads)
	case c.Reduce != c.DType:
		return fmt.Errorf("fsdp: Config.Grads is %v, and Reduce is %v: leave Reduce out", c.Grads, c.Reduce)
	}
	return nil
}

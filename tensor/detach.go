package tensor

// Detach returns x, in the same memory, as a constant: no gradient flows back through the result, as torch.Tensor.detach.
func (x Tensor) Detach() Tensor {
	t := tapeOf("detach", x)
	return t.alias(x.hdr()).tensor()
}

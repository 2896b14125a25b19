package tensor

// spent is in place of the number of uses of a tensor that needed a gradient, or was computed from one that did: an earlier Backward freed
// the nodes that it came from. Such a tensor needs none any more. Only a tensor of Keep can still be used.
const spent = 3

// spend makes h spent if it needs a gradient.
func (h *header) spend() {
	if h.needs && h.dtype.IsFloat() {
		h.uses = spent
	}
	h.needs = false
}

// derive makes h spent if x is, from which it was computed.
func (h *header) derive(x *header) {
	if x.uses == spent && h.dtype.IsFloat() {
		h.uses = spent
	}
}

// addSpent adds inputs that are spent. The rule computes their gradients like those of others, and addGrad refuses them. A Function has
// not saved what it needs for that.
func (n *Node) addSpent(inputs uint8) {
	if n.op == OpApply {
		n.spent = inputs != 0
	} else {
		n.need |= inputs
	}
}

// failCall fails because a gradient reaches the call of a Function that has a spent input.
func (n *Node) failCall() {
	for _, h := range n.in {
		if h.uses == spent {
			failSpent(h)
		}
	}
}

// failSpent fails because a gradient reaches h, which is spent.
func failSpent(h *header) {
	fail("Backward", these(h), "the loss depends on a tensor that needs a gradient and was not computed since the last Backward, which freed "+
		"its graph: call Backward once, with the sum of the losses, or run the forward pass again, or Detach what needs no gradient")
}

// Package gradnorm writes the norm of each parameter's gradient over a whole job, step by step, to the file that RINGO_GRADS
// names. Each element of the model's tensor counts once, however ranks share it.
package gradnorm

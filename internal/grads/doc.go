// Package grads writes the norms of gradients, and reads those of a whole job: what `ringo compare` compares.
//
// Each optimizer of each rank writes a file of its own to the folder that RINGO_GRADS names, and asks no other rank: a program needs no
// line for it. First come the parts of parameters that the rank holds, then, for each step, the sum of squares of each part's gradient.
// Read adds them up. Each element of the model's tensor counts once, however ranks share it.
//
// Optimizers of a rank are told apart by the order of their first steps, as the two of a GAN.
package grads
